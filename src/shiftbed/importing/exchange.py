"""Predictions in and out of a store: ``.npz`` arrays and plain CSV.

``.npz``: ``models`` (M,), ``top1`` (M, N), ``labels`` (N,), as public collections have them, or
``logits`` or ``probabilities`` (M, N, classes) instead of ``top1``. CSV: a
row per prediction with ``file``, ``class`` and perhaps ``probability`` and ``model``; the files are
examples of a setting that the store knows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl

from shiftbed.atomic import write_atomically
from shiftbed.display import csv_text
from shiftbed.errors import InputError, unknown
from shiftbed.importing.cells import first, reals, required, wholes
from shiftbed.importing.predictions import ONE, Predictions, parse_predictions
from shiftbed.reading.tables import TextTable, decode, read_bytes, read_delimited
from shiftbed.records import Shift
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top
from shiftbed.store.compact import SMALL, settle, write_small

Key = tuple[str, str]


def import_predictions(
    store: str | Path | PredictionStore,
    files: Sequence[str | Path],
    *,
    setting: str | None = None,
    shifts: Sequence[Shift | str] = (),
) -> int:
    """Import files of predictions per image; the number of cells written.

    A file with one setting is called ``setting``, or after the file. Labels go into the store with
    it; a setting that is there must have the same ones. ``shifts`` between settings of the store
    are remembered in it, for reports and lines.
    """
    opened = store if isinstance(store, PredictionStore) else PredictionStore(store)
    wanted = [Shift.of(one) for one in shifts]
    if setting is not None and len(files) > 1:
        raise InputError("--setting names the setting of one file; import the others by themselves")
    tables = [f for f in files if Path(f).suffix.lower() == ".csv"]
    arrays = [f for f in files if f not in tables]
    with opened.files.lock(alone=False):  # parts come before the records that own them
        count = _import_arrays(opened, [Path(f) for f in arrays], setting) if arrays else 0
        count += sum(_import_csv(opened, Path(file), setting) for file in tables)
        if wanted:
            _remember(opened, wanted)
    settle(opened)
    return count


def _remember(store: PredictionStore, shifts: Sequence[Shift]) -> None:
    """Shifts into the store's own record; others that it has stay."""
    there = store.settings()
    for one in shifts:
        for setting in (*one.source, one.target):
            if setting not in there:
                raise unknown(f"setting of shift {one.name!r}", setting, there)
    old = store.about()
    known = {one["name"]: one for one in old.get("shifts", [])}
    known |= {one.name: asdict(one) for one in shifts}
    name = old.get("name") or Path(store.files.root).name
    store.write_about({"models": {}, **old, "name": name, "shifts": list(known.values())})


def _import_arrays(store: PredictionStore, paths: list[Path], setting: str | None) -> int:
    """Import .npz files: one is read while others are written, and the records come last."""
    there = {(record["model"], record["setting"]) for record in store.cells()}
    records: dict[tuple[str, str], dict[str, object]] = {}
    small: dict[str, dict[Key, pl.DataFrame]] = defaultdict(dict)
    store.begin()
    with ThreadPoolExecutor(32) as pool:
        writes: list[Future[None]] = []
        for path in paths:
            for one in parse_predictions(str(path), read_bytes(path)):
                name = setting or (path.stem if one.setting == ONE else one.setting)
                known = _check(store, path, name, one, there, records)
                test_set = StoredTestSet(
                    setting=name,
                    examples=tuple(map(str, range(len(one.labels)))),
                    labels=one.labels,
                    fingerprint=one.images,
                    label_policy="all classes, as imported",
                )
                store.check_test_set(test_set)
                writes.append(pool.submit(store.add_test_set, test_set))
                for at, model in enumerate(one.models):
                    if model in known:
                        continue
                    if len(one.labels) <= SMALL:
                        small[name][model, name] = _part(one, at)
                    else:
                        writes.append(pool.submit(_write, store, model, name, one, at))
                    records[model, name] = {
                        "status": "complete",
                        "backend": "imported",
                        "source": path.name,
                        "n": len(one.labels),
                    }
        for write in writes:
            write.result()
    for name, cells in small.items():
        write_small(store, name, cells)
    store.write_cells((model, name, record) for (model, name), record in records.items())
    return len(records)


def _part(one: Predictions, at: int) -> pl.DataFrame:
    if one.scores is None:
        return part_from_top(one.top1[at])
    return part_from_logits(one.scores[at], one.labels)


def _write(store: PredictionStore, model: str, setting: str, one: Predictions, at: int) -> None:
    store.write_part(model, setting, 0, _part(one, at))


def _check(
    store: PredictionStore,
    path: Path,
    name: str,
    one: Predictions,
    there: Collection[Key],
    records: Collection[Key],
) -> set[str]:
    """Models whose predictions are in the store already; others than those are refused."""
    if int(one.top1.min()) < 0:
        raise InputError(f"{path}: a prediction in {name!r} is negative, which is no class")
    known = set()
    for at, (model, row) in enumerate(zip(one.models, one.top1, strict=True)):
        if (model, name) in records:
            raise InputError(f"{path}: {model!r} on {name!r} is in another file, too")
        if (model, name) in there:
            stored = store.read(model, name, ["class_1", "prob_1"])
            same = np.array_equal(stored["class_1"].to_numpy(), row)
            if one.scores is not None:
                wanted = part_from_logits(one.scores[at], one.labels)["prob_1"].to_numpy()
                same &= "prob_1" in stored.columns and np.allclose(
                    stored["prob_1"].to_numpy(), wanted, atol=1e-6
                )
            if not same:
                raise InputError(
                    f"{path}: {model!r} on {name!r} is in the store already, with other answers"
                )
            known.add(model)
    return known


def _import_csv(store: PredictionStore, path: Path, setting: str | None) -> int:
    name = setting or path.stem
    test_set = store.test_set(name)
    table = read_delimited(str(path), decode(str(path), read_bytes(path)))
    file, said = table.need("file"), table.need("class")
    model, probability = table.find("model"), table.find("probability")
    at = {example.strip(): i for i, example in enumerate(test_set.examples)}
    files = required(table, file, "file")
    place = files.replace_strict(at, default=None, return_dtype=pl.Int64)
    row = first(place.is_null())
    if row is not None:
        raise InputError(f"{table.cell(row, file)} is no example of {name!r}")
    required(table, said, "class")
    rows = pl.DataFrame({"place": place, "class": wholes(table, said)}).with_columns(
        pl.lit(path.stem).alias("model")
        if model is None
        else table.frame[model].fill_null(path.stem).alias("model"),
        _probabilities(table, probability),
    )
    row = first(~rows.select(pl.struct("model", "place").is_first_distinct()).to_series())
    if row is not None:
        own = rows["model"][row]
        raise InputError(f"{table.cell(row, file)} has a prediction of {own!r} already")
    by_model = rows.partition_by("model", as_dict=True, maintain_order=True)
    for (own,), some in by_model.items():
        column = np.full(len(test_set), -1, dtype=np.int64)
        column[some["place"].to_numpy()] = some["class"].to_numpy()
        frame = part_from_top(np.maximum(column, 0), column >= 0)
        if some["probability"].count():
            chances = np.full(len(test_set), np.nan, np.float32)
            chances[some["place"].to_numpy()] = some["probability"].fill_null(np.nan).to_numpy()
            frame = frame.with_columns(pl.Series("prob_1", chances).fill_nan(None))
        store.write_part(str(own), name, 0, frame)
        record = {"status": "complete", "backend": "imported", "source": path.name}
        missing = int((column < 0).sum())
        store.write_cell(str(own), name, record | {"n": len(column), "without_prediction": missing})
    return len(by_model)


def _probabilities(table: TextTable, column: str | None) -> pl.Series:
    if column is None:
        return pl.Series("probability", [None], pl.Float64).new_from_index(0, len(table.frame))
    values = reals(table, column)
    row = first((values < 0.0) | (values > 1.0))
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a probability between 0 and 1")
    return values.alias("probability")


def export_predictions(
    store: str | Path,
    output: str | Path,
    *,
    setting: str,
    models: Iterable[str] | None = None,
) -> int:
    """Write a setting's predictions to .npz or .csv; how many were written."""
    opened, path = PredictionStore.existing(store), Path(output)
    if path.suffix not in (".npz", ".csv"):
        raise InputError(f"{path}: predictions are written to .npz or .csv")
    test_set = opened.test_set(setting)
    names = sorted(models) if models else [m for m in opened.models() if opened.parts(m, setting)]
    frames = {model: opened.read(model, setting) for model in names}
    if not frames:
        raise InputError(f"no predictions on {setting!r} in {store}")
    for model, frame in frames.items():
        if len(frame) != len(test_set):
            raise InputError(
                f"{model!r} has answers to {len(frame)} of {len(test_set)} examples of "
                f"{setting!r}: not evaluated to the end, or damaged (shiftbed store verify)"
            )
    with write_atomically(path) as file:
        if path.suffix == ".npz":
            _no_gaps(frames, setting)
            top1 = np.stack([f["class_1"].to_numpy() for f in frames.values()])
            np.savez_compressed(file, models=np.array(names), top1=top1, labels=test_set.labels)
        else:
            file.write(_as_csv(frames, test_set).encode())
    return sum(len(frame) for frame in frames.values())


def _no_gaps(frames: dict[str, pl.DataFrame], setting: str) -> None:
    for model, frame in frames.items():
        if frame["class_1"].null_count():
            raise InputError(
                f"{model!r} could not read {frame['class_1'].null_count()} images of {setting!r}; "
                "export it as .csv"
            )


def _as_csv(frames: dict[str, pl.DataFrame], test_set: StoredTestSet) -> str:
    chance = pl.lit(None, dtype=pl.Float64)
    tables = [
        frame.select(
            pl.lit(model).alias("model"),
            pl.Series("file", test_set.examples, dtype=pl.String),
            pl.col("class_1").cast(pl.Int64).alias("class"),
            (pl.col("prob_1").cast(pl.Float64) if "prob_1" in frame.columns else chance).alias(
                "probability"
            ),
        ).drop_nulls("class")
        for model, frame in frames.items()
    ]
    return csv_text(pl.concat(tables))
