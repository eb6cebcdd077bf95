"""A cell as it is scored: what one model answered in one setting, and what was right."""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.store.store import PredictionStore
from shiftbed.store.test_sets import StoredTestSet

AT_ONCE = 1 << 19
"""Predictions in memory at a time where many cells are read together."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What one model answered in one setting, for the examples that count."""

    model: str
    setting: str
    frame: pl.DataFrame
    right: NDArray[np.bool_]
    labels: NDArray[np.int64]
    groups: NDArray[np.str_] | None
    unreadable: int
    unlabelled: int
    label_policy: str


def blocks(
    store: PredictionStore, models: Iterable[str], test_set: StoredTestSet, columns: list[str]
) -> Iterator[tuple[list[str], pl.DataFrame | None]]:
    """Cells of one setting, many read in one go, one below the other: several times faster.

    None where they must be read alone: damaged, incomplete, or of other columns than the rest.
    """
    wanted, n = sorted({"class_1", *columns}), len(test_set)
    waiting = list(models)
    while waiting:
        some = waiting[: max(1, AT_ONCE // max(1, n))]
        waiting = waiting[len(some) :]
        yield some, _together(store, some, test_set.setting, wanted, n)


def right_together(whole: pl.DataFrame, test_set: StoredTestSet) -> NDArray[np.bool_] | None:
    """(cells, examples): which answers of a block are right; None where some do not count."""
    best, labels = whole["class_1"], test_set.labels
    if test_set.label_sets is not None or best.null_count() or (labels < 0).any():
        return None
    return np.asarray(best.to_numpy().reshape(-1, len(test_set)) == labels)


def _together(
    store: PredictionStore, models: list[str], setting: str, columns: list[str], n: int
) -> pl.DataFrame | None:
    if len(models) < 2 or not n:
        return None
    pieces = [store.pieces(model, setting) for model in models]
    first = [one.part for one in pieces[0]]
    if not first or any([one.part for one in some] != first for some in pieces):
        return None
    if any(one.checksum is None for some in pieces for one in some):
        return None
    packed = [one.packed for some in pieces for one in some]
    if any(packed) and not all(packed):
        return None
    try:
        if all(packed):
            whole = pl.concat([store.read_piece(one, columns) for (one,) in pieces])
            return whole if len(whole) == n * len(models) else None
        data = [store.piece_bytes(one) for some in pieces for one in some]
        there = columns
        if columns != ["class_1"]:  # which every part has
            heads = [pl.read_parquet_schema(io.BytesIO(one)) for one in data[:: len(first)]]
            if any(one != heads[0] for one in heads):
                return None
            there = [name for name in heads[0] if name in columns]
        files: list[Any] = [io.BytesIO(one) for one in data]
        whole = pl.read_parquet(files, columns=there)
    except (InputError, FileNotFoundError, pl.exceptions.PolarsError):
        return None  # read alone, the cell that is at fault says so
    return whole if len(whole) == n * len(models) else None


def read_answers(
    store: PredictionStore,
    model: str,
    test_set: StoredTestSet,
    columns: list[str],
    frame: pl.DataFrame | None = None,
) -> Answers:
    """Read some columns of a cell; unreadable and unlabelled examples are left out and counted.

    ``frame`` is the cell where ``blocks`` has read it.
    """
    if frame is None:
        frame = store.read_all(model, test_set, sorted({"class_1", *columns}))
    best = frame["class_1"]
    readable = np.ones(len(best), dtype=bool)
    if best.null_count():
        readable, best = best.is_not_null().to_numpy(), best.fill_null(0)
    right, labelled = test_set.judge(best.to_numpy())
    keep = readable & labelled
    groups = None if test_set.groups is None else np.asarray(test_set.groups)[keep]
    return Answers(
        model=model,
        setting=test_set.setting,
        frame=frame.filter(pl.Series(keep)) if not keep.all() else frame,
        right=right[keep],
        labels=test_set.labels[keep],
        groups=groups,
        unreadable=int((~readable).sum()),
        unlabelled=int((readable & ~labelled).sum()),
        label_policy=test_set.label_policy,
    )
