"""Accuracies as fractions, exact binomial intervals about them, and other small statistics."""

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri, stdtr, stdtrit

from shiftbed.errors import InputError

Floats = NDArray[np.float64]
PerLine = Any
"""A number per line: a float, or an array (S,) for a stack of lines (``analysis.stacks``)."""


def check_level(level: float, what: str = "level") -> float:
    """A confidence level (power, false discovery rate) must lie strictly between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise InputError(f"{what} must lie between 0 and 1 (such as 0.95), got {level!r}")
    return float(level)


def check_draws(draws: int, level: float, what: str = "bootstrap") -> int:
    """Resamples for a percentile interval: none, or enough for both of its ends to be drawn.

    The ends are quantiles (1 ∓ level)/2, so that fewer than 2/(1 − level) resamples have none.

    >>> check_draws(40, 0.95), check_draws(0, 0.95)
    (40, 0)
    """
    least = ceil(2.0 / (1.0 - check_level(level)) - 1e-9)
    if draws != 0 and draws < least:
        raise InputError(
            f"{what} must be 0 (no interval) or at least {least} resamples for a "
            f"{100 * level:g} % interval, got {draws}"
        )
    return draws


def check_fractions(values: ArrayLike, what: str = "accuracy") -> Floats:
    """The values as float64, refused if any is not a fraction; NaN (missing) passes.

    >>> check_fractions([0.5, 1.0]).tolist()
    [0.5, 1.0]
    """
    array = np.asarray(values, dtype=np.float64)
    bad = array[(array < 0.0) | (array > 1.0)]
    if bad.size:
        worst = float(bad.flat[0])
        hint = ""
        if 1.0 < worst <= 100.0:
            hint = f"; it looks like a percentage, write {worst / 100:g}"
        raise InputError(f"{what} must be a fraction in [0, 1], got {worst:g}{hint}")
    return array


def clopper_pearson(
    accuracy: ArrayLike, n: ArrayLike, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Exact (Clopper–Pearson) interval of a binomial proportion, elementwise.

    low = B(α/2; k, n−k+1) and high = B(1−α/2; k+1, n−k), B the beta quantile, k = n·accuracy
    (k need not be whole: averages of several settings are treated alike), 0 for k = 0 and 1 for
    k = n. taori2020 draws 99.5 % intervals, andreassen2021 and fridovich2022 95 %.
    Where n is 0 (unknown) both ends are NaN.

    >>> low, high = clopper_pearson(0.5, 10)
    >>> round(float(low), 4), round(float(high), 4)
    (0.1871, 0.8129)
    """
    tail = (1.0 - check_level(level)) / 2.0
    p, size = np.broadcast_arrays(check_fractions(accuracy), np.asarray(n, dtype=np.float64))
    k = p * size
    known = (size > 0) & np.isfinite(p)
    low, high = np.full(p.shape, np.nan), np.full(p.shape, np.nan)
    low[known], high[known] = 0.0, 1.0
    inside = known & (k > 1e-9)
    low[inside] = betaincinv(k[inside], size[inside] - k[inside] + 1.0, tail)
    inside = known & (k < size - 1e-9)
    high[inside] = betaincinv(k[inside] + 1.0, size[inside] - k[inside], 1.0 - tail)
    return low, high


def wilson(accuracy: ArrayLike, n: ArrayLike, z: ArrayLike) -> tuple[Floats, Floats]:
    """Score interval of a proportion (Wilson 1927): where |p − π| ≤ z √(π(1−π)/n).

    >>> low, high = wilson(0.99, 1000, 1.96)
    >>> round(float(low), 4), round(float(high), 4)
    (0.9817, 0.9946)
    """
    p, size, q = (np.asarray(one, np.float64) for one in (accuracy, n, z))
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (p + q**2 / (2 * size)) / (1 + q**2 / size)
        half = q / (1 + q**2 / size) * np.sqrt(p * (1 - p) / size + q**2 / (4 * size**2))
    return middle - half, middle + half


def off_boundary(accuracy: ArrayLike, n: ArrayLike) -> Floats:
    """(k + ½)/(n + 1) where the accuracy is exactly 0 or 1, else the accuracy itself.

    Where n is unknown (0) the value stays on the boundary.

    >>> off_boundary([0.0, 0.5, 1.0], [9, 9, 9]).tolist()
    [0.05, 0.5, 0.95]
    """
    p, size = np.asarray(accuracy, np.float64), np.asarray(n, np.float64)
    edge = ((p <= 0.0) | (p >= 1.0)) & (size > 0)
    if not edge.any():
        return p + np.zeros(edge.shape)
    return np.where(edge, (p * size + 0.5) / (size + 1.0), p)


def binomial_variance(accuracy: ArrayLike, n: ArrayLike) -> Floats:
    """p(1−p)/n, with p moved off 0 and 1; 0 where n is unknown, so nothing is claimed there."""
    p, size = off_boundary(accuracy, n), np.asarray(n, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size > 0, p * (1.0 - p) / size, 0.0)


def beside(*parts: NDArray[Any]) -> NDArray[Any]:
    """Matrices (…, n, c) and columns (…, n) side by side, (…, n, Σ c).

    With axes in front there must be a matrix among them.

    >>> beside(np.zeros(1), np.ones((1, 2))).tolist()
    [[0.0, 1.0, 1.0]]
    """
    most = max(2, *(part.ndim for part in parts))
    return np.concatenate([p if p.ndim == most else p[..., None] for p in parts], axis=-1)


def with_ones(x: Floats) -> Floats:
    """A design: (1, x) for the rows x of (…, n, k); shape (…, n, k+1)."""
    a = np.empty((*x.shape[:-1], x.shape[-1] + 1))
    a[..., 0], a[..., 1:] = 1.0, x
    return a


def dot(a: Floats, b: Floats) -> Floats:
    """Σ aᵢbᵢ over the last axis.

    >>> dot(np.array([[1.0, 2.0]]), np.array([3.0, 4.0])).tolist()
    [11.0]
    """
    return np.asarray(np.einsum("...i,...i->...", a, b))


def quadratic(a: Floats, matrix: Floats) -> Floats:
    """aᵢᵀ M aᵢ for the rows of a (…, n, p) and M (…, p, p); shape (…, n).

    >>> quadratic(np.array([[1.0, 2.0]]), np.eye(2)).tolist()
    [5.0]
    """
    return dot(a @ matrix, a)


def column(value: ArrayLike) -> Floats:
    """A number per line, shaped to go with values per model: (…,) to (…, 1)."""
    return np.asarray(value, np.float64)[..., None]


def number(values: ArrayLike) -> PerLine:
    """What ``column`` takes: a plain float of one line, the array of a stack."""
    found = np.asarray(values)
    return float(found) if found.ndim == 0 else found


def transposed(matrix: Floats) -> Floats:
    """(…, n, p) to (…, p, n)."""
    return np.swapaxes(matrix, -1, -2)


def t_quantile(dof: ArrayLike, level: float) -> Floats:
    """What |t| exceeds with probability 1 − level, for many degrees of freedom at once.

    Many different ones are read off 1,025 exact values by cubics in 1/dof, in which the quantile
    is analytic: right to 11 digits.

    >>> t_quantile([10.0, 76.0], 0.95).round(4).tolist()
    [2.2281, 1.9917]
    """
    given = np.asarray(dof, dtype=np.float64)
    usual = given >= 1.0
    if given.size <= 65 or not usual.any():
        return np.asarray(stdtrit(given, 0.5 + level / 2))
    exact = _t_quantiles(level)
    u = (len(exact) - 1) / np.where(usual, given, 1.0)
    at = np.clip(u.astype(np.int64) - 1, 0, len(exact) - 4)
    a, b, c, d = (u - at - i for i in range(4))  # Lagrange's cubic through four neighbours
    outer = exact[at + 3] * (a * b * c) - exact[at] * (b * c * d)
    inner = exact[at + 1] * (a * c * d) - exact[at + 2] * (a * b * d)
    found = outer / 6.0 + inner / 2.0
    if not usual.all():
        found[~usual] = stdtrit(given[~usual], 0.5 + level / 2)
    return np.asarray(found)


@lru_cache(maxsize=8)
def _t_quantiles(level: float) -> Floats:
    """The quantile at 1/dof from 0 to 1."""
    u = np.linspace(0.0, 1.0, 1025)[1:]
    return np.append(ndtri(0.5 + level / 2), stdtrit(1.0 / u, 0.5 + level / 2))


def two_sided_p(t: ArrayLike, dof: ArrayLike) -> Floats:
    """Two-sided p-value of a t statistic: 2·P(T_dof ≤ −|t|)."""
    return np.asarray(2.0 * stdtr(dof, -np.abs(np.asarray(t, dtype=np.float64))))


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[Any]:
    """Adjusted p-values (q-values) of Benjamini and Hochberg; NaN stays NaN.

    Calling everything with q ≤ r out of line keeps the false discovery rate at or below r.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    p = np.asarray(p_values, dtype=np.float64)
    q = np.full(p.shape, np.nan)
    there = np.flatnonzero(np.isfinite(p))
    order = there[np.argsort(p[there], kind="stable")]
    ranked = p[order] * len(order) / np.arange(1, len(order) + 1)
    q[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return q


def pearson(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> tuple[float, float, float, int]:
    """Pearson's r, the ends of its Fisher interval tanh(artanh r ± z/√(n−3)), and n.

    Pairs with a missing value are left out. All NaN where r is undefined (n < 3, or no spread).

    >>> r, low, high, n = pearson([1, 2, 3, 4], [1, 2, 3, 5])
    >>> round(r, 3), n
    (0.983, 4)
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[both], y[both], int(both.sum())
    nothing = (float("nan"), float("nan"), float("nan"), n)
    if n < 3:
        return nothing
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if scale <= 1e-300:
        return nothing
    r = min(1.0, max(-1.0, float(x @ y) / scale))
    if n < 4 or abs(r) == 1.0:
        return r, float("nan"), float("nan"), n
    half = float(ndtri(0.5 + check_level(level) / 2)) / np.sqrt(n - 3)
    centre = np.arctanh(r)
    return r, float(np.tanh(centre - half)), float(np.tanh(centre + half)), n
