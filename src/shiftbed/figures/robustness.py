"""ρ against τ, ρ on synthetic against natural shifts, the grid of accuracies, and probes."""

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import pearson
from shiftbed.errors import InputError
from shiftbed.figures.charts import Dots, Heatmap, Line
from shiftbed.records import Shift
from shiftbed.results.correlation import NATURAL, synthetic_natural
from shiftbed.results.predictors import predictors
from shiftbed.testbed.record import Testbed

_AXES = (Line(name="", slope=0.0, intercept=0.0), Line(name="", slope=np.inf, intercept=0.0))
_MOST = 100
"""Models in a grid, the most accurate first."""


def relative(testbed: Testbed, shift: Shift, *, parent: str | None = None) -> Dots:
    """Effective against relative robustness of all models derived from another one.

    taori2020, Section 2: a robust intervention should have ρ > 0 *and* τ > 0.
    """
    table = testbed.effective_robustness(shift).filter(
        pl.col("relative").is_not_null() & pl.col("effective").is_not_null()
    )
    if parent is not None:
        table = table.filter(pl.col("parent") == parent)
    if not len(table):
        raise InputError(f"{testbed.name} has no model derived from another one on {shift.name!r}")
    rho, tau = 100 * table["effective"].to_numpy(), 100 * table["relative"].to_numpy()
    both = int(((rho > 0) & (tau > 0)).sum())
    ends = [100 * table[c].fill_null(np.nan).to_numpy() for c in ("low", "high")]
    return Dots(
        title=f"Effective and relative robustness on {shift.name}",
        x_title="effective robustness ρ (points)",
        y_title="relative robustness τ (points)",
        names=tuple(table["model"].to_list()),
        x=rho,
        y=tau,
        x_low=ends[0],
        x_high=ends[1],
        groups=tuple(table["kind"].to_list()),
        lines=_AXES,
        reading=f"{both} of {len(table)} derived models gain in both (upper right).",
        citation=testbed.citation,
    )


def synthetic(testbed: Testbed, natural: Shift, *, against: str | None = None) -> Dots:
    """ρ on a natural shift over ρ on a synthetic one.

    Models of standard training, which the lines go through, are left out where there are others.

    ``against`` defaults to the synthetic shift whose ρ correlates best with the natural one's
    (taori2020, Appendix H).
    """
    shifts = [s.name for s in testbed.shifts if s.kind not in NATURAL and len(s.source) == 1]
    if not shifts:
        raise InputError(f"{testbed.name} has no synthetic shift")
    few = int((testbed.models["kind"] != "standard").sum()) < 3
    some = "all" if few else "kind!=standard"
    found = synthetic_natural(testbed, synthetic=shifts, natural=[natural.name], models=some)
    ranked = found.filter(pl.col("r").is_finite()).sort("r", descending=True)
    if not len(ranked):
        raise InputError(f"no synthetic shift of {testbed.name} has ρ for three models")
    best = [f"{r['synthetic']} (r {r['r']:.2f}, n = {r['n']})" for r in ranked.head(2).to_dicts()]
    name = against or str(ranked["synthetic"][0])
    rho = {
        which: testbed.effective_robustness(one).select("model", "kind", "effective")
        for which, one in (("x", testbed.shift(name)), ("y", natural))
    }
    both = rho["x"].join(rho["y"], on=["model", "kind"]).drop_nulls()
    both = both.filter(pl.lit(few) | (pl.col("kind") != "standard"))
    x, y = 100 * both["effective"].to_numpy(), 100 * both["effective_right"].to_numpy()
    overall = pearson(x, y)[0]
    kinds = []
    for (kind,), rows in both.group_by(["kind"], maintain_order=True):
        if len(rows) >= 4:
            own = pearson(rows["effective"].to_numpy(), rows["effective_right"].to_numpy())[0]
            kinds.append(f"{kind} {own:.2f} (n = {len(rows)})")
    return Dots(
        title=f"ρ on {natural.name} over ρ on {name}",
        x_title=f"ρ on {name} (points)",
        y_title=f"ρ on {natural.name} (points)",
        names=tuple(both["model"].to_list()),
        x=x,
        y=y,
        groups=tuple(both["kind"].to_list()),
        lines=_AXES,
        reading=f"r = {overall:.2f} over {len(both)} models; by kind: {', '.join(kinds)}.",
        notes=(f"Best synthetic shifts for {natural.name}: {', '.join(best)}.",),
        citation=testbed.citation,
    )


def grid(testbed: Testbed) -> Heatmap:
    """Accuracies of models in the settings of the testbed's shifts, the best models on top."""
    used = dict.fromkeys(s for shift in testbed.shifts for s in (*shift.source, shift.target))
    settings = [s for s in used if s not in testbed.metrics] or list(testbed.settings)
    order = np.argsort(-np.nan_to_num(testbed.accuracy(settings[0]), nan=-1.0), kind="stable")
    rows = order[:_MOST]
    values = np.stack([100 * testbed.accuracy(s)[rows] for s in settings], axis=1)
    more = len(testbed.models) - len(rows)
    return Heatmap(
        title=f"{testbed.title or testbed.name}: accuracies (%)",
        rows=tuple(testbed.model_names[i] for i in rows),
        columns=tuple(settings),
        values=values,
        value_title="accuracy (%)",
        digits=1,
        notes=(f"{more} less accurate models are not drawn.",) if more else (),
        citation=testbed.citation,
    )


def probes(testbed: Testbed) -> Heatmap:
    """R² of probit OOD accuracy on each probe and on ID accuracy, over the baseline models.

    fridovich2022, Section 4: which measurement of a model predicts its accuracy under shift?
    """
    measured = [s for s in testbed.settings if s in testbed.metrics]
    shifts = [s for s in testbed.shifts if len(s.source) == 1 and s.target not in testbed.metrics]
    if not measured or not shifts:
        raise InputError(f"{testbed.name} has no probes: no setting that is not an accuracy")
    values = np.full((len(shifts), 1 + len(measured)), np.nan)
    count = 0
    for i, shift in enumerate(shifts):
        metrics = [shift.source[0], *measured]
        found = predictors(
            testbed, metrics=metrics, ood=[shift.target], models="fit-set", bootstrap=0
        )
        for j, metric in enumerate(metrics):
            one = found.get((shift.target, metric))
            if one is not None:
                values[i, j], count = one.r2, max(count, one.n)
    best = np.nan_to_num(values, nan=-1.0)
    return Heatmap(
        title="R² of each probe for accuracy under shift",
        rows=tuple(s.name for s in shifts),
        columns=("ID accuracy", *measured),
        values=values,
        low=0.0,
        high=1.0,
        marked=best == best.max(axis=1, keepdims=True),
        reading=f"Probit of OOD accuracy on the probe, at most {count} baseline models together; "
        "bold: the best of a row.",
        citation=testbed.citation,
    )
