"""What residuals say against a line: skewed, uneven or bent scatter, and models that turn it.

p-values of 'out of line' take baseline models to scatter about a straight line alike, to both
sides and everywhere. Each of these looks at one way in which they may not. Formulas are over the
last axes: they serve one line, or a stack of lines (``analysis.stacks``).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc, ndtr

from shiftbed.analysis.baseline import Line
from shiftbed.analysis.intervals import (
    PerLine,
    beside,
    column,
    dot,
    number,
    quadratic,
    transposed,
    two_sided_p,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_BINS = 5


@dataclass(frozen=True, kw_only=True)
class TestedEffect:
    """An effect, and how often it would be as large by chance."""

    effect: PerLine
    p_value: PerLine

    def __getitem__(self, i: int) -> "TestedEffect":
        """Of line i of a stack."""
        return TestedEffect(effect=float(self.effect[i]), p_value=float(self.p_value[i]))


def leverage(line: Line) -> Floats:
    """(…, m): hat values h, how far each model is from all others on ID data."""
    return quadratic(line.design * np.sqrt(line.row_weights)[..., None], line.gram_inverse)


def influence(line: Line) -> Floats:
    """(…, m): Cook's distances r²h/(pσ²(1−h)²), how much each model turns the line."""
    hat = leverage(line)
    variance = line.coefficients.shape[-1] * np.maximum(column(line.sigma) ** 2, 1e-30)
    squares = line.row_weights * line.residuals**2
    return np.asarray(squares * hat / (variance * np.maximum(1.0 - hat, 1e-12) ** 2))


def standardised(line: Line) -> Floats:
    """(…, m): residuals over their standard deviations σ√((1 − h)/v)."""
    rest = np.maximum(1.0 - leverage(line), 1e-12)
    spread = np.maximum(column(line.sigma), 1e-150)
    return np.asarray(line.residuals * np.sqrt(line.row_weights / rest) / spread)


def skewness(residuals: Floats) -> TestedEffect:
    """Sample skewness and its p-value under normality (D'Agostino 1970).

    >>> found = skewness(np.random.default_rng(0).exponential(size=80))
    >>> bool(found.effect > 1), bool(found.p_value < 0.001)
    (True, True)
    """
    n, before = residuals.shape[-1], residuals.shape[:-1]
    if n < 8:
        return TestedEffect(effect=number(np.zeros(before)), p_value=number(np.ones(before)))
    centred = residuals - residuals.mean(axis=-1, keepdims=True)
    second, third = dot(centred, centred) / n, dot(centred**2, centred) / n
    scattered = second >= 1e-100
    skew = np.where(scattered, third, 0.0) / np.where(scattered, second, 1.0) ** 1.5
    y = skew * np.sqrt((n + 1) * (n + 3) / (6.0 * (n - 2)))
    kurtosis = 3.0 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3)
    kurtosis /= (n - 2.0) * (n + 5) * (n + 7) * (n + 9)
    w2 = np.sqrt(2.0 * (kurtosis - 1.0)) - 1.0
    z = np.arcsinh(y / np.sqrt(2.0 / (w2 - 1.0))) / np.sqrt(0.5 * np.log(w2))
    return TestedEffect(effect=number(skew), p_value=number(2.0 * ndtr(-np.abs(z))))


def spread_trend(x: Floats, residuals: Floats) -> TestedEffect:
    """Spearman's rank correlation of |r| with x, and its p-value (t with n − 2).

    >>> x = np.linspace(0, 1, 60)
    >>> r = x * np.random.default_rng(0).normal(size=60)
    >>> bool(spread_trend(x, r).p_value < 0.01)
    True
    """
    n, apart = x.shape[-1], (_ranks(x) - _ranks(np.abs(residuals))).astype(np.float64)
    r = 1.0 - 6.0 * dot(apart, apart) / (n * (n**2 - 1))
    t = r * np.sqrt((n - 2) / np.maximum(1.0 - r**2, 1e-12))
    return TestedEffect(effect=number(r), p_value=number(two_sided_p(t, n - 2)))


def _ranks(values: Floats) -> NDArray[np.int64]:
    """From 0, along the last axis."""
    return np.argsort(np.argsort(values, axis=-1), axis=-1)


def bend(x: Floats, residuals: Floats) -> TestedEffect:
    """Do residuals rank differently in five ranges of x (Kruskal and Wallis 1952)?

    Unlike a square term it sees any curve, and outliers count by their rank only. The effect is the
    share of the residual variance that the ranges' means explain.

    >>> x = np.linspace(-1, 1, 60)
    >>> bool(bend(x, x**2 - 1 / 3).p_value < 0.001)
    True
    """
    n, order = x.shape[-1], np.argsort(x, axis=-1, kind="stable")
    starts = -(-np.arange(_BINS) * n // _BINS)  # the first i with i·5 // n = 0, 1, …
    sizes = np.diff(np.append(starts, n))

    def sums(values: NDArray[Any]) -> Floats:
        ordered = np.take_along_axis(values, order, axis=-1)
        return np.asarray(np.add.reduceat(ordered, starts, axis=-1))

    ranked = (sums(_ranks(residuals) + 1.0) ** 2 / sizes).sum(axis=-1)
    h = 12.0 / (n * (n + 1)) * ranked - 3.0 * (n + 1)
    explained = (sums(residuals) ** 2 / sizes).sum(axis=-1)
    total = np.maximum(dot(residuals, residuals), 1e-300)
    p_value = chdtrc(_BINS - 1, np.maximum(h, 0.0))
    return TestedEffect(effect=number(explained / total), p_value=number(p_value))


def curvature(line: Line, significant: float) -> TestedEffect:
    """Gain in R² from square terms, or from five ranges of x where that is more.

    Ranges count where ``bend`` is ``significant``. The p-value is NaN where it cannot be tested.
    """
    a, r = line.design, line.residuals
    y = dot(a, line.coefficients[..., None, :]) + r
    z = a[..., 1:] - a[..., 1:].mean(axis=-2, keepdims=True)
    squares = added(a, z**2, y)
    if line.n < 25:
        return squares
    ranges, total = bend(a[..., 1], r), np.maximum(_about_mean(y), 1e-300)
    explained = ranges.effect * dot(r, r) / total
    more = (ranges.p_value < significant) & (explained > squares.effect)
    more &= np.isfinite(squares.p_value)
    return TestedEffect(
        effect=number(np.where(more, explained, squares.effect)),
        p_value=number(np.where(more, ranges.p_value, squares.p_value)),
    )


def added(design: Floats, extra: Floats, y: Floats) -> TestedEffect:
    """Gain in R² from further columns, and the p-value of its F test; NaN without freedom."""
    given, across = beside(extra, y), transposed(design)
    given = given - design @ np.linalg.solve(across @ design, across @ given)
    apart, left = given[..., :-1], given[..., -1]  # what the line does not explain
    squares = (apart**2).sum(axis=-2)
    kept = squares > 1e-24 * (extra**2).sum(axis=-2)
    rest, rank = left.copy(), kept[..., 0].astype(np.int64)
    if extra.shape[-1] == 1:
        slope = dot(apart[..., 0], left) / np.where(kept, squares, np.inf)[..., 0]
        rest = left - column(slope) * apart[..., 0]
    else:
        for at in np.ndindex(left.shape[:-1]):
            some = apart[at][:, kept[at]]
            fit, _, rank[at], _ = np.linalg.lstsq(some, left[at], rcond=None)
            rest[at] = left[at] - some @ fit
    dof, total = y.shape[-1] - design.shape[-1] - rank, _about_mean(y)
    tested = (dof >= 1) & (total > 0)
    gained = np.maximum(dot(left, left) - dot(rest, rest), 0.0)
    f = gained / extra.shape[-1] / np.maximum(dot(rest, rest) / np.maximum(dof, 1), 1e-30)
    p_value = fdtrc(extra.shape[-1], np.maximum(dof, 1), f)
    return TestedEffect(
        effect=number(np.where(tested, gained / np.where(tested, total, 1.0), 0.0)),
        p_value=number(np.where(tested, p_value, np.nan)),
    )


def _about_mean(y: Floats) -> Floats:
    centred = y - y.mean(axis=-1, keepdims=True)
    return dot(centred, centred)


def hidden_outliers(line: Line, beyond: float = 4.0) -> Bools:
    """(…, m): fitted models far from where a robust fit puts them.

    Several outliers pull a least-squares line and hide each other: leaving out one leaves the
    others. A fit by the half of the models that it fits best, then by those within 2.5 standard
    deviations of that (least trimmed squares, reweighted: Rousseeuw and Leroy 1987) is not
    pulled by a tenth of the models; far is more than ``beyond`` standard deviations, estimated
    from the median absolute residual.
    """
    a, m = line.design, line.n
    y = dot(a, line.coefficients[..., None, :]) + line.residuals
    correction = 1.4826 * (1.0 + 5.0 / max(line.dof, 1))
    products = (a[..., :, None] * beside(a, y)[..., None, :]).reshape(*y.shape, -1)
    off, going = np.abs(line.residuals), np.ones(y.shape[:-1], bool)
    middle = np.partition(off, m // 2, axis=-1)[..., m // 2]
    best: Bools | None = None
    for step in range(7):
        limit = middle if step < 5 else 2.5 * correction * middle
        near = off <= limit[..., None]
        if step < 5 and best is not None and (near == best).all():
            continue  # these models are the ones that their own fit fits best
        best = near
        # AᵀWA and AᵀWy with weights of 0 and 1; a line that has no such fit stays as it is.
        sums = near[..., None, :].astype(np.float64) @ products
        sums = sums.reshape(*y.shape[:-1], a.shape[-1], -1)
        going &= np.linalg.det(sums[..., :-1]) != 0
        gram = np.where(going[..., None, None], sums[..., :-1], np.eye(a.shape[-1]))
        fit = np.linalg.solve(gram, sums[..., -1:])
        off = np.where(going[..., None], np.abs(y - (a @ fit)[..., 0]), off)
        middle = np.partition(off, m // 2, axis=-1)[..., m // 2]
    return np.asarray(off > column(beyond * np.maximum(correction * middle, 1e-12)))
