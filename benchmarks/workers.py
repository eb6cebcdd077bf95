"""Ray against plain processes and against itself: workers of one thread each.

    python -m benchmarks.workers [--quick] [--json] [--nodes]

The same testbed (a small convolutional net in torch) is run into fresh stores: by two Ray workers,
two plain processes, and one. Throughput is images over the time from each worker's first finished
tasks to the end, so that neither pays for starting up: a run of hours does not notice the seconds
that Ray needs to start.

``--nodes``: a cluster of two nodes with one processor each against a cluster of one such node (at
least 1.7 wanted), with a larger net, so that what is measured is work. The processes of a node stay
on a processor of their own, where there are two, as those of a machine would; the driver runs
wherever there is room. Rounds alternate; the seconds from the command to the first finished task
are said apart. In each round the net is also run by one bare process and by two at once, without a
cluster and without a store: what the machine has to give just then.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, report
from shiftbed.engine import plan
from shiftbed.engine.run import run_spec
from shiftbed.engine.testbed_file import read_testbed_toml
from tests.clusters import PATIENT, QUIET

NET = """
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Conv2d(3, WIDTH, 3, padding=1), nn.ReLU()]
for _ in range(2):
    layers += [nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()]
net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 10)).eval()

def logits(pixels):
    with torch.inference_mode():
        return net(torch.from_numpy(pixels)).numpy()
"""


BARE = """
import sys, time
import numpy as np
import torch
from shiftbed.evaluation.memory import reused_memory
torch.set_num_threads(1)
from bench_net import logits
pixels = np.zeros((64, 3, 32, 32), np.float32)
with reused_memory():
    logits(pixels)
    print("ready", flush=True)
    sys.stdin.readline()
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < 4:
        logits(pixels)
        done += 64
    print(done / (time.perf_counter() - start))
"""


def bare(processes: int) -> float:
    """Images per second of bare processes that begin together."""
    command, pipe = [sys.executable, "-c", BARE], subprocess.PIPE
    made = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(processes)]
    for one in made:
        assert one.stdout is not None
        one.stdout.readline()
    for one in made:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return sum(float(one.communicate()[0]) for one in made)


def testbed(folder: Path, images: int, models: int) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    arrays = {"images": rng.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)}
    np.savez(folder / "images.npz", labels=rng.integers(0, 10, images), **arrays)
    lines = ['store = "store"', "[defaults]", "batch_size = 64"]
    lines += ["preprocessing = {size = [32, 32], mean = [0, 0, 0], std = [1, 1, 1]}"]
    for i in range(models):
        lines += ["[[models]]", 'id = "python:bench_net:logits"', f'name = "m{i}"', "classes = 10"]
    lines += ["[[test_sets]]", 'name = "images"', 'path = "images.npz"']
    (folder / "testbed.toml").write_text("\n".join(lines))
    return folder / "testbed.toml"


def steady(where: Path, images: int, models: int, runner: str, workers: int) -> tuple[float, float]:
    """Images per second once all are at work, and the seconds until the first task was done."""
    heard: list[tuple[float, int]] = []
    spec = read_testbed_toml(testbed(where, images, models), allow_code=True)
    start = time.perf_counter()
    summary = run_spec(
        spec,
        runner=runner,
        workers=workers,
        report=lambda done: heard.append((time.perf_counter(), done.images)),
    )
    if summary.failed:
        raise SystemExit(f"{runner}: {next(iter(summary.failed.values()))}")
    skip = 2 * workers  # the first tasks of each worker bear the start
    times, counts = [t for t, _ in heard], [n for _, n in heard]
    return sum(counts[skip:]) / (times[-1] - times[skip - 1]), times[0] - start


@contextmanager
def importable(folder: Path, width: int) -> Iterator[None]:
    """The net can be imported here and in workers."""
    (folder / "modules").mkdir()
    (folder / "modules" / "bench_net.py").write_text(NET.replace("WIDTH", str(width)))
    sys.path.insert(0, str(folder / "modules"))
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{folder / 'modules'}{os.pathsep}{before}"
    yield


@contextmanager
def kept_on(processor: int) -> Iterator[None]:
    """Processes started within stay on a processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def cluster(nodes: int) -> Iterator[None]:
    """Nodes with one processor each, on this machine."""
    import ray
    from ray.cluster_utils import Cluster

    api: Any = ray
    given = {"num_cpus": 1, "env_vars": {**PATIENT, "OMP_NUM_THREADS": "1"}}
    processors = sorted(os.sched_getaffinity(0))
    made = Cluster()
    try:
        for i in range(nodes):
            with kept_on(processors[i % len(processors)]):
                made.add_node(**given, **({} if i else {"include_dashboard": False}))
        api.init(address=made.address, **QUIET)
        yield
    finally:
        api.shutdown()
        made.shutdown()


def by_nodes(folder: Path, quick: bool) -> dict[str, Any]:
    images, models, rounds = (8_192, 1, 1) if quick else (16_384, 6, 5)
    rates: dict[int, list[float]] = {1: [], 2: []}
    begun: dict[int, list[float]] = {1: [], 2: []}
    alone: dict[int, list[float]] = {1: [], 2: []}
    with importable(folder, width=32):
        for i in range(rounds):
            for count in (1, 2) if i % 2 == 0 else (2, 1):
                with cluster(count):
                    where = folder / f"{count}-{i}"
                    rate, start = steady(where, images, models, "ray", count)
                rates[count].append(rate)
                begun[count].append(start)
                alone[count].append(bare(count))
    ratios, possible = (np.array(one[2]) / np.array(one[1]) for one in (rates, alone))
    return {
        "two_nodes_over_one": float(np.median(ratios)),
        "each_round": [round(float(one), 3) for one in ratios],
        "two_bare_processes_over_one": float(np.median(possible)),
        "bare_each_round": [round(float(one), 3) for one in possible],
        "images_per_second": {str(n): float(np.median(v)) for n, v in rates.items()},
        "seconds_to_first_task": {str(n): float(np.median(v)) for n, v in begun.items()},
        "rounds": rounds,
        "load": os.getloadavg()[0],
    }


def by_runners(folder: Path, quick: bool) -> dict[str, Any]:
    images, models, rounds = (12_288, 2, 1) if quick else (32_768, 4, 5)
    found: dict[str, list[float]] = {"one": [], "two": [], "ray": []}
    with importable(folder, width=16):
        for i in range(rounds):
            for name, runner, workers in (
                ("one", "processes", 1), ("two", "processes", 2), ("ray", "ray", 2),
            ):  # fmt: skip
                where = folder / f"{name}{i}"
                found[name].append(steady(where, images, models, runner, workers)[0])
    median = {name: float(np.median(v)) for name, v in found.items()}
    return {
        "ray_over_processes": float(np.median(np.array(found["ray"]) / np.array(found["two"]))),
        "two_processes_over_one": median["two"] / median["one"],
        "two_ray_workers_over_one": median["ray"] / median["one"],
        "images_per_second": median,
        "rounds": rounds,
    }


def main() -> None:
    options = arguments(__doc__, "--nodes")
    plan.PARTS_PER_TASK = 1  # a report per task from both runners, and the most of their overhead
    with tempfile.TemporaryDirectory() as folder:
        work = by_nodes if options.nodes else by_runners
        report(work(Path(folder), options.quick), options.json)


if __name__ == "__main__":
    main()
