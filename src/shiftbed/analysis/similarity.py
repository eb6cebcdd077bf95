"""How alike models answer: dominance, agreement and error consistency of every two of them.

Dominance probability (andreassen2021, Appendix C.10, after Mania and Sra): for μ_i ≤ μ_j it is
P(f_i right and f_j wrong), one of the two off-diagonal shares of McNemar's table. Since the two
differ by μ_i − μ_j, it is simply the smaller of them, and the mirrored matrix is symmetric. Low
dominance is one of the two premises from which accuracies under shift fall on a line.

Two things are called agreement. ``agreement`` is the share of examples for which two models give
the same class, right or wrong; agreement-on-the-line is about this one.
``agreement_on_correctness`` is the share on which both are right or both are wrong (the observed
error overlap of Geirhos and others); κ corrects this one for chance.

Examples that no model gets right (andreassen2021, Section 4.3, Figure 5c): among those, the share a
given model does. Where models share a notion of difficulty, harder examples are right for ever
better models only; two groups of models share it as far as their difficulties have the same ranks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtri

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.analysis.joint_counts import joint_counts, pack, same_counts
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
AT_ONCE = 1 << 22
"""Answers held as wide numbers at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Similarity:
    """Counts over the same n examples, and every measure that follows from them."""

    n: int
    right: Counts
    """(M,): right answers."""
    both: Counts
    """(M, M): examples on which both are right."""
    same: Counts | None = None
    """(M, M): examples on which both answer the same class; None where classes are unknown."""

    @property
    def accuracy(self) -> Floats:
        return self.right / self.n

    @property
    def only(self) -> Counts:
        """(M, M): examples on which the row's model is right and the column's wrong."""
        return self.right[:, None] - self.both

    @property
    def dominance(self) -> Floats:
        """(M, M), mirrored: P(less accurate right, more accurate wrong); 0 on the diagonal."""
        return self.dominated / self.n

    @property
    def dominated(self) -> Counts:
        """(M, M): the counts behind ``dominance``."""
        only = self.only
        return np.minimum(only, only.T)

    @property
    def independent_dominance(self) -> Floats:
        """(M, M): μ_i(1 − μ_j), μ_i ≤ μ_j: the dominance of models that err independently."""
        low = np.minimum.outer(self.accuracy, self.accuracy)
        high = np.maximum.outer(self.accuracy, self.accuracy)
        return np.asarray(low * (1.0 - high))

    @property
    def agreement(self) -> Floats | None:
        """(M, M): share of examples with the same predicted class."""
        return None if self.same is None else self.same / self.n

    @property
    def agreement_on_correctness(self) -> Floats:
        """(M, M): share of examples on which both are right or both are wrong."""
        return (self.n - self.only - self.only.T) / self.n

    @property
    def kappa(self) -> Floats:
        """(M, M): error consistency κ = (c_obs − c_exp)/(1 − c_exp), c_exp = pq + (1−p)(1−q).

        Cohen's κ of two models' being right (Geirhos, Meding and Wichmann 2020). 0 where one model
        is always right (or wrong) and the other is not; NaN where both always are, for then chance
        alone makes them agree fully.
        """
        p = self.accuracy
        expected = np.outer(p, p) + np.outer(1.0 - p, 1.0 - p)
        with np.errstate(invalid="ignore", divide="ignore"):
            kappa = (self.agreement_on_correctness - expected) / (1.0 - expected)
        constant = (self.right == 0) | (self.right == self.n)
        one = constant[:, None] | constant
        alike = one & (self.agreement_on_correctness == 1.0)
        return np.where(alike, np.nan, np.where(one, 0.0, kappa))

    def kappa_error(self) -> Floats:
        """(M, M): large-sample standard error of κ (Fleiss, Cohen and Everitt 1969).

        With cells p_uv of the 2 × 2 table, margins p_u., p_.v and e = c_exp:
        n(1−e)²·Var κ = Σ_u p_uu(1 − (p_u. + p_.u)(1−κ))² + (1−κ)² Σ_{u≠v} p_uv(p_.u + p_v.)²
        − (κ − e(1−κ))².
        """
        p, kappa = self.accuracy, self.kappa
        q = 1.0 - p
        expected = np.outer(p, p) + np.outer(q, q)
        rest = 1.0 - kappa
        both, only = self.both / self.n, self.only / self.n
        neither = 1.0 - both - only - only.T
        total = both * (1.0 - (p[:, None] + p) * rest) ** 2
        total += neither * (1.0 - (q[:, None] + q) * rest) ** 2
        total += rest**2 * only * (p + q[:, None]) ** 2
        total += rest**2 * only.T * (q + p[:, None]) ** 2
        total -= (kappa - expected * rest) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.sqrt(np.maximum(total, 0.0) / self.n) / (1.0 - expected)
        return np.where(np.isnan(kappa), np.nan, error)

    def kappa_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Gaussian interval of κ; κ = ±1 has none (its standard error is 0 there)."""
        half = float(ndtri(0.5 + check_level(level) / 2)) * self.kappa_error()
        half = np.where(half > 0, half, np.nan)
        return np.maximum(self.kappa - half, -1.0), np.minimum(self.kappa + half, 1.0)


def similarity(
    right: NDArray[np.bool_], classes: NDArray[np.integer[Any]] | None = None
) -> Similarity:
    """Similarity of M models from who was right (M, N) and, perhaps, the classes said (M, N).

    >>> right = np.array([[1, 1, 0, 0], [1, 0, 1, 1]], dtype=bool)
    >>> found = similarity(right)
    >>> found.dominance.tolist(), found.kappa.round(3).tolist()
    ([[0.0, 0.25], [0.25, 0.0]], [[1.0, -0.5], [-0.5, 1.0]])
    """
    if right.ndim != 2:
        raise InputError(f"results must be (models, examples), have shape {right.shape}")
    if not right.shape[0] or not right.shape[1]:
        raise InputError(f"there are {right.shape[0]} models and {right.shape[1]} examples")
    if classes is not None and classes.shape != right.shape:
        raise InputError(f"classes have shape {classes.shape}, results {right.shape}")
    both = joint_counts(pack(right))
    return Similarity(
        n=right.shape[1],
        right=np.diag(both).copy(),
        both=both,
        same=None if classes is None else same_counts(classes),
    )


@dataclass(frozen=True, kw_only=True)
class MeanDominance:
    """Dominance over all pairs: is the premise of the linear trend met?"""

    pairs: int
    value: float
    low: float
    high: float
    independent: float
    """What it would be if models of these accuracies erred independently."""
    largest: float
    n: int

    @property
    def ratio(self) -> float:
        """Mean dominance as a share of that of independent models; NaN if both are 0."""
        return self.value / self.independent if self.independent > 0 else float("nan")


def mean_dominance(
    found: Similarity, right: NDArray[np.bool_], level: float = 0.95
) -> MeanDominance:
    """Mean dominance of all pairs, with a Gaussian interval over the examples.

    With models in the order of their accuracy, example n adds d_n = Σ_{i<j} r_in(1 − r_jn) to all
    pairs together, so the mean over pairs is a mean over examples and its variance is that of d_n
    divided by n. The order is taken as given.
    """
    m, n = right.shape
    pairs = m * (m - 1) // 2
    if not pairs:
        raise InputError("dominance needs at least two models")
    order = np.argsort(found.right, kind="stable")
    each = np.empty(n)
    step = max(1, AT_ONCE // m)
    for at in range(0, n, step):
        block = right[order, at : at + step]
        before = np.cumsum(block, axis=0, dtype=np.int32)
        each[at : at + step] = np.where(block, 0, before).sum(axis=0, dtype=np.int64)
    each /= pairs
    upper = np.triu_indices(m, 1)
    value = float(each.mean())
    spread = float(each.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    half = float(ndtri(0.5 + check_level(level) / 2)) * spread
    return MeanDominance(
        pairs=pairs,
        value=value,
        low=max(value - half, 0.0) if n > 1 else float("nan"),
        high=min(value + half, 1.0) if n > 1 else float("nan"),
        independent=float(found.independent_dominance[upper].mean()),
        largest=float(found.dominance[upper].max()),
        n=n,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class McNemar:
    """Test of equal accuracy from answers to the same n examples, elementwise."""

    difference: Floats
    """Accuracy of the first less that of the second."""
    low: Floats
    high: Floats
    p_value: Floats
    """Exact, two-sided."""


def mcnemar(first_only: ArrayLike, second_only: ArrayLike, n: int, level: float = 0.95) -> McNemar:
    """McNemar's exact test from b = first right alone and c = second right alone, of n examples.

    If the models are equally accurate, b given b + c is binomial with ½, so
    p = min(1, 2·P(B(b+c, ½) ≤ min(b, c))); 1 where they never differ. The difference (b − c)/n gets
    the paired Wald interval with ½ added to each cell of the table (Agresti and Min 2005).

    >>> found = mcnemar(9, 1, 50)
    >>> round(float(found.p_value), 5), round(float(found.difference), 2)
    (0.02148, 0.16)
    """
    b, c = np.broadcast_arrays(np.asarray(first_only), np.asarray(second_only))
    if n < 1:
        raise InputError("McNemar's test needs at least one example")
    if (b < 0).any() or (c < 0).any() or (b + c > n).any():
        raise InputError(f"counts of McNemar's table must be at least 0 and together at most {n}")
    with np.errstate(invalid="ignore"):
        p = np.minimum(1.0, 2.0 * bdtr(np.minimum(b, c), b + c, 0.5))
    p = np.where(b == c, 1.0, p)
    size, wide_b, wide_c = n + 2.0, b + 0.5, c + 0.5
    centre = (wide_b - wide_c) / size
    spread = np.sqrt(np.maximum(wide_b + wide_c - (wide_b - wide_c) ** 2 / size, 0.0)) / size
    half = float(ndtri(0.5 + check_level(level) / 2)) * spread
    return McNemar(
        difference=np.asarray((b - c) / n),
        low=np.asarray(np.maximum(centre - half, -1.0)),
        high=np.asarray(np.minimum(centre + half, 1.0)),
        p_value=np.asarray(p),
    )


def holm(p_values: ArrayLike) -> Floats:
    """Adjusted p-values of Holm; NaN stays NaN.

    Calling everything at or below α different makes one or more mistakes with probability at most
    α, however the tests depend on each other: p̃_(k) = max_{l≤k} min(1, (m − l + 1)·p_(l)).

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    there = np.flatnonzero(np.isfinite(p))
    order = there[np.argsort(p[there], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


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
