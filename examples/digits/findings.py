"""Which of the papers' findings hold here: each with its numbers, and a verdict by a stated rule.

Each finding is tested both ways: that it holds, and that it does not, each beyond its margin. The
smaller p-value is doubled and corrected for the number of findings (Holm), so that the chance of
any wrong verdict is 5 %; what is not decided is inconclusive. A best one among several is chosen on
other models than it is judged on, or has to be better than each; runs are resampled, not
checkpoints; and nothing is decided by a line that is not trusted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from examples.digits.numbers import (
    Number,
    adjusted_r2,
    holm,
    mean_of,
    nested_gain,
    r2,
    resampled,
    spearman,
)
from examples.digits.study import Study
from shiftbed.errors import InputError
from shiftbed.results.scores import scores
from shiftbed.scales import LOGIT, PROBIT
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, open_testbed

__all__ = ["HOLDS", "NOT", "UNKNOWN", "Finding", "findings", "opening"]

HOLDS, NOT, UNKNOWN = "holds", "does not hold", "inconclusive"
Floats = NDArray[np.float64]
ALPHA = 0.05
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
    p_holds: float
    """p-value of the opposite: small if the finding holds."""
    p_fails: float
    figure: str
    """Its main number with the interval, in a few words."""
    seen: str
    numbers: dict[str, Number] = field(default_factory=dict)
    limits: tuple[float, ...] = ()
    """What its first number is compared with."""
    distrusted: tuple[str, ...] = ()
    """Why the line it needs is not trusted."""
    verdict: str = UNKNOWN
    p_value: float = 1.0
    """Of the verdict: two-sided, corrected for the number of findings."""


def findings(study: Study) -> list[Finding]:
    """All of them, in the order of the papers."""
    bed = open_testbed(study.store)
    found: list[Finding] = []
    for make in (_lines, _interventions, _synthetic, _tuning, _two_sets, _probes, _predictors,
                 _adversarial):  # fmt: skip
        found += make(study, bed)
    return judged(found)


def judged(found: list[Finding]) -> list[Finding]:
    """The findings with their verdicts."""
    p = [1.0 if f.distrusted else min(1.0, 2 * min(f.p_holds, f.p_fails)) for f in found]
    out = []
    for one, adjusted in zip(found, holm(p), strict=True):
        says = HOLDS if one.p_holds < one.p_fails else NOT
        verdict = says if adjusted <= ALPHA else UNKNOWN
        why = f" The line is not trusted: {'; '.join(one.distrusted)}." if one.distrusted else ""
        if verdict == UNKNOWN and one.limits:
            enough = next(iter(one.numbers.values())).needed(*one.limits, alpha=ALPHA / len(found))
            why += f" About {enough:,} models would decide it." if enough else ""
        out.append(replace(one, verdict=verdict, p_value=adjusted, seen=one.seen + why))
    return out


def distrust(bed: Testbed, shift: str) -> tuple[str, ...]:
    """Why the line of a shift should not be used; nothing if it may be."""
    try:
        return bed.trust(bed.fit(shift, bootstrap=0, on_boundary="drop")).reasons
    except InputError as error:
        return (str(error),)


def _runs(bed: Testbed, rows: NDArray[np.int64]) -> list[str]:
    """The run of each model; a model without one is by itself."""
    names = bed.model_names
    runs = bed.models["run"].to_list() if "run" in bed.models.columns else [None] * len(names)
    return [str(runs[i] or names[i]) for i in rows]


def within(number: Number, margin: float) -> tuple[float, float]:
    """p-values that it lies within ± the margin, and that it lies beyond on either side."""
    return (
        max(number.below(margin), number.above(-margin)),
        min(1.0, 2 * min(number.above(margin), number.below(-margin))),
    )


def opening(study: Study, found: list[Finding]) -> list[str]:
    """The report's first paragraph, and a table of the findings."""
    bed = open_testbed(study.store)
    runs = bed.models["model"].str.replace(r"@\d+$", "").n_unique()
    first = (
        f"Handwritten digits, {study.size} study: {runs} models ({len(bed.models)} with the steps "
        f"of fine-tuning) on {len(study.natural)} domains, {len(bed.settings)} settings in all. "
        "Of the papers' findings, with intervals at 95 % and verdicts that are all right with 95 % "
        "confidence, "
    )
    parts = []
    for verdict in (HOLDS, NOT, UNKNOWN):
        count = sum(one.verdict == verdict for one in found)
        if count:
            many = {HOLDS: "hold", NOT: "do not hold"}.get(verdict, verdict)
            if verdict == UNKNOWN and study.size == "quick":
                parts.append(
                    f"{count} are not decided at this size, which is for trying things out"
                )
                continue
            parts.append(f"{count} {verdict if count == 1 else many}")
    cells = [("Verdict", "Finding", "Paper", "What was seen")]
    cells += [(one.verdict, one.claim, f"{one.paper}, {one.figure}", one.seen) for one in found]
    table = "\n".join("| " + " | ".join(c.replace("|", "/") for c in row) + " |" for row in cells)
    return [first + ", ".join(parts) + ".", table]


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
        units = _runs(bed, rows[inside])
        found = resampled(lambda i, x=x, y=y: r2(x[i], y[i]), len(y), units=units)  # type: ignore[misc]
        yield Finding(
            paper="taori2020",
            claim=f"accuracy on {_spoken(shift)} is a line in MNIST accuracy",
            p_holds=found.above(LINE_R2),
            p_fails=found.below(LINE_R2),
            figure=f"R² {found}",
            seen=f"R² {found} over {found.n} standard models; a line is said to hold from "
            f"{LINE_R2:g}.",
            numbers={"r2": found},
            limits=(LINE_R2,),
        )


def _spoken(shift: str) -> str:
    return {"digits": "scikit-learn's digits", "rendered": "rendered digits", "usps": "USPS"}[shift]


def _interventions(study: Study, bed: Testbed) -> Iterator[Finding]:
    """taori2020, Section 4: interventions hardly help under natural shift."""
    table = bed.effective_robustness("digits").join(bed.models.select("model", "grid"), on="model")
    for grid, what in (("augmented", "augmentation"), ("pruned", "pruning")):
        mine = table.filter(pl.col("grid") == grid).drop_nulls("effective").drop_nans("effective")
        own = mine["effective"].to_numpy()
        if len(own) < 2:
            continue
        rho = mean_of(own)
        p_holds, p_fails = within(rho, MARGIN)
        yield Finding(
            paper="taori2020",
            claim=f"{what} brings no effective robustness under a natural shift",
            p_holds=p_holds,
            p_fails=p_fails,
            distrusted=distrust(bed, "digits"),
            figure=f"mean ρ {rho.points}",
            seen=f"Mean ρ on scikit-learn's digits {rho.points} over {rho.n} models; within "
            f"±{100 * MARGIN:g} points would be none.",
            numbers={"rho": rho},
            limits=(-MARGIN, MARGIN),
        )


def _synthetic(study: Study, bed: Testbed) -> Iterator[Finding]:
    """taori2020, Section 4.3, Table 2: ρ on synthetic shifts says little of ρ on natural ones."""
    judged = []
    for shift in bed.shifts:
        if shift.kind != "corruption" or shift.target in bed.derived:
            continue
        try:
            line = bed.fit(shift, bootstrap=0, on_boundary="drop")
        except InputError:
            continue
        judged.append(bed.judge(line).effective)
    natural = bed.judge(bed.fit("digits", bootstrap=0)).effective
    mean = np.mean(judged, axis=0)
    inside = np.isfinite(mean) & np.isfinite(natural)
    x, y = mean[inside], natural[inside]
    units = _runs(bed, np.flatnonzero(inside))
    found = resampled(lambda i: float(np.corrcoef(x[i], y[i])[0, 1]), len(y), units=units)
    p_holds, p_fails = within(found, WEAK)
    yield Finding(
        paper="taori2020",
        claim="robustness to corruptions says little of robustness to a natural shift",
        p_holds=p_holds,
        p_fails=p_fails,
        distrusted=distrust(bed, "digits"),
        figure=f"r {found}",
        seen=f"Pearson's r of mean ρ over {len(judged)} corruptions with ρ on scikit-learn's "
        f"digits: {found}, {found.n} models; within ±{WEAK:g} is little.",
        numbers={"r": found},
        limits=(-WEAK, WEAK),
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
        p_holds=max(n.above(0.0) for n in (*gained, *lost)),
        p_fails=min(max(g.below(0.0) for g in gained), max(gap.below(0.0) for gap in lost)),
        distrusted=distrust(bed, "digits"),
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

    def gain(k: int) -> Number:
        def over(i: NDArray[np.int64]) -> float:
            return adjusted_r2(x[i], y[i]) - adjusted_r2(x[i][:, [k]], y[i])

        return resampled(over, len(y), units=_runs(bed, rows))

    gains = [gain(k) for k in (0, 1)]
    found = min(gains, key=lambda one: one.value)
    single = [adjusted_r2(x[:, [k]], y) for k in (0, 1)]
    groups = _groups(study, bed, rows)
    yield Finding(
        paper="shi2023",
        claim="two ID sets place models trained on different data better than one",
        p_holds=max(one.above(0.0) for one in gains),  # better than each
        p_fails=min(1.0, 2 * min(one.below(0.0) for one in gains)),
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
    corrupted = [s.target for s in bed.shifts if s.kind == "corruption"]
    settings = [one for one in corrupted if one not in bed.derived]
    mean = np.mean([bed.accuracy(s) for s in settings], axis=0)
    probes = [s for s in bed.metrics if s.startswith("mnist:") and "jacobian" not in s]
    columns = np.column_stack([bed.accuracy(s) for s in probes])
    clean = bed.accuracy("mnist")
    inside = np.isfinite(columns).all(axis=1) & np.isfinite(mean) & (clean < 1) & (mean < 1)
    y, x = PROBIT.forward(mean[inside]), PROBIT.forward(clean[inside])[:, None]
    columns = columns[inside]

    units = _runs(bed, np.flatnonzero(inside))
    gain, chosen = nested_gain(columns, x[:, 0], y, units)
    name, often = Counter(chosen).most_common(1)[0]
    value = r2(columns[:, [name]], y)
    yield Finding(
        paper="fridovich2022",
        claim="a spectral probe predicts accuracy under corruption better than ID accuracy",
        p_holds=gain.above(0.0),
        p_fails=gain.below(0.0),
        figure=f"R² gains {gain}",
        seen=f"R² for the mean over {len(settings)} corruptions: {r2(x, y):.2f} by ID accuracy, "
        f"{value:.2f} by the probe chosen in {often} of {len(chosen)} folds "
        f"({probes[name].removeprefix('mnist:')}); gain on models that it was not chosen on "
        f"{gain}, {gain.n} runs.",
        numbers={"gain": gain},
        limits=(0.0,),
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

    units = _runs(bed, rows[inside])

    def lead(values: Floats) -> Number:
        def over(i: NDArray[np.int64]) -> float:
            return spearman(clean[i], ood[i]) - spearman(values[i], ood[i])

        return resampled(over, len(ood), units=units)

    leads = [lead(values) for values in other.values()]
    found = min(leads, key=lambda one: one.value)
    own = resampled(lambda i: spearman(clean[i], ood[i]), len(ood), units=units)
    rest_said = ", ".join(f"{name} {spearman(values, ood):.2f}" for name, values in other.items())
    yield Finding(
        paper="wenzel2022",
        claim="accuracy predicts the order of models under shift better than likelihood and "
        "calibration do",
        p_holds=max(one.above(0.0) for one in leads),  # better than each
        p_fails=min(1.0, 2 * min(one.below(0.0) for one in leads)),
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
    units = _runs(bed, np.flatnonzero(inside))
    found = resampled(lambda i: spearman(x[i], y[i]), len(y), units=units)
    p_holds, p_fails = within(found, WEAK)
    without = int((np.isfinite(natural) & ~inside).sum())
    yield Finding(
        paper="wenzel2022",
        claim="accuracy under attack says little of robustness to a natural shift",
        p_holds=p_holds,
        p_fails=p_fails,
        distrusted=distrust(bed, "digits"),
        figure=f"rank correlation {found}",
        seen=f"Spearman's ρ of accuracy under PGD and APGD with effective robustness on "
        f"scikit-learn's digits: {found}, {found.n} models ({without} have no gradient or were "
        f"not attacked); within ±{WEAK:g} is little.",
        numbers={"rank correlation": found},
    )  # fmt: skip
