"""Which examples are hard: those that no baseline model solves, and whether models agree."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.analysis.similarity import Unsolved, rank_agreement
from shiftbed.analysis.similarity import unsolved as count_unsolved
from shiftbed.display import percent
from shiftbed.errors import InputError
from shiftbed.results.joint_answers import JointAnswers


def _like(answers: JointAnswers, pattern: str, option: str) -> NDArray[np.bool_]:
    """(M,): models of that name, or whose name matches the pattern."""
    chosen = np.array([name == pattern or fnmatchcase(name, pattern) for name in answers.models])
    if not chosen.any():
        raise InputError(f"{option}: no model is called, or matches, {pattern!r}")
    return chosen


def _halves(right: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """The less and the more accurate half of the models."""
    order = np.argsort(right.mean(axis=1), kind="stable")
    lower = np.isin(np.arange(len(order)), order[: len(order) // 2])
    return {"less accurate half": lower, "more accurate half": ~lower}


def unsolved_tables(
    answers: JointAnswers, baseline: Sequence[str] | None, level: float
) -> dict[str, tuple[str, pl.DataFrame]]:
    """Titles and tables of the examples that no baseline model solves: who does, and by class."""
    chosen = np.ones(len(answers.models), dtype=bool)
    if baseline:
        chosen = np.logical_or.reduce([_like(answers, one, "--baseline") for one in baseline])
    found = count_unsolved(answers.judged(), answers.labels, chosen, level)
    count, n = int(found.unsolved.sum()), answers.n
    title = (
        f"{answers.setting}: {count:,} of {n:,} examples ({percent(count / n)} %) are right "
        f"for none of {int(chosen.sum())} baseline models; solved of those that no other "
        "baseline model gets right"
    )
    solvers = pl.DataFrame(
        {
            "model": list(answers.models),
            "in_baseline": chosen,
            "solved": found.solved,
            "share": found.share,
            "low": found.low,
            "high": found.high,
            "n": found.out_of,
        },
        nan_to_null=True,
    ).sort("share", "model", descending=[True, False], nulls_last=True)
    tables = {"unsolved": (title, solvers)}
    if answers.labels is not None:
        tables["unsolved_by_class"] = "By class", class_table(answers, found, level)
    return tables


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


def difficulty_table(
    answers: JointAnswers, group: Mapping[str, str] | None = None, level: float = 0.95
) -> pl.DataFrame:
    """Do groups of models find the same examples hard? A row per pair of groups.

    ``group`` has the name or pattern of each group's models; by default the less and the more
    accurate half.
    """
    right = answers.judged()
    groups = {name: _like(answers, one, "--group") for name, one in (group or {}).items()}
    groups = groups or _halves(right)
    names = list(groups)
    if len(names) < 2:
        raise InputError("rank agreement of difficulty needs two groups of models")
    rows = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            a, b = groups[first], groups[second]
            sizes = {"models_a": int(a.sum()), "models_b": int(b.sum())}
            found = vars(rank_agreement(right[a], right[b], level))
            rows.append({"group_a": first, "group_b": second, **sizes, **found})
    return pl.DataFrame(rows, nan_to_null=True)
