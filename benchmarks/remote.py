"""A store on S3 against one on this disk, and opening a store of 10,000 cells.

    python -m benchmarks.remote [--quick] [--json]

A run of 50 cells (five networks at 64 px, ten test sets of 128 images) into a new store, on this
disk and on an S3 server of this machine (moto's, in a process of its own), by rounds that
alternate: the ratio of their times by the clock (at most 1.3 wanted) and of this process's
processor time, and the requests of a run. Then a store of 10,000 complete cells, as runs leave it,
is opened in a new process: its cells and test sets are listed and one cell is read; on this disk
(under 2 s wanted) and on S3 (at most 20 requests wanted). ``--opened`` does this part only.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, report
from shiftbed.engine.evaluate import evaluate
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top
from shiftbed.store.compact import compact
from tests.objects import BUCKET, Faults, before, environment, s3_server

OPEN = """
import json, sys, time
import polars
from shiftbed.store import PredictionStore
wall, cpu = time.perf_counter(), time.process_time()
store = PredictionStore.existing(sys.argv[1])
cells, sets = store.cells(), store.records()
assert len(store.read(cells[-1]["model"], cells[-1]["setting"])) == 2
now = time.perf_counter() - wall, time.process_time() - cpu
found = {"cells": len(cells), "test_sets": len(sets)}
print(json.dumps(found | {"seconds": round(now[0], 3), "cpu_seconds": round(now[1], 3)}))
"""


def test_sets(folder: Path, count: int, images: int) -> list[str]:
    rng, made = np.random.default_rng(0), []
    for i in range(count):
        made.append(str(folder / f"set{i}.npz"))
        pixels = rng.integers(0, 256, (images, 64, 64, 3), dtype=np.uint8)
        np.savez(made[-1], images=pixels, labels=rng.integers(0, 10, images))
    return made


def run(sets: list[str], models: int, store: str) -> tuple[float, float]:
    """Seconds by the clock and of this process's processors."""
    lines = [f"timm:resnet18?pretrained=false&num_classes=10&seed={i}" for i in range(models)]
    wall, cpu = time.perf_counter(), time.process_time()
    done = evaluate(
        lines,
        sets,
        store=store,
        backend="torch",
        preprocessing={"size": 64, "crop": "none", "resize": None},
    )
    assert len(done.summary.complete) == models * len(sets), done.summary.failed
    return time.perf_counter() - wall, time.process_time() - cpu


def compared(folder: Path, rounds: int, models: int, count: int, images: int) -> dict[str, Any]:
    sets = test_sets(folder, count, images)
    faults = Faults()
    with s3_server() as port:
        _led_to(port)
        ratios = []
        run(sets[:1], 1, str(folder / "first"))
        for i in range(rounds):
            here = run(sets, models, str(folder / f"store{i}"))
            there = run(sets, models, f"s3://{BUCKET}/store{i}")
            ratios.append([b / a for a, b in zip(here, there, strict=True)])
        with before(port, faults) as proxy:
            _led_to(proxy)
            run(sets, models, f"s3://{BUCKET}/counted")
    wall, cpu = np.median(ratios, axis=0)
    return {
        "cells": models * count,
        "ratio_by_the_clock": float(wall),
        "each_round": [round(float(one), 2) for one, _ in ratios],
        "ratio_of_processor_time": float(cpu),
        "rounds": rounds,
        "requests_per_cell": len(faults.requests) / (models * count),
        "load": os.getloadavg()[0],
    }


def opened(folder: Path, models: int, settings: int) -> dict[str, Any]:
    """A store of complete cells, put together as runs leave it, opened in new processes."""
    made = PredictionStore(folder / "many")
    names = [f"s{j}" for j in range(settings)]
    for name in names:
        labels = np.zeros(2, int)
        made.add_test_set(
            StoredTestSet(setting=name, examples=("a", "b"), labels=labels, fingerprint=name)
        )
    cells = [(f"m{i}", name) for i in range(models) for name in names]
    part = part_from_top(np.zeros(2, int))
    made.write_parts((*cell, 0, part) for cell in cells)
    made.write_cells((*cell, {"status": "complete"}) for cell in cells)
    compact(made)
    contents = {
        str(file.relative_to(folder / "many")): file.read_bytes()
        for file in (folder / "many").rglob("*")
        if file.is_file()
    }
    faults = Faults()
    with s3_server() as port, before(port, faults) as proxy:
        _led_to(proxy)
        there = PredictionStore(f"s3://{BUCKET}/many").files
        for name, data in contents.items():
            there.write(name, data)
        faults.requests.clear()
        on_s3 = _in_new_process(f"s3://{BUCKET}/many")
    return {
        "files": len(contents),
        "disk": _in_new_process(str(folder / "many")),
        "s3": {**on_s3, "requests": len(faults.requests)},
    }


def _led_to(port: int) -> None:
    """Connections made from now on go to the server on a port."""
    import s3fs

    os.environ |= environment(port)
    s3fs.S3FileSystem.clear_instance_cache()


def _in_new_process(place: str) -> dict[str, Any]:
    command = [sys.executable, "-c", OPEN, place]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    options = arguments(__doc__, "--opened")
    rounds, models, count, images = (1, 2, 5, 128) if options.quick else (5, 5, 10, 128)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        result = {} if options.opened else compared(folder, rounds, models, count, images)
        print(json.dumps(result), file=sys.stderr, flush=True)  # if the rest is cut
        result["opened"] = opened(folder, 100 if options.quick else 1000, 10)
    report(result, options.json)


if __name__ == "__main__":
    main()
