"""Kill a run at fifty random moments, run it again each time, and compare with one left alone.

    python -m tools.kill_fifty [--times 50] [--runner local|processes|ray] [--seed 0]

The predictions of both stores must be the same files with the same bytes.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMMAND = [sys.executable, "-c", "from shiftbed.cli import main; main()", "run", "--allow-code"]
MODELS = """
import time

def bright(pixels):
    import numpy as np
    weights = np.random.default_rng(0).normal(size=(pixels.shape[1] * 64, 10))
    flat = pixels[:, :, :8, :8].reshape(len(pixels), -1)
    time.sleep(0.003)  # so that a run takes a while
    return (flat @ weights).astype("float32")

def dark(pixels):
    return -bright(pixels)
"""


def make_testbed(folder: Path, images: int = 6000) -> Path:
    """Two plain functions on two arrays: small, and many parts."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        np.savez(
            folder / f"{name}.npz",
            images=rng.integers(0, 256, (images, 8, 8, 3), dtype=np.uint8),
            labels=rng.integers(0, 10, images),
        )
    (folder / "plain_models.py").write_text(MODELS)
    models = "".join(
        f'[[models]]\nid = "python:plain_models:{name}"\nclasses = 10\n\n'
        for name in ("bright", "dark")
    )
    sets = "".join(
        f'[[test_sets]]\nname = "{name}"\npath = "{name}.npz"\n\n' for name in ("a", "b")
    )
    defaults = '[defaults]\nbatch_size = 32\npreprocessing = {size = [8, 8], crop = "none"}\n\n'
    path = folder / "testbed.toml"
    path.write_text(f'store = "store"\n\n{defaults}{models}{sets}')
    return path


def start(path: Path, runner: str) -> subprocess.Popen[bytes]:
    """A run in a process group of its own, so that its workers can be killed with it."""
    environment = os.environ | {"PYTHONPATH": f"{path.parent}:{os.environ.get('PYTHONPATH', '')}"}
    with (path.parent / "said").open("w") as said:
        return subprocess.Popen(
            [*COMMAND, str(path), "--runner", runner],
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def predictions(folder: Path) -> dict[str, str]:
    """Every file of predictions with the hash of its bytes."""
    root = folder / "store" / "predictions"
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.parquet"))
    }


def kill_and_compare(folder: Path, *, runner: str, times: int, seed: int) -> tuple[int, int, int]:
    """Kill a fresh run at a random moment, run it again, compare; so many times.

    How many runs were killed before they ended, how many of those had written something but not
    all, and how many ended with other predictions than the run that was left alone.
    """
    whole, broken = make_testbed(folder / "whole"), make_testbed(folder / "broken")
    clock = time.perf_counter()
    if start(whole, runner).wait() != 0:
        said = (whole.parent / "said").read_text()
        raise SystemExit(f"the undisturbed run failed: {said[-2000:]}")
    longest = time.perf_counter() - clock
    expected, rng = predictions(whole.parent), random.Random(seed)
    killed = halfway = different = 0
    while killed < times:
        shutil.rmtree(broken.parent / "store", ignore_errors=True)
        run = start(broken, runner)
        try:
            run.wait(timeout=rng.uniform(0.3, 1.0) * longest)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            killed += 1
        halfway += 0 < len(predictions(broken.parent)) < len(expected)
        if start(broken, runner).wait() != 0:
            said = (broken.parent / "said").read_text()
            raise SystemExit(f"the run after the kill failed: {said[-2000:]}")
        different += predictions(broken.parent) != expected
    return killed, halfway, different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--runner", default="local", choices=["local", "processes", "ray"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killed, halfway, different = kill_and_compare(
            Path(folder), runner=options.runner, times=options.times, seed=options.seed
        )
    print(
        f"{options.runner}: {killed} runs killed, {halfway} of them with parts written and parts "
        f"missing; after running again, {different} differ from the undisturbed run"
    )
    sys.exit(0 if different == 0 else 1)


if __name__ == "__main__":
    main()
