"""Flip single bits in every kind of file of a store: is any damage silent?

    python -m tools.bitflip [--flips N] [--seed S] [--json]

A small store with predictions (in parts and imported), test sets, a record of a testbed and a probe
is made in a temporary folder. Each flip changes one bit of one file; then the store is opened,
scored and verified as a user would. A flip is *silent* if some score changes and neither an error,
a note nor ``verify`` says so; *crashed* if anything but one line of an error comes out.
"""

import argparse
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shiftbed.errors import InputError
from shiftbed.importing.exchange import import_predictions
from shiftbed.results.scores import score
from shiftbed.results.stores import verify_store
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.store.probes import write_probe, write_probe_part

METRICS = ("top1", "nll", "phase_cd")


def make_store(folder: Path) -> Path:
    """Two evaluated models, one imported, a probe."""
    rng = np.random.default_rng(0)
    path = folder / "store"
    store = PredictionStore(path)
    labels = rng.integers(0, 5, 60)
    store.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(f"image-{i}.png" for i in range(60)),
            labels=labels,
            fingerprint="sha256:" + "0" * 64,
            label_policy="all 5 classes",
            classes=5,
        )
    )
    for model in ("a", "b"):
        logits = rng.normal(size=(60, 5)).astype(np.float32)
        logits[np.arange(60), labels] += 1.0
        for start in (0, 30):
            rows = slice(start, start + 30)
            store.write_part(model, "val", start, part_from_logits(logits[rows], labels[rows]))
        store.write_cell(model, "val", {"status": "complete", "n": 60})
    paths = {name: rng.random(20) for name in ("hff", "hff_released", "cd")}
    write_probe_part(store, "a", "val", "phase", 0, pl.DataFrame(paths))
    write_probe(store, "a", "val", "phase", {"status": "complete", "paths": 20, "chunk": 20})
    store.write_about({"name": "flips", "shifts": [], "models": {"a": {"kind": "standard"}}})
    answers = folder / "other.npz"
    np.savez(answers, models=np.array(["c"]), top1=rng.integers(0, 5, (1, 60)), labels=labels)
    import_predictions(store, [answers], setting="other")
    return path


def look(path: Path) -> tuple[list[tuple[Any, ...]], list[str]]:
    """What a user sees: the scores, and everything that speaks of damage."""
    said: list[str] = []
    rows: list[tuple[Any, ...]] = []
    try:
        found = score(path, metrics=METRICS)
        said += found.notes
        said += [note for note in found.frame["note"] if "damaged" in (note or "")]
        rows = found.frame.select("model", "setting", "metric", "value", "n").rows()
    except InputError as error:
        said.append(str(error))
    try:
        said += verify_store(path).frame["what"].to_list()
    except InputError as error:
        said.append(str(error))
    return rows, said


def flip(path: Path, flips: int, seed: int = 0) -> dict[str, Any]:
    """Flip bits, one at a time, over all files of a store in turn; counts of what came of it."""
    rng = np.random.default_rng(seed)
    before, said = look(path)
    assert not said, said
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.stat().st_size)
    counts: Counter[str] = Counter(flips=0, silent=0, crashed=0, found=0, harmless=0)
    silent = []
    for i in range(flips):
        file = files[i % len(files)]
        data = bytearray(file.read_bytes())
        whole = bytes(data)
        at = int(rng.integers(len(data) * 8))
        data[at // 8] ^= 1 << (at % 8)
        file.write_bytes(data)
        counts["flips"] += 1
        try:
            after, said = look(path)
        except Exception as error:
            counts["crashed"] += 1
            silent.append(f"{file.relative_to(path)} bit {at}: {type(error).__name__}: {error}")
        else:
            if said:
                counts["found"] += 1
            elif after != before:
                counts["silent"] += 1
                silent.append(f"{file.relative_to(path)} bit {at}")
            else:
                counts["harmless"] += 1
        finally:
            file.write_bytes(whole)
    return {**counts, "files": len(files), "cases": silent[:20]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shiftbed-bitflip-"))
    try:
        found = flip(make_store(folder), options.flips, options.seed)
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{key:10s}{value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
