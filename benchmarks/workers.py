"""Two Ray workers against two plain processes, and both against one, one thread each.

    python -m benchmarks.workers [--quick] [--json]

The same testbed (a small convolutional net in torch) is run into fresh stores. Throughput is
images over the time from each worker's first finished tasks to the end, so that neither pays for
starting up: a run of hours does not notice the seconds that Ray needs to start.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, report
from shiftbed.engine import plan
from shiftbed.engine.run import run_spec
from shiftbed.engine.testbed_file import read_testbed_toml

NET = """
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
for _ in range(2):
    layers += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()

def logits(pixels):
    with torch.inference_mode():
        return net(torch.from_numpy(pixels)).numpy()
"""


def testbed(folder: Path, images: int, models: int) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    arrays = {"images": rng.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)}
    np.savez(folder / "images.npz", labels=rng.integers(0, 10, images), **arrays)
    (folder / "bench_net.py").write_text(NET)
    lines = ['store = "store"', "[defaults]", "batch_size = 64"]
    lines += ["preprocessing = {size = [32, 32], mean = [0, 0, 0], std = [1, 1, 1]}"]
    for i in range(models):
        lines += ["[[models]]", 'id = "python:bench_net:logits"', f'name = "m{i}"', "classes = 10"]
    lines += ["[[test_sets]]", 'name = "images"', 'path = "images.npz"']
    (folder / "testbed.toml").write_text("\n".join(lines))
    return folder / "testbed.toml"


def throughput(where: Path, images: int, models: int, runner: str, workers: int) -> float:
    """Images per second between the first and the last report."""
    heard: list[tuple[float, int]] = []
    spec = read_testbed_toml(testbed(where, images, models), allow_code=True)
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
    return sum(counts[skip:]) / (times[-1] - times[skip - 1])


def main() -> None:
    import os
    import sys

    options = arguments(__doc__)
    plan.PARTS_PER_TASK = 1  # a report per task from both runners, and the most of their overhead
    images, models, rounds = (12_288, 2, 1) if options.quick else (32_768, 4, 5)
    found: dict[str, list[float]] = {"one": [], "two": [], "ray": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        modules = str(folder / "modules")
        os.makedirs(modules)
        (folder / "modules" / "bench_net.py").write_text(NET)
        sys.path.insert(0, modules)
        os.environ["PYTHONPATH"] = f"{modules}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        for i in range(rounds):
            for name, runner, workers in (
                ("one", "processes", 1), ("two", "processes", 2), ("ray", "ray", 2),
            ):  # fmt: skip
                where = folder / f"{name}{i}"
                found[name].append(throughput(where, images, models, runner, workers))
    median: dict[str, Any] = {name: float(np.median(v)) for name, v in found.items()}
    report(
        {
            "ray_over_processes": float(np.median(np.array(found["ray"]) / np.array(found["two"]))),
            "two_processes_over_one": median["two"] / median["one"],
            "two_ray_workers_over_one": median["ray"] / median["one"],
            "images_per_second": median,
            "rounds": rounds,
        },
        options.json,
    )


if __name__ == "__main__":
    main()
