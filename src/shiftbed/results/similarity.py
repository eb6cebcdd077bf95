"""How alike the models of a setting answer, as finished tables."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import benjamini_hochberg, clopper_pearson
from shiftbed.analysis.similarity import Similarity, Unsolved, holm, mcnemar, rank_agreement
from shiftbed.errors import InputError
from shiftbed.results.answers import JointAnswers


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


def unsolved_table(
    answers: JointAnswers, found: Unsolved, baseline: NDArray[np.bool_]
) -> pl.DataFrame:
    """Who solves what no (other) baseline model does: model, in_baseline, solved, share …, n."""
    frame = pl.DataFrame(
        {
            "model": list(answers.models),
            "in_baseline": baseline,
            "solved": found.solved,
            "share": found.share,
            "low": found.low,
            "high": found.high,
            "n": found.out_of,
        },
        nan_to_null=True,
    )
    return frame.sort("share", "model", descending=[True, False], nulls_last=True)


def class_table(answers: JointAnswers, found: Unsolved, level: float = 0.95) -> pl.DataFrame:
    """Unsolved examples by class, the worst first, with the share of the class and its interval.

    ``solvers`` lists the models outside the baseline that solve some of them.
    """
    right, labels = answers.judged(), answers.labels
    assert labels is not None
    share = np.full(len(found.by_class), np.nan)
    count, size = found.by_class.T
    np.divide(count, size, out=share, where=size > 0)
    low, high = clopper_pearson(share, size, level)
    inside = found.unsolved & (labels >= 0)
    solved = right[:, inside]
    where = labels[inside]
    solvers: dict[int, list[str]] = {}
    for row in np.flatnonzero(solved.any(axis=1)):
        for label in np.unique(where[solved[row]]).tolist():
            solvers.setdefault(label, []).append(answers.models[int(row)])
    classes = np.flatnonzero(size > 0)
    frame = pl.DataFrame(
        {
            "class": classes,
            "unsolved": count[classes],
            "share": share[classes],
            "low": low[classes],
            "high": high[classes],
            "n": size[classes],
            "solvers": [", ".join(solvers.get(int(label), [])) for label in classes],
        }
    )
    return frame.sort("unsolved", "share", "class", descending=[True, True, False])


def accuracy_groups(answers: JointAnswers) -> dict[str, NDArray[np.bool_]]:
    """The less and the more accurate half of the models."""
    accuracy = answers.judged().mean(axis=1)
    order = np.argsort(accuracy, kind="stable")
    lower = np.zeros(len(order), dtype=bool)
    lower[order[: len(order) // 2]] = True
    return {"less accurate half": lower, "more accurate half": ~lower}


def difficulty_table(
    answers: JointAnswers, groups: Mapping[str, NDArray[np.bool_]], level: float = 0.95
) -> pl.DataFrame:
    """Do groups of models find the same examples hard? A row per pair of groups."""
    right, names = answers.judged(), list(groups)
    if len(names) < 2:
        raise InputError("rank agreement of difficulty needs two groups of models")
    rows = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            a, b = groups[first], groups[second]
            if not a.any() or not b.any():
                raise InputError(f"group {first if not a.any() else second!r} has no model")
            one = rank_agreement(right[a], right[b], level)
            rows.append(
                {
                    "group_a": first,
                    "group_b": second,
                    "models_a": int(a.sum()),
                    "models_b": int(b.sum()),
                    "spearman": one.spearman,
                    "low": one.low,
                    "high": one.high,
                    "n": one.n,
                    "note": one.note,
                }
            )
    return pl.DataFrame(rows, nan_to_null=True)
