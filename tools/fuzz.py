"""Spoil every kind of file that a command reads: is each refused in one line, or used?

    python -m tools.fuzz [--inputs 10000 | --minutes N] [--seed S] [--save FILE] [--json]

``tracebacks`` counts commands that ended in anything but a result or one line: a traceback of
Python, a panic of Rust, or the log file of the last resort. ``hangs`` took longer than --patience,
``aborts`` ended the process, ``half_written`` left a temporary or a broken file, or a refused
command's output. Each distinct failure is made smaller and written to --save; add its line to
tests/fuzz/regressions.jsonl with the repair.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "2")

from tests.fuzz.harness import (
    Counts,
    make_world_in_a_child,
    minimise,
    preload,
    run_all,
)

REGRESSIONS = Path(__file__).parents[1] / "tests" / "fuzz" / "regressions.jsonl"


def _asked(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Inputs that failed once, if asked for, then those of the seed."""
    if options.regressions:
        yield from map(json.loads, REGRESSIONS.read_text().splitlines())
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    index = 0
    while index < options.inputs if end is None else time.monotonic() < end:
        yield {"seed": options.seed, "index": index}
        index += 1


def fuzz(options: argparse.Namespace, folder: Path) -> Counts:
    """Make the good files, spoil them, run the commands; failures made smaller."""
    preload()
    world = make_world_in_a_child(options.world or folder / "world")
    counts = Counts()
    begun = time.monotonic()
    for case, found in run_all(
        _asked(options), world, folder, workers=options.workers, patience=options.patience
    ):
        counts.add(case, found)
        if not options.json and counts.inputs % 100 == 0:
            print(
                f"{counts.inputs} in {time.monotonic() - begun:.0f} s,",
                *(len(counts.failures), "failures"),
                flush=True,
            )
    for signature, one in counts.failures.items() if options.save else ():
        if one["kind"] in ("tracebacks", "half_written"):
            one["case"] = minimise(one["case"], signature, world, folder)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, help="go on for so long, however many inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds until a hang")
    parser.add_argument("--regressions", action="store_true", help="inputs that failed once, first")
    parser.add_argument("--save", type=Path, help="a .jsonl file for the failing inputs")
    parser.add_argument("--world", type=Path, help="the good files, kept here for the next time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="shiftbed-fuzz-", dir=memory))
    try:
        counts = fuzz(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.save is not None:
        lines = [
            json.dumps(
                one["case"].to_json()
                | {
                    "failure": signature,
                    "kind": one["kind"],
                    "times": one["times"],
                    "said": one["said"],
                }
            )
            for signature, one in counts.failures.items()
        ]
        options.save.write_text("".join(f"{line}\n" for line in lines))
    keys = ("inputs", "tracebacks", "hangs", "aborts", "half_written")
    found = {key: getattr(counts, key) for key in keys}
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{key:14s}{value}" for key, value in found.items()))
        print(f"{counts.refused} refused, {counts.accepted} used")
    for signature, one in counts.failures.items():
        print(
            f"{one['kind']} × {one['times']}: {signature}: {one['case'].command}", file=sys.stderr
        )
    sys.exit(0 if counts.clean else 1)


if __name__ == "__main__":
    main()
