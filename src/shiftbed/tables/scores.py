"""Scores of a store: every metric of every cell, recomputed from the predictions kept."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
from shiftbed.errors import unknown
from shiftbed.store import Answers, PredictionStore, StoredTestSet, read_answers

__all__ = ["METRICS", "score"]

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
    with ThreadPoolExecutor(2) as pool:  # reading and comparing leave the interpreter free
        cells = pool.map(
            lambda cell: list(_score_cell(store, cell[0], cell[1], wanted, level)),
            _cells(store, models, settings),
        )
        rows = [row for cell in cells for row in cell]
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
    cell = read_answers(store, model, test_set, sorted({c for m in metrics for c in _NEEDS[m]}))
    there = set(cell.frame.columns)
    possible = [m for m in metrics if set(_NEEDS[m]) <= there]
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


def _column(cell: Answers, name: str) -> NDArray[np.float64]:
    return cell.frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _top5(cell: Answers, level: float) -> dict[str, Any]:
    best = cell.frame.select([f"class_{i}" for i in range(1, 6)]).to_numpy()
    return _counted((best == cell.labels[:, None]).any(axis=1), level)


def _nll(cell: Answers, level: float) -> dict[str, Any]:
    p = _column(cell, "label_prob")
    if np.isnan(p).any():
        return {"note": "not computable: some examples have no single label"}
    floor = float(np.finfo(np.float32).tiny)
    return _mean(-np.log(np.maximum(p, floor)), negative_log_likelihood(p), level)


def _brier(cell: Answers, level: float) -> dict[str, Any]:
    p, squares = _column(cell, "label_prob"), _column(cell, "sum_squares")
    if np.isnan(p).any():
        return {"note": "not computable: some examples have no single label"}
    return _mean(squares - 2 * p + 1, brier(p, squares), level)


def _ece(cell: Answers, level: float) -> dict[str, Any]:
    value = calibration_error(_column(cell, "prob_1"), cell.right)
    return {"value": value, "note": "10 left-closed bins; no interval"}


def _worst(kind: str) -> Callable[[Answers, float], dict[str, Any]]:
    def value(cell: Answers, level: float) -> dict[str, Any]:
        groups = cell.labels if kind == "class" else cell.groups
        if groups is None:
            return {"note": "not computable: this test set has no groups"}
        by_group = group_accuracy(cell.right, groups)
        name, (accuracy, n) = min(by_group.items(), key=lambda item: item[1])
        low, high = clopper_pearson(accuracy, n, level)
        note = f"{kind} {name}, the lowest of {len(by_group)}; interval not adjusted for that"
        return {"value": accuracy, "low": float(low), "high": float(high), "n": n, "note": note}

    return value


def _disparity(cell: Answers, level: float) -> dict[str, Any]:
    gradient = _column(cell, "scale_gradient")
    if np.isnan(gradient).any():
        return {"note": "not computable: some examples have no single label"}
    predicted = cell.frame["class_1"].to_numpy()
    value = demographic_disparity(predicted, environments(gradient))
    return {"value": value, "note": "two inferred environments, closed form; no interval"}


_VALUE: dict[str, Callable[[Answers, float], dict[str, Any]]] = {
    "top1": lambda cell, level: _counted(cell.right, level),
    "top5": _top5,
    "nll": _nll,
    "brier": _brier,
    "ece": _ece,
    "worst_class": _worst("class"),
    "worst_group": _worst("group"),
    "disparity": _disparity,
}
