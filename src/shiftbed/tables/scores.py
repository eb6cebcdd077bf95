"""Scores of a store: every metric of every cell, recomputed from the predictions kept."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.analysis.metrics import (
    brier,
    calibration_error,
    demographic_disparity,
    environments,
    group_accuracy,
    negative_log_likelihood,
)
from shiftbed.errors import InputError, unknown
from shiftbed.store import PredictionStore, StoredTestSet

__all__ = ["METRICS", "Cell", "read_cell", "score"]

_NEEDS = {
    "top1": ["class_1"],
    "top5": [f"class_{i}" for i in range(1, 6)],
    "nll": ["label_prob"],
    "brier": ["label_prob", "sum_squares"],
    "ece": ["class_1", "prob_1"],
    "worst_class": ["class_1"],
    "worst_group": ["class_1"],
    "disparity": ["class_1", "scale_gradient"],
}
METRICS = tuple(_NEEDS)
_COUNTS = ("top1", "top5")


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
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


def read_cell(
    store: PredictionStore, model: str, test_set: StoredTestSet, columns: list[str]
) -> Cell:
    """Read some columns of a cell; unreadable and unlabelled examples are left out and counted."""
    setting = test_set.setting
    frame = store.read(model, setting, sorted({"class_1", *columns}))
    if len(frame) != len(test_set):
        raise InputError(
            f"{model!r} on {setting!r} has {len(frame)} of {len(test_set)} predictions; "
            "run it again to continue, or see 'shiftbed store verify'"
        )
    readable = frame["class_1"].is_not_null().to_numpy()
    predicted = frame["class_1"].fill_null(0).to_numpy().astype(np.int64)
    labelled, right = _judge(test_set, predicted)
    keep = readable & labelled
    groups = None if test_set.groups is None else np.asarray(test_set.groups)[keep]
    return Cell(
        model=model,
        setting=setting,
        frame=frame.filter(pl.Series(keep)) if not keep.all() else frame,
        right=right[keep],
        labels=test_set.labels[keep],
        groups=groups,
        unreadable=int((~readable).sum()),
        unlabelled=int((readable & ~labelled).sum()),
        label_policy=test_set.label_policy,
    )


def _judge(
    test_set: StoredTestSet, predicted: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which examples have a right answer, and which were answered right."""
    if test_set.label_sets is None:
        return test_set.labels >= 0, predicted == test_set.labels
    sets = test_set.label_sets
    labelled = np.array([bool(s) for s in sets], dtype=bool)
    right = np.array([p in s for p, s in zip(predicted.tolist(), sets, strict=True)], dtype=bool)
    return labelled, right


def score(
    store: PredictionStore,
    *,
    metrics: Iterable[str] = ("top1",),
    models: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    level: float = 0.95,
) -> pl.DataFrame:
    """Long table: model, setting, metric, value, low, high, n, unreadable, label_policy, note.

    Accuracies have Clopper–Pearson intervals; means over examples (NLL, Brier) Gaussian ones;
    others none, and the note says so. A metric whose columns a cell lacks is a row with a reason.
    Cells are read one at a time, so memory does not grow with the store.
    """
    check_level(level)
    wanted = list(metrics)
    for name in wanted:
        if name not in _NEEDS:
            raise unknown("metric", name, METRICS)
    rows = [
        row
        for cell_model, test_set in _cells(store, models, settings)
        for row in _score_cell(store, cell_model, test_set, wanted, level)
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


_SCHEMA = {
    "model": pl.String,
    "setting": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "unreadable": pl.Int64,
    "label_policy": pl.String,
    "note": pl.String,
}


def _cells(
    store: PredictionStore, models: Iterable[str] | None, settings: Iterable[str] | None
) -> Iterator[tuple[str, StoredTestSet]]:
    """Finished cells, one setting after the other so that labels are read once."""
    only_models = None if models is None else set(models)
    only_settings = None if settings is None else set(settings)
    records = [r for r in store.cells() if r.get("status") == "complete"]
    for what, only, key in (("model", only_models, "model"), ("setting", only_settings, "setting")):
        for name in sorted((only or set()) - {r[key] for r in records}):
            raise unknown(f"{what} in the store", name, sorted({r[key] for r in records}))
    for setting in sorted({r["setting"] for r in records}):
        if only_settings is not None and setting not in only_settings:
            continue
        test_set = store.test_set(setting)
        for record in records:
            if record["setting"] != setting:
                continue
            if only_models is None or record["model"] in only_models:
                yield record["model"], test_set


def _score_cell(
    store: PredictionStore,
    model: str,
    test_set: StoredTestSet,
    metrics: list[str],
    level: float,
) -> Iterator[dict[str, Any]]:
    first = store.parts(model, test_set.setting)[0]
    there = set(store.read_range(model, test_set.setting, first).columns)
    possible = [m for m in metrics if set(_NEEDS[m]) <= there]
    columns = sorted({c for m in possible for c in _NEEDS[m]})
    cell = read_cell(store, model, test_set, columns)
    for metric in metrics:
        row: dict[str, Any] = {
            "model": model,
            "setting": test_set.setting,
            "metric": metric,
            "unreadable": cell.unreadable,
            "label_policy": cell.label_policy,
            "n": len(cell.right),
        }
        if metric not in possible:
            lacking = ", ".join(sorted(set(_NEEDS[metric]) - there))
            yield row | {"note": f"not computable: the store has no {lacking} for this cell"}
        elif not len(cell.right):
            yield row | {"note": "no example could be read and has a label"}
        else:
            yield row | _VALUE[metric](cell, level)


def _counted(right: NDArray[np.bool_], level: float) -> dict[str, Any]:
    value = float(right.mean())
    low, high = clopper_pearson(value, len(right), level)
    return {"value": value, "low": float(low), "high": float(high), "note": ""}


def _mean(values: NDArray[np.float64], value: float, level: float) -> dict[str, Any]:
    n = len(values)
    half = float(ndtri(0.5 + level / 2)) * float(values.std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0
    note = "Gaussian interval" if n > 1 else "no interval from one example"
    ends = {"low": value - half, "high": value + half} if n > 1 else {}
    return {"value": value, "note": note, **ends}


def _column(cell: Cell, name: str) -> NDArray[np.float64]:
    return cell.frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _top5(cell: Cell, level: float) -> dict[str, Any]:
    best = cell.frame.select([f"class_{i}" for i in range(1, 6)]).to_numpy()
    return _counted((best == cell.labels[:, None]).any(axis=1), level)


def _nll(cell: Cell, level: float) -> dict[str, Any]:
    p = _column(cell, "label_prob")
    if np.isnan(p).any():
        return {"note": "not computable: some examples have no single label"}
    floor = float(np.finfo(np.float32).tiny)
    return _mean(-np.log(np.maximum(p, floor)), negative_log_likelihood(p), level)


def _brier(cell: Cell, level: float) -> dict[str, Any]:
    p, squares = _column(cell, "label_prob"), _column(cell, "sum_squares")
    if np.isnan(p).any():
        return {"note": "not computable: some examples have no single label"}
    return _mean(squares - 2 * p + 1, brier(p, squares), level)


def _ece(cell: Cell, level: float) -> dict[str, Any]:
    value = calibration_error(_column(cell, "prob_1"), cell.right)
    return {"value": value, "note": "10 left-closed bins; no interval"}


def _worst(kind: str) -> Callable[[Cell, float], dict[str, Any]]:
    def value(cell: Cell, level: float) -> dict[str, Any]:
        groups = cell.labels if kind == "class" else cell.groups
        if groups is None:
            return {"note": "not computable: this test set has no groups"}
        by_group = group_accuracy(cell.right, groups)
        name, (accuracy, n) = min(by_group.items(), key=lambda item: item[1])
        low, high = clopper_pearson(accuracy, n, level)
        note = f"{kind} {name}, the lowest of {len(by_group)}; interval not adjusted for that"
        return {"value": accuracy, "low": float(low), "high": float(high), "n": n, "note": note}

    return value


def _disparity(cell: Cell, level: float) -> dict[str, Any]:
    gradient = _column(cell, "scale_gradient")
    if np.isnan(gradient).any():
        return {"note": "not computable: some examples have no single label"}
    predicted = cell.frame["class_1"].to_numpy()
    value = demographic_disparity(predicted, environments(gradient))
    return {"value": value, "note": "two inferred environments, closed form; no interval"}


_VALUE: dict[str, Callable[[Cell, float], dict[str, Any]]] = {
    "top1": lambda cell, level: _counted(cell.right, level),
    "top5": _top5,
    "nll": _nll,
    "brier": _brier,
    "ece": _ece,
    "worst_class": _worst("class"),
    "worst_group": _worst("group"),
    "disparity": _disparity,
}
