"""Correlations of metrics averaged over pairs: scores, a matrix, transfer, by group (wenzel2022).

Figures 3, 4 and S1 to S4, each number with an interval that resamples ID sets and OOD sets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from shiftbed.analysis.dependence import TaskMean, task_mean
from shiftbed.analysis.effects import text_of
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.predictiveness import (
    REASONS,
    Correlations,
    correlations,
    residual_name,
    why_undefined,
)
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs.networks import keep

Floats = NDArray[np.float64]
UNITS = ("two-way", "id-set", "pair")
"""What the bootstrap draws within a task: ID sets and OOD sets, ID sets with all their pairs, or
single pairs as if they were independent."""
DRAWN = {
    "two-way": "ID sets and OOD sets",
    "id-set": "ID sets",
    "pair": "pairs, taken as independent,",
}
GROUPINGS = ("task", "kind", "shift-type")
"""What pairs can be grouped by, besides the columns of their networks' recipes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Averaged:
    """Correlations pair by pair, and how intervals of their averages are made."""

    found: Correlations
    pairs: tuple[PairTable, ...]
    target: str = "ood:error"
    given: str = "id:error"
    bootstrap: int = 1000
    seed: int = 0
    level: float = 0.95
    unit: str = "two-way"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise unknown("unit of the bootstrap", self.unit, UNITS)
        if self.bootstrap < 100:
            raise InputError(f"bootstrap must be at least 100 resamples, got {self.bootstrap}")

    def average(self, values: Floats, cells: Sequence[tuple[str, str]] = ()) -> TaskMean:
        """(pairs, quantities) averaged with equal weight per task.

        ``cells`` says which two metrics each quantity is of: one that the OOD set has no part in is
        the same in all pairs of an ID set, so its interval draws ID sets whatever the unit is.
        """
        inside = np.array([not (_on_ood(a) or _on_ood(b)) for a, b in cells], dtype=bool)
        if self.unit == "id-set" or not inside.any():
            return self._mean(values, self.unit)
        by_set, others = (
            self._mean(values[:, inside], "id-set"),
            self._mean(values[:, ~inside], self.unit),
        )
        joined = {}
        for name in vars(others):
            joined[name] = np.empty(len(inside), dtype=getattr(others, name).dtype)
            joined[name][inside] = getattr(by_set, name)
            joined[name][~inside] = getattr(others, name)
        return TaskMean(**joined)

    def _mean(self, values: Floats, unit: str) -> TaskMean:
        return task_mean(
            values,
            self.found.tasks,
            units=None if unit == "pair" else self.found.sources,
            crossed=self.found.targets if unit == "two-way" else None,
            bootstrap=self.bootstrap,
            seed=self.seed,
            level=self.level,
        )

    def where(self, rows: NDArray[Any]) -> "Averaged":
        index = np.arange(len(self.pairs))[rows]
        some = tuple(self.pairs[i] for i in index)
        return replace(self, found=self.found.where(rows), pairs=some)

    def of_networks(self, column: str, value: str) -> "Averaged | None":
        """The same over the networks with a value of a recipe column, None if no pair has any."""
        some = []
        for pair in self.pairs:
            mask = np.array([text_of(v) == value for v in pair.info.get(column, ())], dtype=bool)
            if mask.any():
                some.append(keep(pair, mask, {}))
        if not some:
            return None
        about = {"method": self.found.method, "target": self.target, "given": self.given}
        return replace(self, found=correlations(some, **about), pairs=tuple(some))


def _on_ood(metric: str) -> bool:
    return metric.startswith(("ood:", "held-out:"))


def study(
    pairs: Sequence[PairTable],
    *,
    method: str = "spearman",
    target: str = "ood:error",
    given: str = "id:error",
    **intervals: Any,
) -> Averaged:
    """What the tables of this module are made from; ``intervals`` are the other fields of it."""
    if target == given:
        raise InputError(f"cannot adjust {target} for itself; name another metric to adjust for")
    found = correlations(pairs, method=method, target=target, given=given)
    return Averaged(found=found, pairs=tuple(pairs), target=target, given=given, **intervals)


def scores(of: Averaged) -> pl.DataFrame:
    """How well each metric predicts the target, alone and given ID error (Fig. 3).

    A row per metric not measured on the OOD data itself: ``r`` with its interval; ``adjusted``, r
    with the target's residuals given ID error; ``more``, r − r of ID error over the pairs that have
    both, with its interval: does the metric predict better than ID error does? ``pairs``, ``tasks``
    and ``networks`` say over how many; ``note`` why something is missing.
    """
    found = of.found
    left = residual_name(of.target, of.given)
    names = [m for m in found.metrics if not m.startswith("ood:")]
    if not names:
        raise InputError("no metric is measured anywhere but on OOD data")
    r = np.column_stack([found.column(m, of.target) for m in names])
    adjusted = np.column_stack([found.column(m, left) for m in names])
    more = r - found.column(of.given, of.target)[:, None]
    parts = {"r": of.average(r), "adjusted": of.average(adjusted), "more": of.average(more)}
    columns: dict[str, Any] = {"metric": names}
    for name, part in parts.items():
        columns[name] = part.mean
        prefix = "" if name == "r" else f"{name}_"
        most = 2.0 if name == "more" else 1.0
        columns[f"{prefix}low"] = np.clip(part.low, -most, most)
        columns[f"{prefix}high"] = np.clip(part.high, -most, most)
    own = names.index(of.given) if of.given in names else None
    if own is not None:
        for name in ("more", "more_low", "more_high"):
            columns[name][own] = np.nan
    columns |= _counts(found, [(m, of.target) for m in names], parts["r"])
    notes = [[_note(found, m, of.target, parts["r"], i)] for i, m in enumerate(names)]
    for i, name in enumerate(names):
        why = why_undefined(found, name, left)
        if why and why != why_undefined(found, name, of.target):
            notes[i].append(f"adjusted: {why}")
        if i == own:
            notes[i].append("it is what the others are compared with")
    columns["note"] = ["; ".join(part for part in some if part) for some in notes]
    return pl.DataFrame(columns, nan_to_null=True)


def _counts(found: Correlations, cells: list[tuple[str, str]], of: TaskMean) -> dict[str, Any]:
    ns = [found.n[:, found.index(a), found.index(b)] for a, b in cells]
    ns = [n[np.isfinite(found.column(a, b))] for n, (a, b) in zip(ns, cells, strict=True)]
    return {
        "pairs": of.pairs,
        "tasks": of.tasks,
        "networks_least": [int(n.min()) if len(n) else 0 for n in ns],
        "networks_most": [int(n.max()) if len(n) else 0 for n in ns],
    }


def _note(found: Correlations, a: str, b: str, of: TaskMean, i: int) -> str:
    """Why a mean or its interval is missing, or fewer pairs than all went into it."""
    parts = [why_undefined(found, a, b)]
    if of.pairs[i] and not of.spread[i]:
        parts.append("no interval: no task has two pairs (or ID sets) that differ")
    return "; ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """The averaged correlation matrix (Fig. S1): square arrays in the order of ``metrics``."""

    metrics: tuple[str, ...]
    r: Floats
    low: Floats
    high: Floats
    pairs: NDArray[np.int64]
    tasks: NDArray[np.int64]
    note: tuple[tuple[str, ...], ...]


def matrix(of: Averaged) -> Matrix:
    """Every two metrics' correlation, averaged over pairs with equal task weight."""
    found = of.found
    names = tuple(m for m in found.metrics if "|" not in m)
    k = len(names)
    i, j = np.triu_indices(k)
    cells = [(names[a], names[b]) for a, b in zip(i, j, strict=True)]
    mean = of.average(found.r[:, i, j], cells)

    def square(values: NDArray[Any]) -> NDArray[Any]:
        full = np.zeros((k, k), dtype=values.dtype)
        full[i, j] = full[j, i] = values
        return full

    notes = np.empty((k, k), dtype=object)
    for cell, (a, b) in enumerate(zip(i, j, strict=True)):
        notes[a, b] = notes[b, a] = _note(found, names[a], names[b], mean, cell)
    return Matrix(
        metrics=names,
        r=square(mean.mean),
        low=square(np.clip(mean.low, -1.0, 1.0)),
        high=square(np.clip(mean.high, -1.0, 1.0)),
        pairs=square(mean.pairs),
        tasks=square(mean.tasks),
        note=tuple(tuple(row) for row in notes),
    )


def matrix_table(of: Averaged) -> pl.DataFrame:
    """The averaged matrix as a long table, a row for every two metrics."""
    found = matrix(of)
    i, j = np.triu_indices(len(found.metrics), 1)
    return pl.DataFrame(
        {
            "a": [found.metrics[x] for x in i],
            "b": [found.metrics[x] for x in j],
            "r": found.r[i, j],
            "low": found.low[i, j],
            "high": found.high[i, j],
            "pairs": found.pairs[i, j],
            "tasks": found.tasks[i, j],
            "note": [found.note[x][y] for x, y in zip(i, j, strict=True)],
        },
        nan_to_null=True,
    )


_SOURCES = ("id", "corrupted", "held-out")


def transfer(of: Averaged) -> pl.DataFrame:
    """How well each metric predicts itself on OOD data, from ID, corrupted and held-out (Fig. 4).

    A row per metric and place it is measured in, with the interval; a metric that is not measured
    somewhere is a row with a reason.
    """
    found = of.found
    metrics = [
        m.removeprefix("ood:") for m in found.metrics if m.startswith("ood:") and "|" not in m
    ]
    cells = [(m, place) for m in metrics for place in _SOURCES]
    there = [(f"{place}:{m}", f"ood:{m}") for m, place in cells]
    values = [
        found.column(a, b) if a in found.metrics else np.full(len(found.pairs), np.nan)
        for a, b in there
    ]
    mean = of.average(np.column_stack(values))
    notes = [
        _note(found, a, b, mean, i) if a in found.metrics else f"{a} is {REASONS[1]}"
        for i, (a, b) in enumerate(there)
    ]
    return pl.DataFrame(
        {
            "metric": [m for m, _ in cells],
            "from": [place for _, place in cells],
            "r": mean.mean,
            "low": np.clip(mean.low, -1.0, 1.0),
            "high": np.clip(mean.high, -1.0, 1.0),
            "pairs": mean.pairs,
            "tasks": mean.tasks,
            "note": notes,
        },
        nan_to_null=True,
    )


def by_group(
    of: Averaged, by: str, make: Callable[[Averaged], pl.DataFrame] = scores
) -> pl.DataFrame:
    """A table for each group, below one another (Appendices A.3 and A.4).

    ``by`` is task, kind or shift-type (``artificial → real``), groups of pairs; or a column of the
    networks' recipes, such as data_size: then each table is over the networks with one value.
    """
    frames = []
    for label, part in _groups(of, by):
        frames.append(make(part).select(pl.lit(label).alias(by), pl.all()))
    return pl.concat(frames, how="vertical_relaxed")


def _groups(of: Averaged, by: str) -> list[tuple[str, Averaged]]:
    columns = dict.fromkeys(name for pair in of.pairs for name in pair.info)
    if by in GROUPINGS:
        labels = [
            {"task": p.task, "kind": p.kind, "shift-type": p.shift_type}[by] for p in of.pairs
        ]
        if not any(labels):
            what = "artificial or real ends" if by == "shift-type" else f"a column {by!r}"
            raise InputError(f"no pair of this study has a type of shift ({what})")
        parts = {one: np.array([label == one for label in labels]) for one in labels}
        return [(label, of.where(rows)) for label, rows in parts.items()]
    if by not in columns:
        raise unknown("grouping", by, [*GROUPINGS, *columns])
    values = dict.fromkeys(text_of(v) for pair in of.pairs for v in pair.info.get(by, ()))
    found = [(value, of.of_networks(by, value)) for value in values if value]
    groups = [(value, part) for value, part in found if part is not None]
    if not groups:
        raise InputError(f"no network has a value of {by!r}")
    return groups


def frame_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame, NaN as null."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(cs.float().fill_nan(None))


TABLES: dict[str, Callable[[Averaged], pl.DataFrame]] = {
    "scores": scores,
    "matrix": matrix_table,
    "transfer": transfer,
}
