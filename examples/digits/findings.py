"""Which of the papers' findings hold here: each with its numbers, and a verdict by a stated rule.

A finding holds, or does not, only if the whole interval says so; else it is inconclusive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from examples.digits.numbers import Number, adjusted_r2, mean_of, r2, resampled, spearman
from examples.digits.study import Study
from shiftbed.analysis.intervals import pearson
from shiftbed.errors import InputError
from shiftbed.results.scores import scores
from shiftbed.scales import LOGIT, PROBIT
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, open_testbed

__all__ = ["HOLDS", "NOT", "UNKNOWN", "Finding", "findings", "opening"]

HOLDS, NOT, UNKNOWN = "holds", "does not hold", "inconclusive"
Floats = NDArray[np.float64]
LINE_R2 = 0.9
MARGIN = 0.02
"""ρ within ± 2 points is none to speak of."""
WEAK = 0.5
"""A correlation below this is small."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a paper says, and what is seen here."""

    paper: str
    claim: str
    verdict: str
    figure: str
    """Its main number with the interval, in a few words."""
    seen: str
    numbers: dict[str, Number] = field(default_factory=dict)


def findings(study: Study) -> list[Finding]:
    """All of them, in the order of the papers."""
    bed = open_testbed(study.store)
    found: list[Finding] = []
    for make in (_lines, _interventions, _synthetic, _tuning, _two_sets, _probes, _predictors,
                 _adversarial):  # fmt: skip
        found += make(study, bed)
    return found


def opening(study: Study, found: list[Finding]) -> list[str]:
    """The report's first paragraph, and one per finding."""
    bed = open_testbed(study.store)
    runs = bed.models["model"].str.replace(r"@\d+$", "").n_unique()
    first = (
        f"Handwritten digits, {study.size} study: {runs} models ({len(bed.models)} with the steps "
        f"of fine-tuning) on {len(study.natural)} domains, {len(bed.settings)} settings in all. "
        "Of the papers' findings, with intervals at 95 %, "
    )
    parts = []
    for verdict in (HOLDS, NOT, UNKNOWN):
        own = [
            f"{one.claim} ({one.paper}; {one.figure})" for one in found if one.verdict == verdict
        ]
        if own:
            many = {HOLDS: "hold", NOT: "do not hold"}.get(verdict, verdict)
            parts.append(f"{len(own)} {verdict if len(own) == 1 else many}: {'; '.join(own)}")
    each = [f"{one.paper}: {one.claim} – {one.verdict}. {one.seen}" for one in found]
    return [first + ". ".join(parts) + ".", *each]


def _verdict(holds: bool, fails: bool) -> str:
    return HOLDS if holds else NOT if fails else UNKNOWN


def _on(bed: Testbed, setting: str, rows: NDArray[np.int64]) -> Floats:
    """Logits of accuracies; infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(LOGIT.forward(bed.accuracy(setting)[rows]))


def _lines(study: Study, bed: Testbed) -> Iterator[Finding]:
    """taori2020, Section 3.1: standard models lie on a line in logit space."""
    for shift in ("digits", *study.natural[2:]):
        rows = np.flatnonzero(bed.fit_set(shift))
        x, y = _on(bed, "mnist", rows), _on(bed, bed.shift(shift).target, rows)
        inside = np.isfinite(x) & np.isfinite(y)
        x, y = x[inside, None], y[inside]
        found = resampled(lambda i, x=x, y=y: r2(x[i], y[i]), len(y))  # type: ignore[misc]
        yield Finding(
            paper="taori2020",
            claim=f"accuracy on {_spoken(shift)} is a line in MNIST accuracy",
            verdict=_verdict(found.low >= LINE_R2, found.high < LINE_R2),
            figure=f"R² {found}",
            seen=f"R² {found} over {found.n} standard models; a line is said to hold from "
            f"{LINE_R2:g}.",
            numbers={"r2": found},
        )


def _spoken(shift: str) -> str:
    return {"digits": "scikit-learn's digits", "rendered": "rendered digits", "usps": "USPS"}[shift]


def _interventions(study: Study, bed: Testbed) -> Iterator[Finding]:
    """taori2020, Section 4: interventions hardly help under natural shift."""
    table = bed.effective_robustness("digits").join(bed.models.select("model", "grid"), on="model")
    for grid, what in (("augmented", "augmentation"), ("pruned", "pruning")):
        own = table.filter(pl.col("grid") == grid)["effective"].drop_nulls().drop_nans().to_numpy()
        if len(own) < 2:
            continue
        rho = mean_of(own)
        yield Finding(
            paper="taori2020",
            claim=f"{what} brings no effective robustness under a natural shift",
            verdict=_verdict(rho.high < MARGIN and rho.low > -MARGIN, rho.low > 0),
            figure=f"mean ρ {rho.points}",
            seen=f"Mean ρ on scikit-learn's digits {rho.points} over {rho.n} models; within "
            f"±{100 * MARGIN:g} points would be none.",
            numbers={"rho": rho},
        )


def _synthetic(study: Study, bed: Testbed) -> Iterator[Finding]:
    """taori2020, Section 4.3, Table 2: ρ on synthetic shifts says little of ρ on natural ones."""
    judged = []
    for shift in bed.shifts:
        if shift.kind != "corruption":
            continue
        try:
            line = bed.fit(shift, bootstrap=0, on_boundary="drop")
        except InputError:
            continue
        judged.append(bed.judge(line).effective)
    natural = bed.judge(bed.fit("digits", bootstrap=0)).effective
    mean = np.mean(judged, axis=0)
    inside = np.isfinite(mean) & np.isfinite(natural)
    r, low, high, n = pearson(mean[inside], natural[inside], 0.95)
    found = Number(value=r, low=low, high=high, n=n)
    yield Finding(
        paper="taori2020",
        claim="robustness to corruptions says little of robustness to a natural shift",
        verdict=_verdict(found.high < WEAK, found.low > WEAK),
        figure=f"r {found}",
        seen=f"Pearson's r of mean ρ over {len(judged)} corruptions with ρ on scikit-learn's "
        f"digits: {found}, {n} models; below {WEAK:g} is little.",
        numbers={"r": found},
    )


def _tuning(study: Study, bed: Testbed) -> Iterator[Finding]:
    """andreassen2021, Section 3: ρ of pre-trained models, and that it vanishes at convergence.

    At which step a run's ρ is compared with its end is chosen on the other runs.
    """
    line = bed.fit("digits", bootstrap=0)
    table = bed.effective_robustness("digits").join(
        bed.models.select("model", "run", "step", "grid", "stage"), on="model"
    )
    tuned = table.filter((pl.col("grid") == "fine-tuned") & (pl.col("stage") == 1))
    runs = sorted(tuned["run"].unique().to_list())
    gained, lost, steps = [], [], []
    for run in runs:
        own = tuned.filter(pl.col("run") == run).sort("step")
        others = tuned.filter(pl.col("run") != run) if len(runs) > 1 else own
        means = others.group_by("step").agg(pl.col("effective").mean()).drop_nulls()
        steps.append(int(means.sort("effective", "step")["step"][-1]))
        peak = own.filter(pl.col("step") == steps[-1]).row(0, named=True)
        end = own.row(-1, named=True)
        gap = bed.difference(line, peak["model"], end["model"])
        gained.append(Number(value=peak["effective"], low=peak["low"], high=peak["high"], n=1))
        lost.append(Number(value=gap.effective, low=gap.low, high=gap.high, n=1))
    twins = table.filter(pl.col("grid") == "twins").sort("step").group_by("run").last()
    rest = mean_of(twins["effective"].to_numpy())
    said = "; ".join(
        f"{g.points} after {step} steps, {gap.points} of it lost by the end"
        for g, gap, step in zip(gained, lost, steps, strict=True)
    )
    if max(steps) == 0:
        said += ". It is largest before the first step and does not rise: the classes were known"
    yield Finding(
        paper="andreassen2021",
        claim="the effective robustness of a pre-trained model is lost in fine-tuning",
        verdict=_verdict(
            all(g.low > 0 for g in gained) and all(gap.low > 0 for gap in lost),
            all(gap.high <= 0 for gap in lost) or all(g.high <= 0 for g in gained),
        ),
        figure="lost " + " and ".join(gap.points for gap in lost),
        seen=f"ρ of {len(runs)} runs from a network that knew rendered digits: {said}. Their "
        f"twins from nothing end at {rest.points} ({rest.n} runs).",
        numbers={f"lost {i}": gap for i, gap in enumerate(lost, 1)} | {"twins": rest},
    )


def _two_sets(study: Study, bed: Testbed) -> Iterator[Finding]:
    """shi2023, Section 4: models trained on different data share a plane, not a line."""
    rows = np.flatnonzero(bed.fit_set(f"two-to-{study.third}"))
    x = np.column_stack([_on(bed, "mnist", rows), _on(bed, "digits", rows)])
    y = _on(bed, study.third, rows)
    inside = np.isfinite(x).all(axis=1) & np.isfinite(y)
    x, y, rows = x[inside], y[inside], rows[inside]

    def gain(i: NDArray[np.int64]) -> float:
        single = max(adjusted_r2(x[i][:, [k]], y[i]) for k in (0, 1))
        return adjusted_r2(x[i], y[i]) - single

    found = resampled(gain, len(y))
    single = [adjusted_r2(x[:, [k]], y) for k in (0, 1)]
    groups = _groups(study, bed, rows)
    yield Finding(
        paper="shi2023",
        claim="two ID sets place models trained on different data better than one",
        verdict=_verdict(found.low > 0, found.high < 0),
        figure=f"adjusted R² gains {found}",
        seen=f"Adjusted R² on {_spoken(study.third)}: {single[0]:.2f} by MNIST alone, "
        f"{single[1]:.2f} by scikit-learn's digits alone, {adjusted_r2(x, y):.2f} by both; gain "
        f"over the better one {found}, {found.n} models. {groups}",
        numbers={"gain": found},
    )


def _groups(study: Study, bed: Testbed, rows: NDArray[np.int64]) -> str:
    """Mean ρ by training data, with one ID set and with two."""
    data = np.array(bed.models["training_data"].to_list(), dtype=object)
    said = []
    for shift, words in ((f"mnist-to-{study.third}", "one"), (f"two-to-{study.third}", "two")):
        rho = bed.judge(bed.fit(shift, bootstrap=0, on_boundary="drop")).effective
        parts = []
        for name in ("mnist", "digits", "mnist+digits"):
            own = rho[rows][data[rows] == name]
            if len(own) > 1:
                parts.append(f"{name} {mean_of(own).points}")
        said.append(f"mean ρ with {words}: {', '.join(parts)}")
    return "By training data, " + "; ".join(said) + "."


def _probes(study: Study, bed: Testbed) -> Iterator[Finding]:
    """fridovich2022, Section 5: probes against ID accuracy as predictors of OOD accuracy."""
    settings = [s.target for s in bed.shifts if s.kind == "corruption"]
    mean = np.mean([bed.accuracy(s) for s in settings], axis=0)
    probes = [s for s in bed.metrics if s.startswith("mnist:") and "jacobian" not in s]
    columns = np.column_stack([bed.accuracy(s) for s in probes])
    clean = bed.accuracy("mnist")
    inside = np.isfinite(columns).all(axis=1) & np.isfinite(mean) & (clean < 1) & (mean < 1)
    y, x = PROBIT.forward(mean[inside]), PROBIT.forward(clean[inside])[:, None]
    columns = columns[inside]

    def best(i: NDArray[np.int64]) -> tuple[int, float]:
        each = [r2(columns[i][:, [k]], y[i]) for k in range(len(probes))]
        return int(np.nanargmax(each)), float(np.nanmax(each))

    gain = resampled(lambda i: best(i)[1] - r2(x[i], y[i]), len(y), draws=500)
    name, value = best(np.arange(len(y)))
    yield Finding(
        paper="fridovich2022",
        claim="a spectral probe predicts accuracy under corruption better than ID accuracy",
        verdict=_verdict(gain.low > 0, gain.high < 0),
        figure=f"R² gains {gain}",
        seen=f"R² for the mean over {len(settings)} corruptions: {r2(x, y):.2f} by ID accuracy, "
        f"{value:.2f} by the best probe ({probes[name].removeprefix('mnist:')}); difference "
        f"{gain}, {gain.n} models.",
        numbers={"gain": gain},
    )


def _predictors(study: Study, bed: Testbed) -> Iterator[Finding]:
    """wenzel2022, Section 4.2: accuracy is the best single ID predictor of OOD accuracy."""
    rows = np.flatnonzero(bed.fit_set("digits"))
    names = [bed.model_names[i] for i in rows]
    table = scores(PredictionStore(study.store), metrics=["nll", "ece"], settings=["mnist"])
    other = {}
    for metric in ("nll", "ece"):
        some = table.filter(pl.col("metric") == metric).select("model", "value")
        known = dict(some.iter_rows())
        other[metric] = -np.array([known.get(name, np.nan) for name in names])
    clean, ood = bed.accuracy("mnist")[rows], bed.accuracy("digits")[rows]
    inside = np.isfinite(clean) & np.isfinite(ood)
    inside &= np.isfinite(other["nll"]) & np.isfinite(other["ece"])
    clean, ood = clean[inside], ood[inside]
    other = {name: values[inside] for name, values in other.items()}

    def lead(i: NDArray[np.int64]) -> float:
        rest = max(spearman(values[i], ood[i]) for values in other.values())
        return spearman(clean[i], ood[i]) - rest

    found = resampled(lead, len(ood))
    own = resampled(lambda i: spearman(clean[i], ood[i]), len(ood))
    rest_said = ", ".join(f"{name} {spearman(values, ood):.2f}" for name, values in other.items())
    yield Finding(
        paper="wenzel2022",
        claim="accuracy predicts the order of models under shift better than likelihood and "
        "calibration do",
        verdict=_verdict(found.low > 0, found.high < 0),
        figure=f"rank correlation leads by {found}",
        seen=f"Spearman's ρ with accuracy on scikit-learn's digits: accuracy {own}, {rest_said}; "
        f"lead over the better of these {found}, {found.n} models.",
        numbers={"lead": found, "accuracy": own},
    )


def _adversarial(study: Study, bed: Testbed) -> Iterator[Finding]:
    """wenzel2022, Section 4.3: adversarial and OOD robustness are different things."""
    attacked = [s.target for s in bed.shifts if s.kind == "adversarial"]
    mean = np.mean([bed.accuracy(s) for s in attacked], axis=0)
    natural = bed.judge(bed.fit("digits", bootstrap=0)).effective
    inside = np.isfinite(mean) & np.isfinite(natural)
    if inside.sum() < 5:
        return
    x, y = mean[inside], natural[inside]
    found = resampled(lambda i: spearman(x[i], y[i]), len(y))
    without = int((np.isfinite(natural) & ~inside).sum())
    yield Finding(
        paper="wenzel2022",
        claim="accuracy under attack says little of robustness to a natural shift",
        verdict=_verdict(found.high < WEAK and found.low > -WEAK, abs(found.value) > WEAK
                         and (found.low > WEAK or found.high < -WEAK)),
        figure=f"rank correlation {found}",
        seen=f"Spearman's ρ of accuracy under PGD and APGD with effective robustness on "
        f"scikit-learn's digits: {found}, {found.n} models ({without} have no gradient or were "
        f"not attacked); within ±{WEAK:g} is little.",
        numbers={"rank correlation": found},
    )  # fmt: skip
