"""Which measurement of a model predicts its accuracy under which shift (fridovich2022)."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.predictors import Predictor, predictor, ranks
from shiftbed.errors import InputError, unknown
from shiftbed.scales import PROBIT
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice, choose

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
AVERAGE = "average"
"""Name of the rows that average over groups."""


def on_scale(testbed: Testbed, setting: str) -> Floats:
    """(models,): a measurement as it is, an accuracy on the probit scale; 0 and 1 become NaN."""
    value = testbed.accuracy(setting)
    if setting in testbed.metrics:
        return value
    inside = (value > 0) & (value < 1)
    return np.where(inside, PROBIT.forward(np.where(inside, value, 0.5)), np.nan)


def groups_by(
    testbed: Testbed, by: str | None = None, models: Choice = "all"
) -> list[tuple[str, Mask]]:
    """The chosen models by the values of a column (null is a group of its own), or all together."""
    rows = choose(testbed.models, models)
    if not rows.any():
        raise InputError(f"no model of {testbed.name} is left")
    if by is None:
        return [("all", rows)]
    if by not in testbed.models.columns:
        raise unknown(f"column of models in {testbed.name}", by, testbed.models.columns)
    names = testbed.models[by].cast(pl.String).fill_null("none")
    values = names.filter(pl.Series(rows)).unique().sort().to_list()
    return [(name, rows & (names == name).to_numpy()) for name in values]


def metrics_and_shifts(
    testbed: Testbed, metrics: Sequence[str] | None = None, ood: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """Settings to predict from, and OOD settings to predict; names of shifts will do for these.

    By default ID accuracies and everything that is no accuracy, and the targets of all shifts
    that have one ID setting.
    """
    shifts = [s for s in testbed.shifts if len(s.source) == 1 and s.target not in testbed.metrics]
    named = {s.name: s.target for s in shifts}
    targets = [named.get(name, name) for name in ood] if ood else [s.target for s in shifts]
    if not targets:
        raise InputError(f"{testbed.name} has no shift; name OOD settings with --ood")
    sources = dict.fromkeys(s.source[0] for s in shifts if s.target in targets)
    default = [*sources, *(s for s in testbed.settings if s in testbed.metrics)]
    chosen = list(metrics) if metrics else default
    for setting in (*chosen, *targets):
        testbed.setting_index(setting)
    for setting in targets:
        if setting in testbed.metrics:
            raise InputError(f"{setting!r} is no accuracy, so it cannot be predicted on probit")
    if not chosen:
        raise InputError(f"{testbed.name} has nothing to predict from")
    return chosen, list(dict.fromkeys(targets))


def predictors(
    testbed: Testbed,
    *,
    metrics: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    by: str | None = None,
    models: Choice = "all",
    level: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[tuple[str, str], Predictor]:
    """By (OOD setting, metric): slope and R² of probit accuracy on the metric, group by group."""
    chosen, targets = metrics_and_shifts(testbed, metrics, ood)
    groups = groups_by(testbed, by, models)
    options = {"level": level, "bootstrap": bootstrap, "seed": seed}
    found = {}
    for target in targets:
        y = on_scale(testbed, target)
        for metric in chosen:
            if metric != target:
                x = on_scale(testbed, metric)
                found[target, metric] = predictor(x, y, groups, **options)  # type: ignore[arg-type]
    return found


def predictor_table(
    testbed: Testbed,
    *,
    metrics: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    by: str | None = None,
    models: Choice = "all",
    level: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> pl.DataFrame:
    """Long table: ood, metric, group, slope, its ends, r2, its ends, n, rank, note.

    A row per group and one, called average, over the groups. ``rank`` is 1 for the metric with
    the best average R² of an OOD set, 2 for the second best, else null.

    >>> from shiftbed.testbed import published
    >>> table = predictor_table(published("robustnets-2022"), ood=["cifar10.1"], by="architecture",
    ...                         models="augmentation=clean", bootstrap=10)
    >>> table.filter(pl.col("rank") == 1).select("metric", "group", "n").row(0)
    ('cifar10_acc', 'average', 149)
    """
    found = predictors(
        testbed,
        metrics=metrics,
        ood=ood,
        by=by,
        models=models,
        level=level,
        bootstrap=bootstrap,
        seed=seed,
    )
    rows: list[tuple[object, ...]] = []
    for target in dict.fromkeys(key[0] for key in found):
        here = {metric: one for (t, metric), one in found.items() if t == target}
        rank = dict(zip(here, ranks([one.r2 for one in here.values()]), strict=True))
        for metric, one in here.items():
            average = (one.slope, one.slope_low, one.slope_high, one.r2, one.r2_low, one.r2_high)
            best = rank[metric] or None
            rows.append((target, metric, AVERAGE, *average, one.n, best, one.note))
            for fit in one.fits:
                line = (fit.slope, fit.slope_low, fit.slope_high, fit.r2, fit.r2_low, fit.r2_high)
                rows.append((target, metric, fit.group, *line, fit.n, None, fit.note))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").with_columns(
        pl.selectors.float().fill_nan(None)
    )


_SCHEMA = {
    "ood": pl.String,
    "metric": pl.String,
    "group": pl.String,
    "slope": pl.Float64,
    "slope_low": pl.Float64,
    "slope_high": pl.Float64,
    "r2": pl.Float64,
    "r2_low": pl.Float64,
    "r2_high": pl.Float64,
    "n": pl.Int64,
    "rank": pl.Int64,
    "note": pl.String,
}
