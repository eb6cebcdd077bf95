"""Charts of a testbed or store: ρ against τ, on synthetic and natural shifts;
the grid of accuracies, probes, and reliability diagrams."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.intervals import pearson
from shiftbed.analysis.metrics import reliability
from shiftbed.errors import InputError
from shiftbed.figures.charts import Curve, Curves, Dots, Heatmap, Reference
from shiftbed.records import NATURAL, Shift
from shiftbed.results.correlation import correlate
from shiftbed.results.predictors import MARKED, predictors
from shiftbed.store import Answers, PredictionStore, read_answers
from shiftbed.store.derived import Facts
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice, choose

_AXES = (
    Reference(name="", slope=0.0, intercept=0.0),
    Reference(name="", slope=np.inf, intercept=0.0),
)
_DIAGRAM = 6
"""Models in one diagram, the first in name."""
_MOST = 100
"""Models in a grid, the most accurate first."""


def _chosen(testbed: Testbed, only: Choice) -> list[str]:
    return testbed.models.filter(pl.Series(choose(testbed.models, only)))["model"].to_list()


def relative(
    testbed: Testbed,
    baseline: Baseline,
    *,
    only: Choice = "all",
    highlight: Sequence[str] = (),
) -> Dots:
    """Effective against relative robustness of all models derived from another one, or of some.

    taori2020, Section 2: a robust intervention should have ρ > 0 *and* τ > 0.
    """
    table = testbed.robustness([baseline]).filter(
        pl.col("relative").is_not_null() & pl.col("effective").is_not_null(),
        pl.col("model").is_in(_chosen(testbed, only)),
    )
    if not len(table):
        shift = baseline.shift
        which = "" if isinstance(only, str) and only == "all" else ", among those asked for,"
        raise InputError(
            f"{testbed.name} has no model{which} derived from another one on {shift!r}"
        )
    rho, tau = 100 * table["effective"].to_numpy(), 100 * table["relative"].to_numpy()
    both = int(((rho > 0) & (tau > 0)).sum())
    ends = [100 * table[c].fill_null(np.nan).to_numpy() for c in ("low", "high")]
    return Dots(
        title=f"Effective and relative robustness on {baseline.shift}",
        x_title="effective robustness ρ (points)",
        y_title="relative robustness τ (points)",
        names=tuple(table["model"].to_list()),
        x=rho,
        y=tau,
        x_low=ends[0],
        x_high=ends[1],
        groups=tuple(table["kind"].to_list()),
        lines=_AXES,
        labelled=_named(testbed, highlight),
        reading=f"{both} of {len(table)} derived models gain in both (upper right).",
        citation=testbed.citation,
    )


def synthetic(
    testbed: Testbed,
    natural: Shift,
    *,
    against: str | None = None,
    only: Choice = None,
    highlight: Sequence[str] = (),
) -> Dots:
    """ρ on a natural shift over ρ on the shift ``against``, or on the synthetic one that it
    correlates best with.

    Models of standard training, which the lines go through, are left out where there are others
    (taori2020, Appendix H), unless ``only`` says which models are meant.
    """
    shifts = [s.name for s in testbed.shifts if s.kind not in NATURAL and len(s.source) == 1]
    if against is not None:
        shifts = [testbed.shift(against).name]
    if not shifts:
        raise InputError(f"{testbed.name} has no synthetic shift")
    few = int((testbed.models["kind"] != "standard").sum()) < 3
    some = only if only is not None else "all" if few else "kind!=standard"
    found = correlate(testbed, synthetic=shifts, natural=[natural.name], models=some).frame
    ranked = found.filter(pl.col("r").is_finite()).sort("r", descending=True)
    if not len(ranked):
        named = f"{against!r}" if against else "no synthetic shift"
        raise InputError(f"{named} of {testbed.name} has {'no ' * bool(against)}ρ for three models")
    best = [f"{r['synthetic']} (r {r['r']:.2f}, n = {r['n']})" for r in ranked.head(2).to_dicts()]
    name = str(ranked["synthetic"][0])
    rho = {
        which: testbed.effective_robustness(one).select("model", "kind", "effective")
        for which, one in (("x", testbed.shift(name)), ("y", natural))
    }
    both = rho["x"].join(rho["y"], on=["model", "kind"]).drop_nulls()
    both = both.filter(pl.col("model").is_in(_chosen(testbed, some)))
    x, y = 100 * both["effective"].to_numpy(), 100 * both["effective_right"].to_numpy()
    overall = pearson(x, y)[0]
    kinds = []
    for (kind,), rows in both.group_by(["kind"], maintain_order=True):
        if len(rows) >= 4:
            own = pearson(rows["effective"].to_numpy(), rows["effective_right"].to_numpy())[0]
            kinds.append(f"{kind} {own:.2f} (n = {len(rows)})")
    across, up = (testbed.title_of(one.target) for one in (testbed.shift(name), natural))
    return Dots(
        title=f"ρ on {up} over ρ on {across}",
        x_title=f"ρ on {across} (points)",
        y_title=f"ρ on {up} (points)",
        names=tuple(both["model"].to_list()),
        x=x,
        y=y,
        groups=tuple(both["kind"].to_list()),
        lines=_AXES,
        labelled=_named(testbed, highlight),
        reading=f"r = {overall:.2f} over {len(both)} models; by kind: {', '.join(kinds)}.",
        notes=() if against else (f"Best synthetic shifts for {natural.name}: {', '.join(best)}.",),
        citation=testbed.citation,
    )


def grid(testbed: Testbed, *, only: Choice = "all", all: bool = False) -> Heatmap:
    """Accuracies of models in the settings of the testbed's shifts, the best models on top.

    ``all``: every model, in every setting that was evaluated, each severity of a corruption too
    (taori2020, Figure 7).
    """
    used = dict.fromkeys(s for shift in testbed.shifts for s in (*shift.source, shift.target))
    first = next(iter(used), testbed.settings[0])
    if all:
        used = dict.fromkeys(s for s in testbed.settings if s not in testbed.derived)
    settings = [s for s in used if s not in testbed.metrics] or list(testbed.settings)
    wanted = np.flatnonzero(choose(testbed.models, only))
    if not len(wanted):
        raise InputError(f"no model of {testbed.name} is left to draw")
    x = np.nan_to_num(testbed.accuracy(first)[wanted], nan=-1.0)
    order = wanted[np.argsort(-x, kind="stable")]
    rows = order if all else order[:_MOST]
    values = np.stack([100 * testbed.accuracy(s)[rows] for s in settings], axis=1)
    more = len(order) - len(rows)
    return Heatmap(
        title=f"{testbed.title or testbed.name}: accuracies (%)",
        rows=tuple(testbed.model_names[i] for i in rows),
        columns=tuple(testbed.title_of(s) for s in settings),
        values=values,
        value_title="accuracy (%)",
        digits=1,
        reading="Blank: not evaluated." if np.isnan(values).any() else "",
        notes=(f"{more} less accurate models are not drawn.",) if more else (),
        citation=testbed.citation,
    )


def _titles(testbed: Testbed, shifts: Sequence[Shift]) -> tuple[str, ...]:
    """Shifts by their OOD sets, and by their ID sets too where several have the same."""
    targets = [testbed.title_of(s.target) for s in shifts]
    return tuple(
        title if targets.count(title) == 1 else f"{title} over {testbed.title_of(s.source[0])}"
        for title, s in zip(targets, shifts, strict=True)
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
            testbed, metric=metrics, ood=[shift.target], models="fit-set", bootstrap=0
        ).fits
        for j, metric in enumerate(metrics):
            one = found.get((shift.target, metric))
            if one is not None:
                values[i, j], count = one.r2, max(count, one.n)
    best = np.nan_to_num(values, nan=-1.0)
    return Heatmap(
        title="R² of each probe for accuracy under shift",
        rows=_titles(testbed, shifts),
        columns=("ID accuracy", *measured),
        values=values,
        low=0.0,
        high=1.0,
        marked=(best == best.max(axis=1, keepdims=True)) & (best > MARKED),
        reading=f"Probit of OOD accuracy on the probe, at most {count} baseline models together; "
        f"bold: the best of a row, where it is above {MARKED:g}.",
        citation=testbed.citation,
    )


def _named(testbed: Testbed, models: Sequence[str]) -> tuple[str, ...]:
    return tuple(testbed.model_names[testbed.model_index(name)] for name in models)


def _bins(answers: Answers) -> dict[str, list[float]]:
    """Confidence, accuracy and examples of the bins that have any; nothing of no probabilities."""
    if "prob_1" not in answers.frame.columns or not len(answers.right):
        return {}
    p = np.clip(answers.frame["prob_1"].to_numpy().astype(np.float64), 0.0, 1.0)
    found = reliability(p, answers.right)
    there = found.n > 0
    columns = {"confidence": found.confidence, "accuracy": found.accuracy, "n": found.n}
    columns |= {"low": found.low, "high": found.high}
    return {name: one[there].tolist() for name, one in columns.items()} | {"error": [found.error]}


def _reliability_curve(name: str, *, error: list[float], **bins: list[float]) -> Curve:
    x, y, low, high = (np.array(bins[key]) for key in ("confidence", "accuracy", "low", "high"))
    said = f"{name} (ECE {100 * error[0]:.1f} %)"
    return Curve(name=said, x=x, y=y, low=low, high=high)


def reliability_diagram(
    store: PredictionStore, setting: str, title: str, called: Mapping[str, str]
) -> Curves:
    """Accuracy over confidence in ten bins, one curve per model, with 95 % intervals; ``title`` is
    the setting's, ``called`` has what to call models."""
    names = sorted(store.complete_models(setting))
    test_set = store.test_set(setting)
    curves: list[Curve] = []
    notes: list[str] = []
    facts = Facts(store, test_set, "analysis/metrics.py", "results/charts/robustness.py")
    known = {name: own["reliability"] for name, own in facts.of(names, ["reliability"]).items()}
    fresh: dict[str, dict[str, Any]] = {}
    for name in names:
        if name not in known:
            known[name] = _bins(read_answers(store, name, test_set, ["prob_1"]))
            fresh[name] = {"reliability": known[name]}
        if not known[name]:
            notes.append(f"{name} has no probabilities in the store.")
            continue
        if len(curves) == _DIAGRAM:
            notes.append(f"{len(names) - _DIAGRAM} more models are not drawn.")
            break
        curves.append(_reliability_curve(called.get(name, name), **known[name]))
    facts.add(fresh)
    if not curves:
        raise InputError(f"no model has probabilities on {setting!r}")
    return Curves(
        title=f"Reliability on {title}",
        x_title="confidence",
        y_title="accuracy",
        curves=tuple(curves),
        lines=(Reference(name="calibrated", slope=1.0),),
        reading="Ten bins of equal width, left-closed; bands are 95 % Clopper–Pearson intervals; "
        f"n = {len(test_set.labels):,} images. ECE: expected calibration error.",
        notes=tuple(notes),
    )
