"""Which metric predicts OOD error? ``predictiveness``: scores, a matrix, transfer (wenzel2022)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.dependence import TaskMean, task_mean
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.predictiveness import (
    REASONS,
    Correlations,
    correlations,
    residual_name,
    why_undefined,
)
from shiftbed.display import Cell, Row, Table, counted, number, p_value, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.charts import Charted
from shiftbed.results.pairs import Source, name_of, notes_of, open_pairs
from shiftbed.results.pairs.added import with_upstream

if TYPE_CHECKING:
    from shiftbed.figures.charts import Bars, Heatmap

Floats = NDArray[np.float64]
UNITS = ("two-way", "id-set", "pair")
"""What the bootstrap draws within a task: ID sets and OOD sets, ID sets with all their pairs, or
single pairs as if they were independent."""
_DRAWN = {
    "two-way": "ID sets and OOD sets",
    "id-set": "ID sets",
    "pair": "pairs, taken as independent,",
}
GROUPINGS = ("task", "kind")


def predictiveness(
    source: Source,
    *,
    show: str = "scores",
    method: str = "spearman",
    target: str = "ood:error",
    given: str = "id:error",
    by: str | None = None,
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    also: Sequence[str] | None = None,
    upstream: str | None = None,
    unit: str = "two-way",
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> "MetricPredictiveness":
    """Which metric predicts OOD error? Averaged correlations over (ID, OOD) pairs, with intervals.

    ``show`` is which table is the ``frame``: scores (each metric with the ``target``, alone and
    ``given`` another), matrix (every two metrics) or transfer (each metric with itself on OOD
    data); ``by`` makes one per task or kind of shift. ``upstream`` is the recipe column with the
    backbone's timm name ("model": the models' own names). ``unit`` is what intervals resample:
    pairs that share an ID set or an OOD set are not independent, so both kinds of sets are drawn
    (``two-way``); ``pair`` takes pairs as independent, which covers 54 to 77 % where 95 % is said.
    Others as in ``open_pairs`` and ``study``.

    >>> found = predictiveness("imagenet-testbed-2020", bootstrap=100)
    >>> found.frame.select("metric", "pairs", "tasks").row(0)
    ('id:error', 15, 1)
    """
    if show not in _TABLES:
        raise unknown("table", show, _TABLES)
    pairs = open_pairs(source, kind=kind, task=task, also=also)
    if upstream is not None:
        pairs = with_upstream(pairs, None if upstream == "model" else upstream)
    found = study(
        pairs,
        method=method,
        target=target,
        given=given,
        bootstrap=bootstrap,
        seed=seed,
        level=level,
        unit=unit,
    )
    make = _TABLES[show]
    return MetricPredictiveness(
        frame=make(found) if by is None else by_group(found, by, make),
        notes=tuple(notes_of(pairs)),
        source=name_of(source),
        study=found,
        show=show,
        by=by,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MetricPredictiveness(Charted):
    """How well metrics predict OOD error; ``frame`` is the table that was asked for."""

    source: str
    study: "Study"
    show: str
    by: str | None

    def to_dict(self) -> dict[str, Any]:
        of, whole = self.study, matrix(self.study)
        found = {
            "source": self.source,
            "method": of.found.method,
            "target": of.target,
            "given": of.given,
            "level": of.level,
            "unit": of.unit,
            "pairs": list(of.found.pairs),
            "tasks": list(dict.fromkeys(of.found.tasks)),
            "scores": records(scores(of)),
            "transfer": records(transfer(of)),
            "matrix": {
                "metrics": list(whole.metrics),
                "r": whole.r.tolist(),
                "low": whole.low.tolist(),
                "high": whole.high.tolist(),
                "pairs": whole.pairs.tolist(),
                "note": [list(row) for row in whole.note],
            },
            "notes": list(self.notes),
        }
        grouped = {"by": self.by, "groups": records(self.frame)}
        return found if self.by is None else found | grouped

    def tables(self) -> Iterable[Table]:
        found, of = self.study.found, self.study
        pairs, tasks = counted(len(found.pairs), "pair"), counted(len(set(found.tasks)), "task")
        notes = [
            f"{found.method.capitalize()} over networks, averaged over {pairs} of {tasks} with "
            f"equal weight per task; {100 * of.level:g} % intervals from {of.bootstrap} resamples "
            f"of {_DRAWN[of.unit]} within tasks. Accuracies count as errors: above 0, two metrics "
            "are low together."
        ]
        if self.show == "scores":
            notes.append(
                f"adjusted: with the residuals of {of.target} given {of.given}. "
                f"more: r minus that of {of.given}, over the pairs that have both."
            )
        titles = {
            "scores": f"how well each metric predicts {of.target}",
            "matrix": "averaged correlations of every two metrics",
            "transfer": "how well each metric predicts itself on OOD data",
        }
        title = f"{self.source}: {titles[self.show]}"
        yield interval_table(title, self.frame, [*notes, *self.notes])

    def chart(self) -> "Bars | Heatmap":
        """The table as bars or a heat map (Figs. 3, 4 and S1)."""
        from shiftbed.results.charts import predictiveness as charts

        of, by = self.study, self.by
        predicts = f"{self.source}: what predicts {of.target}"
        if by is not None:
            if self.show != "scores":
                raise InputError(
                    f"a figure by {by} is of the scores; draw the {self.show} without --by"
                )
            return charts.group_heatmap(self.frame, by, title=predicts)
        if self.show == "scores":
            return charts.score_bars(
                self.frame,
                title=predicts,
                target=of.target,
                given=of.given,
                method=of.found.method.capitalize(),
            )
        if self.show == "matrix":
            whole = matrix(of)
            title = f"{self.source}: averaged correlations"
            return charts.matrix_heatmap(whole.metrics, whole.r, whole.low, whole.high, title=title)
        return charts.transfer_bars(self.frame, title=f"{self.source}: transfer to OOD data")


def interval_table(title: str, frame: pl.DataFrame, notes: Iterable[str] = ()) -> Table:
    """A finished table: an interval in one column, p-values that never print as zero."""
    hidden = ("alternative", "chosen_by", "unit")
    names = [c for c in frame.columns if not c.endswith("high") and c not in hidden]

    def cell(name: str) -> Cell:
        if name.endswith("low"):
            return lambda row: _span(row, name, name.replace("low", "high"))
        if name in ("p_value", "q_value"):
            return name, p_value
        return name, lambda value: number(value, 3) if isinstance(value, float) else value

    heads = [name.replace("low", "interval").replace("_", " ") for name in names]
    columns = dict(zip(heads, map(cell, names), strict=True))
    left = len(list(takewhile(lambda name: frame.schema[name] == pl.String, names)))
    return Table.of(title, frame, columns, notes=notes, left=left)


def _span(row: Row, low: str, high: str) -> str:
    return "" if row[low] is None or row[high] is None else f"{row[low]:.3f} … {row[high]:.3f}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """Correlations pair by pair, and how intervals of their averages are made."""

    found: Correlations
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

    def where(self, rows: NDArray[Any]) -> "Study":
        return replace(self, found=self.found.where(rows))


def _on_ood(metric: str) -> bool:
    return metric.startswith(("ood:", "held-out:"))


def study(
    pairs: Sequence[PairTable],
    *,
    method: str = "spearman",
    target: str = "ood:error",
    given: str = "id:error",
    **intervals: Any,
) -> Study:
    """What the tables of this module are made from; ``intervals`` are the other fields of it."""
    if target == given:
        raise InputError(f"cannot adjust {target} for itself; name another metric to adjust for")
    found = correlations(pairs, method=method, target=target, given=given)
    return Study(found=found, target=target, given=given, **intervals)


def scores(of: Study) -> pl.DataFrame:
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


def matrix(of: Study) -> Matrix:
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


def matrix_table(of: Study) -> pl.DataFrame:
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


def transfer(of: Study) -> pl.DataFrame:
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


def by_group(of: Study, by: str, make: Callable[[Study], pl.DataFrame] = scores) -> pl.DataFrame:
    """A table for each task, or for each type of shift, below one another (Apps. A.3 and A.4)."""
    if by not in GROUPINGS:
        raise unknown("grouping", by, GROUPINGS)
    labels = of.found.tasks if by == "task" else of.found.kinds
    if by == "kind" and not any(labels):
        raise InputError("no pair of this study has a type of shift (a column 'kind')")
    frames = []
    for label in dict.fromkeys(labels):
        part = of.where(np.array([one == label for one in labels]))
        frame = make(part)
        frames.append(frame.select(pl.lit(label).alias(by), pl.all()))
    return pl.concat(frames, how="vertical_relaxed")


_TABLES: dict[str, Callable[[Study], pl.DataFrame]] = {
    "scores": scores,
    "matrix": matrix_table,
    "transfer": transfer,
}
