"""How alike models answer: ``similarity``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import benjamini_hochberg, clopper_pearson
from shiftbed.analysis.joint_counts import Triplets, triplets
from shiftbed.analysis.similarity import (
    MeanDominance,
    Similarity,
    holm,
    mcnemar,
    mean_dominance,
)
from shiftbed.display import Row, Table, number, p_value, percent, points, records
from shiftbed.errors import InputError
from shiftbed.places import url_of
from shiftbed.results.charts import Charted
from shiftbed.results.hard_examples import difficulty_table, unsolved_tables
from shiftbed.results.joint_answers import JointAnswers, Source, matched, open_answers
from shiftbed.results.pair_counts import pair_counts

if TYPE_CHECKING:
    from shiftbed.figures.charts import Panels


def similarity(
    source: Source,
    *,
    setting: str | None = None,
    model: Sequence[str] | None = None,
    pairs: bool = False,
    unsolved: bool = False,
    baseline: Sequence[str] | None = None,
    difficulty: bool = False,
    group: Mapping[str, str] | None = None,
    triplets: Source | None = None,
    cone: float | None = None,
    most: int = 20,
    level: float = 0.95,
) -> "ModelSimilarity":
    """Dominance, agreement and error consistency of every two models on the same examples.

    ``source`` is a .npz file of predictions, a prediction store, or a testbed with results per
    image. ``unsolved`` adds the examples that no ``baseline`` model (names or patterns, default
    all) gets right, and who does; ``difficulty`` whether groups of models (name → pattern, default
    the less and the more accurate half) find the same examples hard; ``triplets`` the closeness of
    pattern probabilities to those on another file or setting, judged by a ``cone`` (default 2).
    Tables show ``most`` rows, and every pair if ``pairs``.
    """
    if baseline and not unsolved:
        raise InputError("--baseline goes with --unsolved")
    if group and not difficulty:
        raise InputError("--group goes with --difficulty")
    if cone is not None and triplets is None:
        raise InputError("--cone goes with --triplets")
    answers = open_answers(source, setting, classes=False, models=model)
    right = answers.judged()
    counts = pair_counts(answers)
    by_model = model_table(answers.models, counts, level)
    further: dict[str, tuple[str, pl.DataFrame]] = {}
    if unsolved:
        further |= unsolved_tables(answers, baseline, level)
    if difficulty:
        title = "Difficulty (share of models right): Spearman's ρ between groups"
        further["difficulty"] = title, difficulty_table(answers, group, level)
    closeness = None
    if triplets is not None:
        closeness = _closeness(answers, source, triplets, 2.0 if cone is None else cone, level)
    mean = mean_dominance(counts, right, level)
    return ModelSimilarity(
        frame=pair_table(answers.models, counts, level),
        notes=tuple(_remarks(answers, counts, mean, level)),
        called=answers.called,
        setting=answers.setting,
        models=answers.models,
        counts=counts,
        mean=mean,
        by_model=by_model,
        further=further,
        closeness=closeness,
        every_pair=pairs,
        most=most,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Closeness:
    """Pattern probabilities of all triplets of models, ID against OOD."""

    source: str
    target: str
    triplets: Triplets

    @property
    def reading(self) -> str:
        found = self.triplets
        widest = found.factor_for(0.998)
        return (
            f"Triplets, {self.source} against {self.target}: {found.inside:,} of "
            f"{found.events:,} pattern probabilities of {found.triplets:,} triplets lie in the "
            f"cone p/{found.factor:g} ≤ q ≤ {found.factor:g}·p "
            f"({100 * found.share_inside:.4g} %); {found.clearly_outside:,} lie outside beyond "
            f"image noise ({100 * found.level:g} % each). "
            + (
                "No cone holds 99.8 %: some patterns occur on one side only."
                if math.isinf(widest)
                else f"99.8 % lie in the cone of factor {widest:.3g}."
            )
        )

    def to_dict(self) -> dict[str, Any]:
        found = self.triplets
        as_they_are = ("inside", "share_inside", "clearly_outside", "n_id", "n_ood")
        return {
            "id": self.source,
            "ood": self.target,
            "models": found.models,
            "triplets": found.triplets,
            "events": found.events,
            "cone": found.factor,
            **{name: getattr(found, name) for name in as_they_are},
            "inside_by_right": found.by_pattern.tolist(),
            "cone_for_95_percent": found.factor_for(0.95),
            "cone_for_99.8_percent": found.factor_for(0.998),
            "no_interval": "events of triplets share models and examples",
            "reading": self.reading,
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelSimilarity(Charted):
    """How alike the models of a setting answer; ``frame`` has a row per pair of models."""

    json_keys = (
        "setting models counts.n counts.accuracy counts.dominance counts.agreement "
        "counts.agreement_on_correctness counts.kappa notes"
    )
    setting: str
    models: tuple[str, ...]
    counts: Similarity
    """Dominance, agreement and κ as (M, M) arrays."""
    mean: MeanDominance
    by_model: pl.DataFrame
    further: Mapping[str, tuple[str, pl.DataFrame]]
    """Titles and tables of unsolved examples (also by class) and of difficulty, if asked for."""
    closeness: Closeness | None
    every_pair: bool
    most: int

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "mean_dominance": vars(self.mean) | {"ratio": self.mean.ratio},
            **({"pairs": records(self.frame)} if self.every_pair else {}),
            **{name: records(frame) for name, (_, frame) in self.further.items()},
            **({} if self.closeness is None else {"triplets": self.closeness.to_dict()}),
        }

    def answer(self) -> Iterable[str]:
        mean = self.mean
        far = (
            f", {100 * mean.ratio:.0f} % of what models that err independently would have"
            if mean.independent > 0
            else ""
        )
        yield (
            f"The less accurate of two models is right where the other is wrong on "
            f"{percent(mean.value)} % of examples (mean dominance{far})."
        )

    def tables(self) -> Iterable[Table]:
        size = len(self.by_model)
        more = [f"The {self.most} most accurate of {size} models; -n shows more."]
        yield Table.of(
            f"{self.setting}: similarity of {size} models on {self.counts.n:,} examples (%)",
            self.by_model.head(self.most),
            {
                "model": "model",
                "accuracy": ("accuracy", percent),
                "dominance": ("mean_dominance", percent),
                "largest": ("largest_dominance", percent),
                "÷ indep.": ("dominance_to_independent", lambda value: number(value, 2)),
                "agreement": ("mean_agreement", percent),
                "κ": ("mean_kappa", lambda value: number(value, 3)),
            },
            notes=[*(more if size > self.most else []), *self.notes],
        )
        if self.every_pair or size == 2:
            yield self._pairs()
        for title, frame in self.further.values():
            yield _plain(title, frame, self.most)
        if self.closeness is not None:
            yield Table(notes=(self.closeness.reading,))

    def _pairs(self) -> Table:
        shown = self.frame.sort("dominance", descending=True).head(self.most)

        def dominance(row: Row) -> str:
            low, high = percent(row["dominance_low"]), percent(row["dominance_high"])
            return f"{percent(row['dominance'])} [{low}, {high}]"

        return Table.of(
            "Pairs, the largest dominance first; McNemar's exact test",
            shown,
            {
                "more accurate": "model_a",
                "less accurate": "model_b",
                "Δ": ("difference", points),
                "dominance": dominance,
                "agreement": ("agreement", percent),
                "κ": ("kappa", lambda value: number(value, 3)),
                "p": ("p_value", p_value),
                "Holm": ("p_holm", p_value),
                "BH q": ("q_value", p_value),
            },
            notes=[f"{len(shown)} of {len(self.frame)} pairs."] if len(self.frame) > 1 else [],
            left=2,
        )

    def chart(self) -> "Panels":
        """Dominance as a map and against the difference of accuracy, and the triplets."""
        from shiftbed.figures.charts import Panels
        from shiftbed.results.charts.similarity import (
            dominance_against_difference,
            dominance_map,
            triplet_chart,
        )

        charts: list[Any] = [
            dominance_map(self.models, self.counts),
            dominance_against_difference(self.models, self.counts),
        ]
        if self.closeness is not None:
            near = self.closeness
            charts.append(triplet_chart(near.triplets, near.source, near.target))
        return Panels(
            title=f"Similarity of models on {self.setting}",
            reading=" ".join(chart.reading for chart in charts),
            notes=tuple(note for chart in charts for note in chart.notes),
            citation=charts[0].citation,
            panels=tuple(charts),
        )


def _plain(title: str, frame: pl.DataFrame, most: int) -> Table:
    """Any table: its text columns to the left, numbers to four digits, long texts cut."""

    def text(value: Any) -> str:
        found = number(value, 4) if isinstance(value, float) else str(value)
        return found if len(found) <= 60 else found[:57] + "…"

    columns = {name: (name, lambda v: "" if v is None else text(v)) for name in frame.columns}
    left = [kind == pl.String for kind in frame.dtypes].index(False) or 1
    more = [f"{most} of {len(frame)} rows; -n shows more."] if len(frame) > most else []
    return Table.of(title, frame.head(most), columns, notes=more, left=left)


def _remarks(
    answers: JointAnswers, counts: Similarity, mean: MeanDominance, level: float
) -> Iterable[str]:
    yield (
        f"Mean dominance of {mean.pairs:,} pairs: {percent(mean.value)} % "
        f"({100 * level:g} % interval {percent(mean.low)} … {percent(mean.high)} over "
        f"{mean.n:,} examples), at most {percent(mean.largest)} %."
    )
    if mean.independent > 0:
        yield (
            f"Models of these accuracies that err independently would have "
            f"{percent(mean.independent)} %: it is {100 * mean.ratio:.0f} % of that."
        )
    if counts.agreement is None:
        yield "No agreement on classes: only right and wrong are kept here."
    if np.isnan(counts.kappa).any():
        yield "κ is undefined (null) for models that are right, or wrong, on every example."
    if answers.left_out:
        yield f"{answers.left_out} examples left out: unlabelled, or not read by every model."


def _closeness(
    answers: JointAnswers, source: Source, other: Source, cone: float, level: float
) -> Closeness:
    """The triplets against another file or, if there is no such file, another setting."""
    name = str(other)
    setting = isinstance(other, str) and not (
        url_of(name) is not None or Path(name).exists() or name.endswith(".npz")
    )
    ood = open_answers(*((source, name) if setting else (other, None)), classes=False)
    first, second = matched(answers, ood)
    found = triplets(first.judged(), second.judged(), factor=cone, level=level)
    return Closeness(source=first.setting, target=second.setting, triplets=found)


def pair_table(models: Sequence[str], found: Similarity, level: float = 0.95) -> pl.DataFrame:
    """A row per pair: ``model_a`` is the more accurate (the first, if equal), then ``model_b``.

    accuracy_a, accuracy_b, difference with its interval, dominance (b right, a wrong) with its
    interval and what independent errors would give, agreement on classes and on correctness, κ
    with its interval, McNemar's exact p, Holm's p and Benjamini–Hochberg's q over the pairs, n,
    note.
    """
    m = len(models)
    if m < 2:
        raise InputError(f"similarity needs at least two models, got {m}")
    i, j = np.triu_indices(m, 1)
    swap = found.right[j] > found.right[i]
    a, b = np.where(swap, j, i), np.where(swap, i, j)
    test = mcnemar(found.only[a, b], found.only[b, a], found.n, level)
    low, high = clopper_pearson(found.dominance[a, b], found.n, level)
    kappa = found.kappa[a, b]
    kappa_low, kappa_high = (end[a, b] for end in found.kappa_interval(level))
    names = np.array(list(models), dtype=object)
    columns = {
        "model_a": names[a].tolist(),
        "model_b": names[b].tolist(),
        "accuracy_a": found.accuracy[a],
        "accuracy_b": found.accuracy[b],
        "difference": test.difference,
        "difference_low": test.low,
        "difference_high": test.high,
        "dominance": found.dominance[a, b],
        "dominance_low": low,
        "dominance_high": high,
        "dominance_if_independent": found.independent_dominance[a, b],
        "agreement": np.full(len(a), np.nan) if found.agreement is None else found.agreement[a, b],
        "agreement_on_correctness": found.agreement_on_correctness[a, b],
        "kappa": kappa,
        "kappa_low": kappa_low,
        "kappa_high": kappa_high,
        "p_value": test.p_value,
        "p_holm": holm(test.p_value),
        "q_value": benjamini_hochberg(test.p_value),
        "n": np.full(len(a), found.n),
        "note": _notes(found, kappa, kappa_low),
    }
    return pl.DataFrame(columns, nan_to_null=True)


def _notes(found: Similarity, kappa: NDArray[np.float64], low: NDArray[np.float64]) -> list[str]:
    always = "κ undefined: both are right (or wrong) on every example"
    same = "κ has no interval: its standard error is 0"
    no_class = "" if found.same is not None else "no agreement on classes: only right and wrong"
    notes = np.where(np.isnan(kappa), always, np.where(np.isnan(low), same, ""))
    return ["; ".join(filter(None, [str(one), no_class])) for one in notes]


def model_table(models: Sequence[str], found: Similarity, level: float = 0.95) -> pl.DataFrame:
    """A row per model, the most accurate first: accuracy and its means over all other models."""
    m = len(models)
    if m < 2:
        raise InputError(f"similarity needs at least two models, got {m}")
    others = ~np.eye(m, dtype=bool)

    def mean(matrix: NDArray[np.float64] | None) -> NDArray[np.float64]:
        if matrix is None:
            return np.full(m, np.nan)
        there = others & np.isfinite(matrix)
        count = there.sum(axis=1)
        total = np.where(there, matrix, 0.0).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    low, high = clopper_pearson(found.accuracy, found.n, level)
    independent = mean(found.independent_dominance)
    dominance = mean(found.dominance)
    ratio = np.full(m, np.nan)
    np.divide(dominance, independent, out=ratio, where=independent > 0)
    frame = pl.DataFrame(
        {
            "model": list(models),
            "accuracy": found.accuracy,
            "low": low,
            "high": high,
            "mean_dominance": dominance,
            "largest_dominance": found.dominance.max(axis=1),
            "dominance_to_independent": ratio,
            "mean_agreement": mean(found.agreement),
            "mean_kappa": mean(found.kappa),
            "n": np.full(m, found.n),
        },
        nan_to_null=True,
    )
    return frame.sort("accuracy", "model", descending=[True, False])
