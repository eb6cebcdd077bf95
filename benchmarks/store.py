"""The store: import, keep and score, against numpy; and 10⁸ predictions in bounded memory.

    python -m benchmarks.store [--quick] [--json]

    python -m benchmarks.store --billion --json      (by hand: minutes, 3 GB of disk)
    python -m benchmarks.store --scored --json       (by hand: 10⁷, 10⁸, 10⁹; --quick a tenth)
    python -m benchmarks.store --evaluated --json    (10 minutes, 7 GB of disk; --quick a tenth)

First the top-1 predictions of 67 models on 80,000 images (the public ones, or random ones of that
size) are imported, stored and scored, against numpy loading the same files and comparing. Then
stores of growing size are scored in a process of its own: peak memory above a bare interpreter,
and the exponent of time in rows. ``--billion``: 2,000 models × 500,000 images
(half of them OOD) imported from .npz files, verified, scored, fitted and compared, each in a
process of its own, beside a tenth of it. ``--scored``: the same sizes written directly, and scored
only (10⁹ in at most 12 times the time of 10⁸ wanted).
``--evaluated``: 30 models × 10 settings × 50,000 images in parts as a run writes them, with top-5
and probabilities, before and after they are put together, beside an imported store of the size.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import SHARED, arguments, report
from shiftbed.importing.exchange import import_predictions
from shiftbed.places import cache_folder
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top
from shiftbed.store.compact import finish_cell, settle

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


WORK = """
import json, resource, sys, time
import numpy, polars
import shiftbed as sb
from shiftbed.results.stores import verify_store
from shiftbed.importing.exchange import import_predictions
what, where, *files = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, cpu = time.perf_counter(), time.process_time()
if what == "import":
    for file in files:
        import_predictions(where, [file])
elif what == "verify":
    assert verify_store(where).whole
elif what == "score":
    assert len(sb.score(where).frame)
elif what == "fit":
    sb.fit(where, "ood").to_dict()
elif what == "compare 20":
    sb.similarity(where, setting="val", model=[f"m{i:04d}" for i in range(20)])
elif what == "compare all":
    sb.similarity(where, setting="val")
seconds, used = time.perf_counter() - start, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mib = round((peak - before) / 1024)
print(json.dumps({"seconds": round(seconds, 2), "cpu": round(used, 2), "mib": mib}))
"""


SHIFT = {"name": "ood", "kind": "natural-dataset", "source": ["val"], "target": "ood"}


def step(what: str, where: Path, *files: Path) -> dict[str, float]:
    """One thing done to a store in a process of its own: seconds by the clock and of processors,
    and memory above its start."""
    command = [sys.executable, "-c", WORK, what, str(where), *map(str, files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def arrays(folder: Path, models: int, images: int, at_once: int = 50) -> list[Path]:
    """.npz files of top-1 predictions, so many models in each."""
    rng, made = np.random.default_rng(0), []
    labels = np.sort(rng.integers(0, 1000, images)).astype(np.int16)
    wrong = rng.integers(0, 1000, images).astype(np.int16)
    for first in range(0, models, at_once):
        skill = rng.uniform(0.5, 0.9, at_once)
        names = np.array([f"m{i:04d}" for i in range(first, first + at_once)])
        for setting, harder in (("val", 0.0), ("ood", 0.2)):
            top1 = [np.where(rng.random(images) < p - harder, labels, wrong) for p in skill]
            made.append(folder / f"{first:05d}" / f"{setting}.npz")
            made[-1].parent.mkdir(exist_ok=True)
            np.savez(made[-1], models=names, top1=np.stack(top1), labels=labels)
    return made


def many(folder: Path, sizes: tuple[int, ...], images: int) -> dict[str, object]:
    """Import, verify, score, open for fits, compare: of stores that grow tenfold."""
    rows: dict[str, object] = {}
    times: list[dict[str, dict[str, float]]] = []
    for models in sizes:
        where = folder / f"store{models}"
        inputs = folder / f"inputs{models}"
        inputs.mkdir()
        done = {"import": {"seconds": 0.0, "cpu": 0.0, "mib": 0.0}}
        for path in arrays(inputs, models, images // 2):
            one = step("import", where, path)
            for key in ("seconds", "cpu"):
                done["import"][key] += one[key]
            done["import"]["mib"] = max(done["import"]["mib"], one["mib"])
            path.unlink()
        PredictionStore(where).write_about({"name": "many", "shifts": [SHIFT]})
        for what in ("verify", "score", "score", "fit", "compare 20", "compare all"):
            name = f"{what}_again" if what in done else what
            done[name] = step(what, where)
        done["bytes_per_prediction"] = {"predictions": _bytes(where) / (models * images)}
        rows[f"{models * images:.0e}".replace("e+0", "e")] = done
        print(json.dumps(rows), file=sys.stderr, flush=True)  # if the rest is cut
        times.append(done)
        shutil.rmtree(where)
    rows["ratio"] = {
        key: {
            what: round(times[-1][what][key] / times[0][what][key], 2)
            for what in ("import", "verify", "score", "fit", "compare 20", "compare all")
        }
        for key in ("seconds", "cpu")
    }
    return rows


def _bytes(where: Path) -> int:
    return sum(path.stat().st_size for path in (where / "predictions").rglob("*.parquet"))


def _files(where: Path) -> int:
    return sum(path.is_file() for path in where.rglob("*"))


def evaluated(folder: Path, models: int, settings: int, images: int) -> dict[str, object]:
    """A store as runs make it, before its cells are complete and after; and an imported one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 1000, images)
    frames = []
    for first in range(0, images, 1024):
        own = labels[first : first + 1024]
        logits = rng.normal(size=(len(own), 1000)).astype(np.float32) * 2
        logits[np.arange(len(own)), own] += 6
        frames.append(part_from_logits(logits, own))
    stores = {name: PredictionStore(folder / name) for name in ("parts", "whole", "imported")}
    for store in stores.values():
        for j in range(settings):
            store.add_test_set(
                StoredTestSet(
                    setting=f"s{j}",
                    examples=tuple(map(str, range(images))),
                    labels=labels,
                    fingerprint=f"sha256:{j}",
                )
            )
    top1 = part_from_top(np.concatenate([one["class_1"].to_numpy() for one in frames]))
    finishing = 0.0
    for i in range(models):
        for j in range(settings):
            cell = f"m{i:02d}", f"s{j}"
            for name in ("parts", "whole"):
                parts = [(*cell, 1024 * k, frame) for k, frame in enumerate(frames)]
                stores[name].write_parts(parts)
            stores["parts"].write_cell(*cell, {"status": "complete"})
            start = time.perf_counter()
            finish_cell(stores["whole"], *cell, {"status": "complete"})
            finishing += time.perf_counter() - start
            stores["imported"].write_part(*cell, 0, top1)
            stores["imported"].write_cell(*cell, {"status": "complete"})
    settle(stores["whole"])
    rows, found = models * settings * images, {}
    for name in stores:
        where = folder / name
        found[name] = {
            "files": _files(where),
            "bytes_per_prediction": round(_bytes(where) / rows, 2),
            "scored_per_second": round(rows / step("score", where)["seconds"]),
            "again_per_second": round(rows / step("score", where)["seconds"]),
        }
    return {"predictions": rows, "seconds_of_putting_together": round(finishing, 1), **found}


def growing(folder: Path, sizes: tuple[int, ...], images: int) -> dict[str, object]:
    """Stores that grow tenfold, each scored twice in a process of its own: the faster one."""
    found: dict[str, dict[str, float]] = {}
    for models in sizes:
        where = folder / f"store{models}"
        big(where, models, images)
        both = []
        for _ in range(2):
            shutil.rmtree(cache_folder(), ignore_errors=True)  # what is known is not read again
            both.append(step("score", where))
        found[f"{models * images:.0e}".replace("e+0", "e")] = min(both, key=lambda one: one["cpu"])
        shutil.rmtree(where)
    before, last = list(found.values())[-2:]
    ratio = {key: round(last[key] / before[key], 2) for key in ("seconds", "cpu")}
    return {**found, "ratio": ratio}


def main() -> None:
    options = arguments(__doc__, "--billion", "--scored", "--evaluated")
    if options.billion or options.scored or options.evaluated:
        with tempfile.TemporaryDirectory() as temporary:
            os.environ["SHIFTBED_CACHE"] = str(Path(temporary) / "cache")
            if options.billion:
                sizes = (50, 500) if options.quick else (200, 2000)
                made = many(Path(temporary), sizes, 50_000 if options.quick else 500_000)
            elif options.scored:
                images = 50_000 if options.quick else 500_000
                made = growing(Path(temporary), (20, 200, 2000), images)
            else:
                made = evaluated(Path(temporary), 3 if options.quick else 30, 10, 50_000)
        report(made, options.json)
        return
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
