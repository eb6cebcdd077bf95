"""Plain files to pair tables: CSV, Parquet or JSON, long or wide."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.pairs import WHERE, PairTable, metric_name
from shiftbed.errors import InputError, shown, unknown
from shiftbed.reading.tables import read_bytes, read_table

KEYS = ("task", "id", "ood", "model")
LONG = (*KEYS, "where", "metric", "value")
_ACCURACIES = ("accuracy", "top1")
_FRACTIONS = ("error", *_ACCURACIES)


def read_pairs(path: str | Path) -> tuple[PairTable, ...]:
    """The pair tables of a file.

    A *long* file has a row per value with the columns task, id, ood, model, where (id, corrupted,
    held-out, ood or upstream), metric and value; a *wide* one has a row per network with a column
    ``where:metric`` for each metric instead. ``kind`` (the type of shift) and any further columns
    (architecture, augmentation, …) are optional. ``accuracy`` and ``top1`` become ``error`` =
    1 − accuracy. Empty cells stay missing. Held-out metrics the file lacks are computed later, by
    ``open_pairs``.
    """
    path = str(path)
    frame = _read(path)
    for name in KEYS:
        if name not in frame.columns:
            raise InputError(f"{path}: no column {name!r}; needed are {', '.join(KEYS)}")
        frame = _filled(path, frame, name)
    wide = [name for name in frame.columns if name.partition(":")[0] in WHERE and ":" in name]
    if wide and "where" in frame.columns:
        raise InputError(f"{path}: both a column 'where' and columns such as {wide[0]!r}")
    if wide:
        return tuple(_wide(path, frame, wide))
    for name in LONG:
        if name not in frame.columns:
            raise InputError(
                f"{path}: no column {name!r}; a long file has {', '.join(LONG)}, "
                "a wide one columns such as 'ood:error'"
            )
    return tuple(_wide(path, *_widen(path, frame)))


def _read(path: str) -> pl.DataFrame:
    """All columns as text, null where empty."""
    data = read_bytes(path)
    if path.lower().endswith(".json") and data.lstrip().startswith(b"{"):
        with suppress(ValueError, RecursionError, TypeError, pl.exceptions.PolarsError):
            columns = json.loads(data)
            if all(isinstance(values, list) for values in columns.values()):
                return pl.DataFrame(columns, strict=False).cast(pl.String)
    table = read_table(path, data)
    if table.lists:
        raise InputError(f"{path}, column {shown(table.lists[0])}: lists, not numbers or text")
    return table.frame


def _numbers(path: str, column: pl.Series) -> pl.Series:
    """Numbers, null where a cell is empty; anything else is refused with its row."""
    text = column.cast(pl.String)
    text = text.set(text.is_in(["", "nan", "NaN", "NA", "null"]).fill_null(True), None)
    values = text.cast(pl.Float64, strict=False)
    bad = (text.is_not_null() & values.is_null()).arg_true()
    if len(bad):
        raise InputError(
            f"{path}, row {bad[0] + 1}, {column.name!r}: {text[bad[0]]!r} is not a number"
        )
    infinite = values.is_infinite().fill_null(False).arg_true()
    if len(infinite):
        raise InputError(f"{path}, row {infinite[0] + 1}, {column.name!r}: not a finite number")
    return values


def _filled(path: str, frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """The frame with a column as trimmed text that no row lacks."""
    text = frame[name].fill_null("")
    empty = (text == "").arg_true()
    if len(empty):
        raise InputError(f"{path}, row {empty[0] + 1}: {name!r} is empty")
    return frame.with_columns(text.alias(name))


def _widen(path: str, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """A long frame with a column per metric, a row per network and pair."""
    frame = _filled(path, _filled(path, frame, "where"), "metric")
    frame = frame.with_columns(_numbers(path, frame["value"]).alias("value"))
    for place in frame["where"].unique(maintain_order=True):
        if place not in WHERE:
            row = (frame["where"] == place).arg_true()[0] + 1
            raise InputError(f"{path}, row {row}: {unknown('place of a metric', place, WHERE)}")
    twice = frame.select(LONG[:-1]).is_duplicated().arg_true()
    if len(twice):
        cell = frame.row(twice[0], named=True)
        what = ", ".join(f"{key} {cell[key]!r}" for key in LONG[:-1])
        raise InputError(f"{path}: two values for {what}")
    name = pl.concat_str("where", "metric", separator=":").alias("metric")
    tall = frame.with_columns(name).drop("where")
    values = tall.pivot(on="metric", index=KEYS, values="value", maintain_order=True)
    columns = [c for c in values.columns if c not in KEYS]
    return _recipes(path, tall).join(values, on=KEYS, maintain_order="left"), columns


def _recipes(path: str, tall: pl.DataFrame) -> pl.DataFrame:
    """A row per network and pair with its recipe, which must be the same in all its rows."""
    info = [c for c in tall.columns if c not in (*KEYS, "metric", "value")]
    by = tall.group_by(KEYS, maintain_order=True)
    counts = by.agg(*(pl.col(c).drop_nulls().n_unique().alias(c) for c in info))
    for column in info:
        several = (counts[column] > 1).arg_true()
        if len(several):
            one = counts.row(several[0], named=True)
            raise InputError(
                f"{path}: model {one['model']!r} of {one['id']} → {one['ood']} has several "
                f"values of {column!r}"
            )
    return by.agg(*(pl.col(c).drop_nulls().first().alias(c) for c in info))


def _wide(path: str, frame: pl.DataFrame, columns: list[str]) -> list[PairTable]:
    values = {c: _numbers(path, frame[c]) for c in columns}
    values = _errors(path, values)
    places = {name: i for i, name in enumerate(WHERE)}
    metrics = sorted(values, key=lambda name: places[name.partition(":")[0]])
    info = [c for c in frame.columns if c not in (*KEYS, "kind", *columns)]
    if "kind" not in frame.columns:
        frame = frame.with_columns(pl.lit("").alias("kind"))
    frame = frame.with_columns(pl.col("kind").cast(pl.String).fill_null(""), **_typed(frame, info))
    frame = frame.select(*KEYS, "kind", *info).with_columns(*(values[m].alias(m) for m in metrics))
    found = []
    for part in frame.partition_by("task", "id", "ood", maintain_order=True):
        task, source, target = part.row(0)[:3]
        where = f"{path}: {task}: {source} → {target}"
        names = part["model"]
        if names.is_duplicated().any():
            raise InputError(f"{where}: model {names.filter(names.is_duplicated())[0]!r} twice")
        kinds = part["kind"].unique(maintain_order=True).to_list()
        if len(kinds) > 1:
            raise InputError(f"{where}: two kinds of shift, {kinds[0]!r} and {kinds[1]!r}")
        table = part.select(metrics).to_numpy().astype(np.float64)
        there = [i for i in range(len(metrics)) if np.isfinite(table[:, i]).any()]
        found.append(
            PairTable(
                task=task,
                source=source,
                target=target,
                models=tuple(names.to_list()),
                metrics=tuple(metrics[i] for i in there),
                values=table[:, there],
                kind=kinds[0],
                info={c: part[c].to_list() for c in info},
            )
        )
    return found


def _errors(path: str, values: dict[str, pl.Series]) -> dict[str, pl.Series]:
    """Accuracies turned into errors, both checked to be fractions; names checked."""
    found: dict[str, pl.Series] = {}
    for column, series in values.items():
        place, _, metric = column.partition(":")
        if not metric:
            raise InputError(f"{path}: column {column!r} names no metric")
        if metric in _FRACTIONS and place != "upstream":
            wrong = ((series < 0) | (series > 1)).fill_null(False).arg_true()
            if len(wrong):
                value = series[wrong[0]]
                hint = f"; is that a percentage? write {value / 100:g}" if 1 < value <= 100 else ""
                raise InputError(f"{path}: {column} = {value:g} is not a fraction{hint}")
        if metric in _ACCURACIES and place != "upstream":
            column, series = metric_name(place, "error"), 1.0 - series
        if column in found:
            both = (found[column].is_not_null() & series.is_not_null()).arg_true()
            if len(both):
                raise InputError(f"{path}: {column} is given twice, as accuracy and as error")
            series = found[column].zip_with(series.is_null(), series)
        found[column] = series
    return found


def _typed(frame: pl.DataFrame, info: list[str]) -> dict[str, pl.Series]:
    """Recipe columns as numbers where every value is one, else as text."""
    typed = {}
    for name in info:
        text = frame[name]
        numbers = text.cast(pl.Float64, strict=False)
        whole = numbers.null_count() == text.null_count() and numbers.null_count() < len(text)
        typed[name] = numbers if whole else text
    return typed


def long_table(pairs: Sequence[PairTable]) -> pl.DataFrame:
    """Pair tables as the long table that ``read_pairs`` reads; missing cells are left out."""
    parts = []
    for pair in pairs:
        rows, columns = np.nonzero(np.isfinite(pair.values))
        split = [name.partition(":") for name in pair.metrics]
        part: dict[str, Any] = {
            "task": [pair.task] * len(rows),
            "id": [pair.source] * len(rows),
            "ood": [pair.target] * len(rows),
            "model": [pair.models[i] for i in rows],
            "where": [split[j][0] for j in columns],
            "metric": [split[j][2] for j in columns],
            "value": pair.values[rows, columns],
            "kind": [pair.kind] * len(rows),
        }
        part |= {name: [of[int(i)] for i in rows] for name, of in pair.info.items()}
        parts.append(pl.DataFrame(part, strict=False))
    return pl.concat(parts, how="diagonal_relaxed")
