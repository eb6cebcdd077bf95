"""Paired differences: Wilcoxon's signed-rank test, its effect size, and the median's interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtr

from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.predictiveness import average_ranks
from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
ALTERNATIVES = ("less", "greater")
EXACT = 50
"""Up to so many non-zero differences the p-value is exact."""
METHODS = ("auto", "exact", "normal")


@dataclass(frozen=True, kw_only=True)
class SignedRank:
    """What paired differences say. NaN only where ``note`` says why."""

    n: int
    zeros: int
    """Differences of exactly zero, which the test leaves out."""
    alternative: str
    statistic: float
    """W⁺, the sum of the ranks of positive differences."""
    p_value: float
    method: str
    """exact or normal"""
    rank_biserial: float
    """(W⁺ − W⁻)/(W⁺ + W⁻), the matched-pairs rank-biserial correlation, from −1 to 1."""
    mean: float
    median: float
    low: float
    high: float
    note: str = ""


def signed_rank(
    differences: ArrayLike,
    alternative: str = "less",
    *,
    method: str = "auto",
    level: float = 0.95,
) -> SignedRank:
    """Wilcoxon's one-sided signed-rank test of differences symmetric about 0 (wenzel2022, Fig. 5).

    ``less`` asks whether differences tend to be negative. Zeros are left out, ties share the mean
    of their ranks. The p-value is exact (given the ranks, so with ties too) for up to 50
    differences, else from the normal limit with its variance corrected for ties and no continuity
    correction. Differences must be independent: differences of networks that share an ID set are
    not, so average those first.

    >>> found = signed_rank([-0.02, -0.01, -0.03, 0.005, -0.04])
    >>> found.p_value, round(found.rank_biserial, 3), found.median
    (0.0625, -0.867, -0.02)
    """
    if alternative not in ALTERNATIVES:
        raise unknown("alternative", alternative, ALTERNATIVES)
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not np.isfinite(d).all():
        raise InputError("differences must be a list of finite numbers")
    nan = float("nan")
    if not len(d):
        return SignedRank(
            n=0, zeros=0, alternative=alternative, statistic=nan, p_value=nan, method="exact",
            rank_biserial=nan, mean=nan, median=nan, low=nan, high=nan,
            note="no network of one recipe matches one of the other",
        )  # fmt: skip
    low, high, note = median_interval(d, level)
    moved = d[d != 0.0]
    ranks = average_ranks(np.abs(moved)) if len(moved) else np.zeros(0)
    positive, total = float(ranks[moved > 0].sum()), float(ranks.sum())
    exact = method == "exact" or (method == "auto" and len(moved) <= EXACT)
    side = positive if alternative == "less" else total - positive
    if not len(moved):
        note = "; ".join(part for part in ("all differences are zero", note) if part)
    return SignedRank(
        n=len(d),
        zeros=len(d) - len(moved),
        alternative=alternative,
        statistic=positive,
        p_value=1.0 if not len(moved) else _exact(ranks, side) if exact else _normal(ranks, side),
        method="exact" if exact else "normal",
        rank_biserial=(2.0 * positive - total) / total if total else 0.0,
        mean=float(d.mean()),
        median=float(np.median(d)),
        low=low,
        high=high,
        note=note,
    )


def _exact(ranks: Floats, sum_: float) -> float:
    """P(W ≤ sum) when each rank is positive with probability ½, by convolution."""
    doubled = np.rint(2.0 * ranks).astype(np.int64)  # mean ranks are halves
    chance = np.zeros(int(doubled.sum()) + 1)
    chance[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[: len(chance) - rank]
        chance = (chance + moved) / 2.0
    return float(min(1.0, chance[: int(np.rint(2.0 * sum_)) + 1].sum()))


def _normal(ranks: Floats, sum_: float) -> float:
    """The same from the normal limit: mean Σr/2, variance Σr²/4."""
    return float(ndtr((sum_ - ranks.sum() / 2.0) / np.sqrt((ranks**2).sum() / 4.0)))


def median_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, str]:
    """Distribution-free interval of the median: two order statistics, and why there is none.

    x₍ₖ₎ and x₍ₙ₊₁₋ₖ₎ with the largest k such that P(Binomial(n, ½) < k) ≤ (1 − level)/2, so that
    it covers at least with ``level``. Fewer than six values have no 95 % interval.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    (1.0, 7.0, '')
    """
    tail = (1.0 - check_level(level)) / 2.0
    x = np.sort(np.asarray(values, dtype=np.float64))
    n = len(x)
    below = bdtr(np.arange(n), n, 0.5)  # P(at most k values lie below the median)
    k = int((below <= tail).sum())
    if k == 0:
        why = f"no interval: too few differences ({n}) for {100 * level:g} %"
        return float("nan"), float("nan"), why
    return float(x[k - 1]), float(x[n - k]), ""
