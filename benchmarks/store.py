"""The store: import, keep and score, against numpy; and 10⁸ predictions in bounded memory.

    python -m benchmarks.store [--quick] [--json]

First the top-1 predictions of 67 models on 80,000 images (the public ones, or random ones of that
size) are imported, stored and scored, against numpy loading the same files and comparing. Then
stores of growing size are scored in a process of its own: peak memory above a bare interpreter,
and the exponent of time in rows.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import SHARED, arguments, report
from shiftbed.importing.exchange import import_predictions
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top

SCORE = """
import json, resource, sys, time
import numpy, polars
from shiftbed.store import PredictionStore
from shiftbed.results.scores import scores
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
rows = len(scores(PredictionStore(sys.argv[1])))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"rows": rows, "seconds": seconds, "mib": (peak - before) / 1024}))
"""


def files(folder: Path) -> tuple[list[Path], str]:
    """The public predictions, or random ones of the same size."""
    public = sorted((SHARED / "predictions").glob("imagenetv2_67models_*.npz"))
    if public:
        return public, "67 real models"
    rng, made = np.random.default_rng(0), []
    for name, n in (("val", 50_000), ("a", 10_000), ("b", 10_000), ("c", 10_000)):
        labels = np.sort(rng.integers(0, 1000, n)).astype(np.int16)
        wrong = rng.integers(0, 1000, (67, n), dtype=np.int16)
        top1 = np.where(rng.random((67, n)) < 0.7, labels, wrong)
        made.append(folder / f"{name}.npz")
        names = np.array([f"m{i}" for i in range(67)])
        np.savez_compressed(made[-1], models=names, top1=top1, labels=labels)
    return made, "random predictions (the public ones are not at hand)"


def with_numpy(paths: list[Path]) -> int:
    right = 0
    for path in paths:
        with np.load(path, allow_pickle=False) as arrays:
            right += int((arrays["top1"] == arrays["labels"]).mean(axis=1).sum())
    return right


def with_store(paths: list[Path], where: Path) -> None:
    import_predictions(where, paths)
    scores(PredictionStore(where))


def big(where: Path, models: int, images: int) -> None:
    """A store of models × images top-1 predictions; a few parts serve all models."""
    rng, store = np.random.default_rng(0), PredictionStore(where)
    labels = np.sort(rng.integers(0, 1000, images))
    store.add_test_set(
        StoredTestSet(
            setting="big",
            examples=tuple(map(str, range(images))),
            labels=labels,
            fingerprint="big",
        )
    )
    parts = [
        part_from_top(np.where(rng.random(images) < 0.7, labels, rng.integers(0, 1000, images)))
        for _ in range(8)
    ]
    store.write_parts((f"m{i}", "big", 0, parts[i % 8]) for i in range(models))
    store.write_cells((f"m{i}", "big", {"status": "complete"}) for i in range(models))


def main() -> None:
    options = arguments(__doc__)
    rounds = 5 if options.quick else 15
    images = 50_000
    sizes = [50, 100, 200] if options.quick else [250, 500, 1000, 2000]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths, source = files(folder)
        ours, numpys = [], []
        for i in range(rounds):
            for work, times in (
                (lambda: with_numpy(paths), numpys),
                (lambda i=i: with_store(paths, folder / f"s{i}"), ours),
            ):
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
        kept = (folder / "s0" / "predictions").rglob("*.parquet")
        size = sum(path.stat().st_size for path in kept)
        scored = []
        for models in sizes:
            big(folder / f"big{models}", models, images)
            command = [sys.executable, "-c", SCORE, str(folder / f"big{models}")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            scored.append(json.loads(done.stdout))
    rows = np.array(sizes) * images
    seconds = np.array([one["seconds"] for one in scored])
    report(
        {
            "predictions": source,
            "ratio_to_numpy": float(np.median(np.array(ours) / np.array(numpys))),
            "rounds": rounds,
            "bytes_per_top1_prediction": size / (67 * 80_000),
            "largest_store_rows": int(rows[-1]),
            "peak_mib_above_interpreter": max(one["mib"] for one in scored),
            "rows_per_second": float(rows[-1] / seconds[-1]),
            "exponent_rows": float(np.polyfit(np.log(rows), np.log(seconds), 1)[0]),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
