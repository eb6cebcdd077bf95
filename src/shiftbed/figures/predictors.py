"""Predictors as charts: lines per group whose opacity is R², and the best metric of each shift.

fridovich2022, Figures 2 and 3 (ID against OOD accuracy, a line per architecture, the fainter the
worse it fits) and 10 to 13 (the same over the most predictive metric).
"""

from collections.abc import Sequence

import numpy as np

from shiftbed.analysis.predictors import Predictor, ranks
from shiftbed.errors import InputError
from shiftbed.figures.charts import Dots, Line, Panels
from shiftbed.results.predictors import groups_by, metrics_and_shifts, on_scale, predictors
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice

_FAINTEST = 0.06


def group_lines(
    testbed: Testbed,
    *,
    metric: str | None = None,
    ood: Sequence[str] | None = None,
    by: str | None = None,
    models: Choice = "all",
) -> Panels:
    """Probit OOD accuracy over one metric (by default ID accuracy), a panel per OOD setting."""
    metrics, targets = metrics_and_shifts(testbed, [metric] if metric else None, ood)
    chosen = metrics[0]
    found = predictors(testbed, metrics=[chosen], ood=targets, by=by, models=models, bootstrap=0)
    panels = [
        _panel(testbed, target, chosen, found[target, chosen], by, models)
        for target in targets
        if (target, chosen) in found
    ]
    return _panels(testbed, panels, f"OOD accuracy over {chosen}, lines as opaque as R²")


def best_metric(
    testbed: Testbed,
    *,
    metrics: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    by: str | None = None,
    models: Choice = "all",
) -> Panels:
    """Probit OOD accuracy over the metric with the best average R², a panel per OOD setting."""
    found = predictors(testbed, metrics=metrics, ood=ood, by=by, models=models, bootstrap=0)
    panels = []
    for target in dict.fromkeys(key[0] for key in found):
        here = {metric: one for (t, metric), one in found.items() if t == target}
        rank = ranks([one.r2 for one in here.values()])
        if 1 in rank:
            best = list(here)[rank.index(1)]
            panels.append(_panel(testbed, target, best, here[best], by, models))
    return _panels(testbed, panels, "OOD accuracy over the metric that predicts it best")


def _panels(testbed: Testbed, panels: list[Dots], title: str) -> Panels:
    if not panels:
        raise InputError(f"{testbed.name} has no metric with a fit")
    return Panels(
        title=title,
        panels=tuple(panels),
        columns=3,
        reading="A line per group, as opaque as its R² is large.",
        citation=testbed.citation,
    )


def _panel(
    testbed: Testbed,
    target: str,
    metric: str,
    found: Predictor,
    by: str | None,
    models: Choice,
) -> Dots:
    x, y = on_scale(testbed, metric), on_scale(testbed, target)
    names: list[str] = []
    group: list[str] = []
    rows: list[int] = []
    for name, mask in groups_by(testbed, by, models):
        inside = np.flatnonzero(mask & np.isfinite(x) & np.isfinite(y))
        rows += inside.tolist()
        names += [testbed.model_names[i] for i in inside]
        group += [name] * len(inside)
    lines = tuple(
        Line(
            name=f"{fit.group}: R² {fit.r2:.2f} (n = {fit.n})",
            slope=fit.slope,
            intercept=fit.intercept,
            group=fit.group,
            opacity=float(np.clip(fit.r2, _FAINTEST, 1.0)),
        )
        for fit in found.fitted
    )
    accuracy = metric not in testbed.metrics
    return Dots(
        title=f"{target}: mean R² {found.r2:.2f} (n = {found.n})",
        x_title=f"probit({metric})" if accuracy else metric,
        y_title=f"probit({target})",
        names=tuple(names),
        x=x[rows],
        y=y[rows],
        groups=tuple(group),
        lines=lines,
    )
