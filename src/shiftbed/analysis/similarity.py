"""How alike models answer: dominance, agreement and error consistency of every two of them.

Dominance probability (andreassen2021, Appendix C.10, after Mania and Sra): for μ_i ≤ μ_j it is
P(f_i right and f_j wrong), one of the two off-diagonal shares of McNemar's table. Since the two
differ by μ_i − μ_j, it is simply the smaller of them, and the mirrored matrix is symmetric. Low
dominance is one of the two premises from which accuracies under shift fall on a line.

Two things are called agreement. ``agreement`` is the share of examples for which two models give
the same class, right or wrong; agreement-on-the-line is about this one.
``agreement_on_correctness`` is the share on which both are right or both are wrong (the observed
error overlap of Geirhos and others); κ corrects this one for chance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.bits import joint_counts, pack, same_counts
from shiftbed.analysis.intervals import check_level, clopper_pearson
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

    def dominance_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Clopper–Pearson interval of each pair's dominance, images taken as a random sample."""
        return clopper_pearson(self.dominance, self.n, level)

    def agreement_interval(self, level: float = 0.95) -> tuple[Floats, Floats] | None:
        """Clopper–Pearson interval of the agreement on classes."""
        found = self.agreement
        return None if found is None else clopper_pearson(found, self.n, level)


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
