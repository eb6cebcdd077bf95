"""The metrics of cells: what each needs of the predictions kept, and what it is of many at once.

Values first, with what an interval at any level needs; intervals afterwards, of all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.analysis.metrics import (
    brier,
    calibration_error,
    demographic_disparity,
    environments,
    group_accuracies,
    negative_log_likelihood,
)
from shiftbed.store import StoredTestSet, right_together

Floats = NDArray[np.float64]
Found = list[dict[str, Any]]
"""Of each cell: value and note, as far as there are any; ``counted`` of a share of n examples, the
``spread`` of a mean over them."""
NEEDS = {
    "top1": ["class_1"],
    "top5": [f"class_{i}" for i in range(1, 6)],
    "nll": ["label_prob"],
    "brier": ["label_prob", "sum_squares"],
    "ece": ["class_1", "prob_1"],
    "worst_class": ["class_1"],
    "worst_group": ["class_1"],
    "disparity": ["class_1", "scale_gradient"],
}
METRICS = tuple(NEEDS)
_UNLABELLED = {"note": "not computable: some examples have no single label"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """What k models answered on the same n examples, all of which count."""

    right: NDArray[np.bool_]
    """(k, n)"""
    labels: NDArray[np.int64]
    """(n,)"""
    groups: NDArray[np.str_] | None
    frame: pl.DataFrame
    """Their predictions, one cell below the other."""

    @property
    def n(self) -> int:
        return int(self.right.shape[1])

    def classes(self, column: str) -> NDArray[np.integer]:
        """(k, n) of a column of classes."""
        return self.frame.get_column(column).to_numpy().reshape(self.right.shape)

    def numbers(self, column: str) -> Floats:
        """(k, n) of a column of numbers, NaN where there is none."""
        found = self.frame.get_column(column).to_numpy().astype(np.float64)
        return found.reshape(self.right.shape)


def whole_cells(frame: pl.DataFrame, test_set: StoredTestSet) -> Cells | None:
    """Cells of one test set read together; None where some examples of some do not count."""
    right = right_together(frame, test_set)
    if right is None:
        return None
    groups = None if test_set.groups is None else np.asarray(test_set.groups)
    return Cells(right=right, labels=test_set.labels, groups=groups, frame=frame)


def values_of(metric: str, cells: Cells) -> Found:
    """A metric of each cell; a reason instead where its columns or examples lack."""
    k = len(cells.right)
    if lacking := sorted(set(NEEDS[metric]) - set(cells.frame.columns)):
        why = f"not computable: the store has no {', '.join(lacking)} for this cell"
        return [{"note": why}] * k
    if not cells.n:
        return [{"note": "no example could be read and has a label"}] * k
    return _VALUE[metric](cells)


def with_intervals(rows: Sequence[Mapping[str, Any]], level: float) -> Iterator[dict[str, Any]]:
    """Rows of values with their intervals: exact of shares, Gaussian of means."""
    shares = [(row["value"], row["n"]) for row in rows if row.get("counted")]
    values, sizes = np.array(shares, dtype=np.float64).reshape(-1, 2).T
    exact = zip(*(end.tolist() for end in clopper_pearson(values, sizes, level)), strict=True)
    z = float(ndtri(0.5 + level / 2))
    for row in rows:
        plain = {name: one for name, one in row.items() if name not in ("counted", "spread")}
        if row.get("counted"):
            low, high = next(exact)
            plain |= {"low": low, "high": high}
        elif row.get("spread") is not None:
            half = z * row["spread"] / float(np.sqrt(row["n"]))
            plain |= {"low": row["value"] - half, "high": row["value"] + half}
        yield plain


def _counted(right: NDArray[np.bool_]) -> Found:
    return [{"value": v, "counted": True, "note": ""} for v in right.mean(axis=1).tolist()]


def _means(values: Floats, means: Floats) -> Found:
    """Means over examples; a cell with NaN has no single labels."""
    if values.shape[1] < 2:
        known = [{"value": v, "note": "no interval from one example"} for v in means.tolist()]
    else:
        spread = values.std(axis=1, ddof=1).tolist()
        pairs = zip(means.tolist(), spread, strict=True)
        known = [{"value": v, "spread": s, "note": "Gaussian interval"} for v, s in pairs]
    return [_UNLABELLED if np.isnan(one["value"]) else one for one in known]


def _top5(cells: Cells) -> Found:
    right = np.zeros(cells.right.shape, dtype=bool)
    for i in range(1, 6):
        right |= cells.classes(f"class_{i}") == cells.labels
    return _counted(right)


def _nll(cells: Cells) -> Found:
    p = cells.numbers("label_prob")
    floor = float(np.finfo(np.float32).tiny)
    return _means(-np.log(np.maximum(p, floor)), negative_log_likelihood(p))


def _brier(cells: Cells) -> Found:
    p, squares = cells.numbers("label_prob"), cells.numbers("sum_squares")
    return _means(squares - 2 * p + 1, brier(p, squares))


def _ece(cells: Cells) -> Found:
    values = calibration_error(cells.numbers("prob_1"), cells.right)
    return [{"value": v, "note": "10 left-closed bins; no interval"} for v in values.tolist()]


def _worst(kind: str) -> Callable[[Cells], Found]:
    def value(cells: Cells) -> Found:
        groups = cells.labels if kind == "class" else cells.groups
        if groups is None:
            return [{"note": "not computable: this test set has no groups"}] * len(cells.right)
        names, accuracy, sizes = group_accuracies(cells.right, groups)
        order = np.argsort(sizes, kind="stable")  # of equally bad ones the smallest
        at = order[accuracy[:, order].argmin(axis=1)]
        lowest, n = accuracy[np.arange(len(at)), at], sizes[at]
        said = f"the lowest of {len(names)}; interval not adjusted for that"
        columns = (names[at].tolist(), lowest.tolist(), n.tolist())
        return [
            {"value": v, "counted": True, "n": size, "note": f"{kind} {name}, {said}"}
            for name, v, size in zip(*columns, strict=True)
        ]

    return value


def _disparity(cells: Cells) -> Found:
    gradient = cells.numbers("scale_gradient")
    values = demographic_disparity(cells.classes("class_1"), environments(gradient))
    note = "two inferred environments, closed form; no interval"
    unknown = np.asarray(np.isnan(gradient).any(axis=1))
    pairs = zip(values.tolist(), unknown, strict=True)
    return [_UNLABELLED if lacks else {"value": v, "note": note} for v, lacks in pairs]


_VALUE: dict[str, Callable[[Cells], Found]] = {
    "top1": lambda cells: _counted(cells.right),
    "top5": _top5,
    "nll": _nll,
    "brier": _brier,
    "ece": _ece,
    "worst_class": _worst("class"),
    "worst_group": _worst("group"),
    "disparity": _disparity,
}
