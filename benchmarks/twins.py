"""Class-subset twins of 67 models × 50,000 images from their stored top-5.

    python -m benchmarks.twins [--quick] [--json]

The public predictions are top-1 only, so the other four classes are simulated: the label for most
images whose best class is wrong, and random classes else. Twins on 200 classes are recomputed from
the store; the peer is reading the same columns of the same cells. Writing the twins is timed apart.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import SHARED, arguments, report
from shiftbed.labels import subset
from shiftbed.store import (
    UNDECIDED,
    PredictionStore,
    StoredTestSet,
    make_twin,
    part_from_top,
    twin_answers,
)

COLUMNS = [f"class_{i}" for i in range(1, 6)]
PART = 1024


def predictions(models: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Top-1 (models, images) and labels: the public ones, or random ones of that size."""
    found = sorted((SHARED / "predictions").glob("imagenetv2_67models_*validation*.npz"))
    if found:
        with np.load(found[0], allow_pickle=False) as arrays:
            return arrays["top1"][:models], arrays["labels"], "67 real models, top-2 to 5 simulated"
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, 1000, 50_000)).astype(np.int16)
    wrong = rng.integers(0, 1000, (models, len(labels)), dtype=np.int16)
    right = rng.random(wrong.shape) < 0.7
    return np.where(right, labels, wrong), labels, "simulated (the public ones are not at hand)"


def top5(best: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Four more classes: the label for four in five wrong images, at a random place."""
    rest = rng.integers(0, 1000, (len(best), 4))
    named = (best != labels) & (rng.random(len(best)) < 0.8)
    rest[named, rng.integers(0, 4, named.sum())] = labels[named]
    return np.column_stack([best, rest]).astype(np.uint16)


def fill(where: Path, models: int) -> tuple[PredictionStore, list[str], str]:
    best, labels, source = predictions(models)
    store, rng = PredictionStore(where), np.random.default_rng(1)
    n = len(labels)
    store.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(map(str, range(n))),
            labels=labels.astype(np.int64),
            fingerprint="bench",
            classes=1000,
        )
    )
    names = [f"m{i}" for i in range(len(best))]
    for name, own in zip(names, best, strict=True):
        frame = part_from_top(top5(own, labels, rng))
        store.write_parts(
            (name, "val", start, frame[start : start + PART]) for start in range(0, n, PART)
        )
    store.write_cells((name, "val", {"status": "complete"}) for name in names)
    return store, names, source


def main() -> None:
    options = arguments(__doc__)
    models, rounds = (10, 5) if options.quick else (67, 7)
    policy = subset(range(0, 1000, 5), of=1000)
    with tempfile.TemporaryDirectory() as temporary:
        store, names, source = fill(Path(temporary) / "store", models)
        reading, deciding = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            for name in names:
                store.read(name, "val", COLUMNS)
            reading.append(time.perf_counter() - start)
            start = time.perf_counter()
            answers = [twin_answers(store, name, "val", policy).predicted for name in names]
            deciding.append(time.perf_counter() - start)
        inside = np.flatnonzero(policy.relabel(store.test_set("val").labels) >= 0)
        undecided = sum(int((one[inside] == UNDECIDED).sum()) for one in answers)
        start = time.perf_counter()
        made = make_twin(store, "val", policy)
        whole = time.perf_counter() - start
        counted = sum(one.undecided for one in made)
    report(
        {
            "predictions": source,
            "models": len(names),
            "images": len(answers[0]),
            "ratio_to_reading": float(np.median(np.array(deciding) / np.array(reading))),
            "reading_seconds": float(np.median(reading)),
            "reading_and_recomputing_seconds": float(np.median(deciding)),
            "rounds": rounds,
            "recomputing_and_writing_seconds": whole,
            "twin_images": len(inside),
            "undecided_rows": undecided,
            "undecided_rows_as_reported": counted,
            "undecided_share": undecided / (len(inside) * len(names)),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
