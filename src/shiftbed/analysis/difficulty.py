"""Examples as models see them: how hard each is, and those that no model gets right.

andreassen2021 (Section 4.3, Figure 5c): among the examples that no testbed model classifies
correctly, the share a given model does. Where models share a notion of difficulty, harder examples
are right for ever better models only; two groups of models share it as far as their difficulties
have the same ranks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Unsolved:
    """Examples that no baseline model gets right, and who does."""

    unsolved: NDArray[np.bool_]
    """(N,): right for no baseline model."""
    solved: NDArray[np.int64]
    """(M,): of the examples no *other* baseline model gets right, how many this model does."""
    out_of: NDArray[np.int64]
    """(M,): how many these are; for a model outside the baseline the unsolved ones."""
    share: Floats
    low: Floats
    high: Floats
    """(M,) with Clopper–Pearson ends; NaN where there are none to solve."""
    by_class: NDArray[np.int64]
    """(K, 2): unsolved and all examples of each class, K the largest label + 1 (0: no labels)."""


def unsolved(
    right: NDArray[np.bool_],
    labels: NDArray[np.int64] | None = None,
    baseline: NDArray[np.bool_] | None = None,
    level: float = 0.95,
) -> Unsolved:
    """Who solves what the baseline models (all, by default) do not, from right (M, N).

    >>> right = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]], dtype=bool)
    >>> found = unsolved(right, np.array([0, 0, 1, 1]), np.array([True, True, False]))
    >>> found.solved.tolist(), found.out_of.tolist(), found.by_class.tolist()
    ([0, 1, 1], [2, 3, 2], [[0, 2], [2, 2]])
    """
    m = len(right)
    chosen = np.ones(m, dtype=bool) if baseline is None else baseline
    if not chosen.any():
        raise InputError("no baseline model is left: nothing would be solved")
    solvers = right[chosen].sum(axis=0, dtype=np.int64)
    nobody, alone = solvers == 0, solvers == 1
    total = int(nobody.sum())
    solved = np.empty(m, dtype=np.int64)
    solved[chosen] = (right[chosen] & alone).sum(axis=1)
    solved[~chosen] = (right[~chosen] & nobody).sum(axis=1)
    out_of = np.where(chosen, total + solved, total)
    share = np.full(m, np.nan)
    np.divide(solved, out_of, out=share, where=out_of > 0)
    low, high = clopper_pearson(share, out_of, level)
    labels = np.full(right.shape[1], -1) if labels is None else labels
    known = labels >= 0
    size = int(labels.max(initial=-1)) + 1
    by_class = np.column_stack(
        [
            np.bincount(labels[known & nobody], minlength=size),
            np.bincount(labels[known], minlength=size),
        ]
    )
    return Unsolved(
        unsolved=nobody,
        solved=solved,
        out_of=out_of,
        share=share,
        low=low,
        high=high,
        by_class=by_class,
    )


def difficulty(right: NDArray[np.bool_]) -> Floats:
    """(N,): share of the models that get each example right; 1 is easy, 0 unsolved.

    >>> difficulty(np.array([[1, 0], [1, 1]], dtype=bool)).tolist()
    [1.0, 0.5]
    """
    if not len(right):
        raise InputError("difficulty needs at least one model")
    return np.asarray(right.sum(axis=0, dtype=np.int64) / len(right))


@dataclass(frozen=True, kw_only=True)
class RankAgreement:
    """Spearman's ρ of two groups' difficulties of the same examples."""

    spearman: float
    low: float
    high: float
    n: int
    note: str = ""


def rank_agreement(
    first: NDArray[np.bool_], second: NDArray[np.bool_], level: float = 0.95
) -> RankAgreement:
    """Do two groups of models find the same examples hard? Spearman's ρ of their difficulties.

    Ties get their mean rank. Interval tanh(artanh ρ ± z√((1 + ρ²/2)/(n − 3))) (Bonett and Wright
    2000). Undefined, and said so, where a group finds all examples alike.
    """
    n = first.shape[1]
    if n != second.shape[1]:
        raise InputError(f"the groups saw {n} and {second.shape[1]} examples")
    z = float(ndtri(0.5 + check_level(level) / 2))
    nothing = float("nan")
    ranks = [_ranks(right) for right in (first, second)]
    if n < 2 or any(float(rank.std()) == 0.0 for rank in ranks):
        note = "undefined: a group finds all examples equally hard"
        return RankAgreement(spearman=nothing, low=nothing, high=nothing, n=n, note=note)
    rho = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    rho = min(1.0, max(-1.0, rho))
    if n <= 3 or abs(rho) > 1 - 1e-12:
        note = "no interval: too few examples" if n <= 3 else "no interval: the ranks are the same"
        return RankAgreement(spearman=rho, low=nothing, high=nothing, n=n, note=note)
    half = z * np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(rho) - half), np.tanh(np.arctanh(rho) + half)
    return RankAgreement(spearman=rho, low=float(low), high=float(high), n=n)


def _ranks(right: NDArray[np.bool_]) -> Floats:
    """Mean ranks of the examples' difficulties, which take at most M + 1 values."""
    if not len(right):
        raise InputError("a group of models is empty")
    count = right.sum(axis=0, dtype=np.int64)
    size = np.bincount(count, minlength=len(right) + 1)
    rank = np.cumsum(size) - (size - 1) / 2
    return np.asarray(rank[count], dtype=np.float64)
