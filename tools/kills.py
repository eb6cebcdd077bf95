"""Kill the demo, a training sweep and a run on Ray at random moments until each has ended.

    python -m tools.kills [--demo 40] [--training 130] [--ray 30] [--seed 0] [--json]

A command is killed (SIGKILL, its workers with it) after a random share of the time it takes when
it is left alone, started again, killed again, and so on until it ends by itself. What is there
then must be what the one left alone has made, times left out, and no temporary file; then it all
begins anew, until so many were killed. On Ray every other kill is of a single worker of the
cluster, which the run has to do without. ``demo`` is ``python -m examples.digits --size tiny``,
``training`` a recipe of networks and estimators, ``ray`` a testbed of plain functions.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "2")

from tests.fuzz.harness import preload
from tools.faults import content, leftovers
from tools.kill_fifty import make_testbed, predictions

RECIPE = """
name = "sweep"
store = "out"
runs = "out/runs"
threads = 1

[data.small]
path = "a.npz"
held_out = 0.2

[[test_sets]]
name = "val"
path = "a.npz"

[[test_sets]]
name = "other"
path = "b.npz"

[[grid]]
model = ["sklearn:linear_model.LogisticRegression?C=0.05&max_iter=5&size=8"]
data = {name = "small", fraction = [0.5, 1.0]}
seed = [0]
kind = "standard"
in_fit_set = "final"

[[grid]]
name = "networks"
model = "nets:conv8"
start = "random"
data = "small"
optimiser = {name = "SGD", lr = [0.05, 0.1], momentum = 0.9}
schedule = {name = "CosineAnnealingLR", warmup = 1}
steps = 4
batch_size = 16
seed = [0]
augmentation = "standard"
checkpoints = {every = 2, unit = "step", keep = "all"}
"""
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
Content = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A command that is killed, and how what it has made is compared."""

    name: str
    lay_out: Callable[[Path], None]
    arguments: tuple[str, ...]
    """Of ``shiftbed``; of the demo none."""
    content: Callable[[Path], Content]
    share: float
    """Of the undisturbed time, that a kill comes after at most."""


def _sweep(folder: Path) -> None:
    make_testbed(folder, images=60)
    (folder / "recipe.toml").write_text(RECIPE)


def _demo(folder: Path) -> None:
    folder.mkdir(parents=True)


def _manifest(folder: Path) -> Content:
    """Hashes of what went in and came out, as the study writes them."""
    found = json.loads((folder / "study" / "manifest.json").read_text())
    return {key: json.dumps(value, sort_keys=True) for key, value in found.items()}


VICTIMS = {
    "demo": Victim(name="demo", lay_out=_demo, arguments=(), content=_manifest, share=0.15),
    "training": Victim(
        name="training",
        lay_out=_sweep,
        arguments=("train", "recipe.toml"),
        content=lambda folder: content(folder / "out"),
        share=0.3,
    ),
    "ray": Victim(
        name="ray",
        lay_out=lambda folder: shutil.rmtree(make_testbed(folder).parent / "store", True),
        arguments=("run", "testbed.toml", "--allow-code", "--runner", "ray", "--workers", "2"),
        content=predictions,
        share=0.7,
    ),
}


# --- processes -------------------------------------------------------------------------------


def start(victim: Victim, folder: Path, more: tuple[str, ...] = ()) -> int:
    """The command in a forked child with a session of its own, so that a kill costs no imports."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        os.environ["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
        words = os.open(folder.parent / f"{victim.name}.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(words, 1)
        os.dup2(words, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        code = _run(victim, more)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(victim: Victim, more: tuple[str, ...]) -> int:
    try:
        if victim.arguments:
            from shiftbed.cli import main

            sys.argv = ["shiftbed", *victim.arguments, *more]
            main()
        else:
            from examples.digits.__main__ import main as demo

            sys.argv = ["digits", "study", "--size", "tiny", "--workers", "1"]
            demo()
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        return 70
    return 0


def ended(pid: int, seconds: float | None) -> int | None:
    """The exit code of a child, None if it is at work after so many seconds."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, 0 if until is None else os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if until is not None and time.monotonic() >= until:
            return None
        time.sleep(0.01)


def kill(pid: int) -> None:
    """A child with everything in its session."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def descendants(pid: int) -> Iterator[int]:
    """Processes that a process has started, and theirs."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                yield int(file.parent.name)
                yield from descendants(int(file.parent.name))


@contextmanager
def cluster() -> Iterator[tuple[str, int]]:
    """A Ray cluster of two processors: its address, and the process that has started it."""
    command = [sys.executable, "-c", CLUSTER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # known to nobody else
        own = os.environ | {"RAY_TMPDIR": folder}
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=own, **pipes) as made:
            assert made.stdout is not None
            try:
                address = made.stdout.readline().strip()
                if not address:
                    raise SystemExit("no Ray cluster can be started here")
                yield address, made.pid
            finally:
                made.communicate()


def kill_a_worker(head: int, rng: random.Random) -> bool:
    """One of the cluster's processes that are at work; False if there is none yet."""
    workers = []
    for pid in descendants(head):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::_Actor"):
                workers.append(pid)
    if not workers:
        return False
    with suppress(ProcessLookupError):
        os.kill(rng.choice(workers), signal.SIGKILL)
        return True
    return False


# --- the experiment --------------------------------------------------------------------------


@dataclass(kw_only=True)
class Kills:
    """What came of killing one command."""

    kills: int = 0
    of_workers: int = 0
    """Kills among them that hit a worker only."""
    ends: int = 0
    """How often it ended, between kills, and was compared."""
    differ: int = 0
    leftovers: int = 0
    failed: int = 0
    """Ends with another exit code than 0."""


def kill_until_it_ends(
    victim: Victim, folder: Path, times: int, rng: random.Random
) -> Iterator[Kills]:
    """Kill a command again and again; what came of it so far, after each end."""
    counts, head, more = Kills(), 0, ()
    with cluster() if victim.name == "ray" else nullcontext() as ray:
        if ray:
            more, head = ("--address", ray[0]), ray[1]
        whole, broken = folder / "whole" / "work", folder / "broken" / "work"
        victim.lay_out(whole)
        clock = time.monotonic()
        if ended(start(victim, whole, more), None) != 0:
            raise SystemExit((whole.parent / f"{victim.name}.log").read_text()[-2000:])
        longest, expected = time.monotonic() - clock, victim.content(whole)
        while counts.kills < times:
            shutil.rmtree(broken, ignore_errors=True)
            victim.lay_out(broken)
            code, patience = None, victim.share * longest
            while code is None:
                pid = start(victim, broken, more)
                try:
                    code = ended(pid, rng.uniform(0, patience) if counts.kills < times else None)
                    if code is None and head and rng.random() < 0.5:
                        hit = kill_a_worker(head, rng)
                        counts.kills, counts.of_workers = (
                            counts.kills + hit,
                            counts.of_workers + hit,
                        )
                        code = ended(
                            pid, rng.uniform(0, patience) if counts.kills < times else None
                        )
                finally:
                    if code is None:
                        kill(pid)
                counts.kills += code is None
                patience *= 1.05  # so that it comes to an end
            counts.ends += 1
            counts.failed += code != 0
            if code != 0:
                words = (broken.parent / f"{victim.name}.log").read_text()[-2000:]
                print(f"{victim.name} ended with {code}:\n{words}", file=sys.stderr, flush=True)
            if code == 0 and (unlike := _unlike(victim.content(broken), expected)):
                counts.differ += 1
                print(f"{victim.name} differs in {', '.join(unlike)}", file=sys.stderr, flush=True)
            counts.leftovers += len(leftovers(broken))
            yield counts


def _unlike(found: Content, expected: Content) -> list[str]:
    return sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, times in (("demo", 40), ("training", 130), ("ray", 30)):
        parser.add_argument(f"--{name}", type=int, default=times, help=f"kills (default {times})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    preload()
    found: dict[str, dict[str, int]] = {}
    for name, victim in VICTIMS.items():
        if not getattr(options, name):
            continue
        with tempfile.TemporaryDirectory(prefix="shiftbed-kills-") as folder:
            rng = random.Random(f"{options.seed} {name}")
            for counts in kill_until_it_ends(victim, Path(folder), getattr(options, name), rng):
                found[name] = vars(counts).copy()
                if not options.json:
                    print(name, *(f"{k} {v}" for k, v in found[name].items()), flush=True)
    bad = sum(one[key] for one in found.values() for key in ("differ", "leftovers", "failed"))
    total = sum(one["kills"] for one in found.values())
    print(json.dumps({"kills": total, **found}) if options.json else f"{total} kills, {bad} wrong")
    sys.exit(0 if bad == 0 else 1)


if __name__ == "__main__":
    main()
