"""Charts of how alike models answer, and of accuracies estimated without labels."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from shiftbed.analysis.joint_counts import Triplets
from shiftbed.analysis.similarity import Similarity
from shiftbed.figures.charts import Dots, Heatmap, Reference

_EQUAL = Reference(name="y = x", slope=1.0)
_MOST = 2500
"""Points drawn at most; more hide each other."""


def dominance_map(models: Sequence[str], found: Similarity) -> Heatmap:
    """The mirrored matrix of dominance, models in the order of their accuracy."""
    order = np.argsort(found.right, kind="stable")
    names = tuple(models[int(i)] for i in order)
    values = found.dominance[np.ix_(order, order)].copy()
    np.fill_diagonal(values, np.nan)
    return Heatmap(
        title="Dominance probability",
        reading="Share of examples that the less accurate of two models gets right and the more "
        "accurate one wrong; models are sorted by accuracy, the most accurate last.",
        rows=names,
        columns=names,
        values=values,
        value_title="dominance probability",
        digits=2,
        low=0.0,
        notes=(f"n = {found.n:,} examples; mirrored, so rows and columns read alike.",),
        citation="Andreassen et al. 2021, Figures 5 and 21",
    )


def dominance_against_difference(models: Sequence[str], found: Similarity, seed: int = 0) -> Dots:
    """Dominance of each pair against its difference of accuracy."""
    i, j = np.triu_indices(len(models), 1)
    notes = [f"n = {found.n:,} examples, {len(i):,} pairs."]
    if len(i) > _MOST:
        keep = np.sort(np.random.default_rng(seed).choice(len(i), _MOST, replace=False))
        i, j = i[keep], j[keep]
        notes.append(f"{_MOST:,} of them, drawn at random, are shown.")
    accuracy = found.accuracy
    measured, chance = found.dominance[i, j], found.independent_dominance[i, j]
    difference = 100 * np.abs(accuracy[i] - accuracy[j])
    names = tuple(
        f"{models[a]} and {models[b]}" for a, b in zip(i.tolist(), j.tolist(), strict=True)
    )
    return Dots(
        title="Dominance against difference of accuracy",
        reading="Where models share a notion of difficulty, dominance lies far below that of "
        "models that err independently.",
        x_title="difference of accuracy (points)",
        y_title="dominance probability",
        names=names + names,
        x=np.concatenate([difference, difference]),
        y=np.concatenate([measured, chance]),
        groups=("measured",) * len(i) + ("if errors were independent",) * len(i),
        notes=tuple(notes),
        citation="Andreassen et al. 2021, Figure 5",
    )


def triplet_chart(found: Triplets, source: str, target: str) -> Dots:
    """Pattern probabilities of triplets, ID against OOD, with the cone."""
    names = tuple(f"{right} of three right" for right in found.sample_right.tolist())
    return Dots(
        title="Triplet probabilities",
        reading=f"{100 * found.share_inside:.2f} % of {found.events:,} events lie in the cone "
        f"p/{found.factor:g} ≤ q ≤ {found.factor:g}·p.",
        x_title=f"probability on {source}",
        y_title=f"probability on {target}",
        names=names,
        x=found.sample_id,
        y=found.sample_ood,
        groups=names,
        lines=(
            _EQUAL,
            Reference(name=f"y = {found.factor:g}x", slope=found.factor),
            Reference(name=f"y = x/{found.factor:g}", slope=1 / found.factor),
        ),
        notes=(
            f"{len(names):,} events drawn at random; n = {found.n_id:,} and {found.n_ood:,}.",
            "The cone's original definition could not be checked; this one is stated here.",
        ),
        citation="Andreassen et al. 2021, Figure 20",
    )


def estimates_chart(estimates: pl.DataFrame, source: str, target: str) -> Dots:
    """Estimates of OOD accuracy against the truth, or against ID accuracy where there is none."""
    shown = estimates.filter(pl.col("estimate").is_not_null())
    judged = shown["truth"].null_count() == 0
    against = shown["truth" if judged else "id_accuracy"].to_numpy() * 100
    value = shown["estimate"].to_numpy() * 100
    ends = [shown[end].fill_null(np.nan).to_numpy() * 100 for end in ("low", "high")]
    what = "measured accuracy" if judged else "accuracy"
    return Dots(
        title=f"Estimated accuracy on {target}",
        reading="On the diagonal the estimate is exact."
        if judged
        else "There are no labels to judge the estimates by.",
        x_title=f"{what} on {target if judged else source} (%)",
        y_title="estimated accuracy (%)",
        names=tuple(shown["model"].to_list()),
        x=against,
        y=value,
        groups=tuple(shown["method"].to_list()),
        y_low=ends[0],
        y_high=ends[1],
        lines=(_EQUAL,),
        notes=("Intervals cover noise of images and of the line, not a wrong premise.",),
        citation="Baek et al. 2022; Garg et al. 2022; Guillory et al. 2021",
    )


def made_chart(found: pl.DataFrame, source: str, target: str) -> Dots:
    """ρ of mixed classifiers or ensembles against their ID accuracy."""
    return Dots(
        title="Effective robustness of made classifiers",
        reading="A chord leaves the curved line of the baseline, so mixing alone gives some ρ.",
        x_title=f"accuracy on {source} (%)",
        y_title=f"effective robustness on {target} (points)",
        names=tuple(found["classifier"].to_list()),
        x=found["id_accuracy"].to_numpy() * 100,
        y=found["effective"].to_numpy() * 100,
        y_low=found["low"].fill_null(np.nan).to_numpy() * 100,
        y_high=found["high"].fill_null(np.nan).to_numpy() * 100,
        lines=(Reference(name="the line", fitted=True),),
        notes=(f"n = {found['n_id'][0]:,} and {found['n_ood'][0]:,} images.",),
        citation="Andreassen et al. 2021, Appendix D.1",
    )
