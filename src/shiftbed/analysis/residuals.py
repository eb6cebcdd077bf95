"""What residuals say against a line: skewed, uneven or bent scatter, and outliers behind outliers.

p-values of 'out of line' take baseline models to scatter about a straight line alike, to both
sides and everywhere. Each of these looks at one way in which they may not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr

from shiftbed.analysis.baseline import Line
from shiftbed.analysis.intervals import quadratic, two_sided_p

Floats = NDArray[np.float64]
_BINS = 5


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An effect, and how often it would be as large by chance."""

    effect: float
    p_value: float


def standardised(line: Line) -> Floats:
    """(m,): residuals over their standard deviations σ√((1 − h)/v)."""
    a = line.design * np.sqrt(line.row_weights)[:, None]
    rest = np.maximum(1.0 - quadratic(a, line.gram_inverse), 1e-12)
    return np.asarray(line.residuals * np.sqrt(line.row_weights / rest) / max(line.sigma, 1e-150))


def skewness(residuals: Floats) -> Finding:
    """Sample skewness and its p-value under normality (D'Agostino 1970).

    >>> found = skewness(np.random.default_rng(0).exponential(size=80))
    >>> bool(found.effect > 1), bool(found.p_value < 0.001)
    (True, True)
    """
    n, centred = len(residuals), residuals - residuals.mean()
    second = float((centred**2).mean())
    if n < 8 or second < 1e-100:
        return Finding(effect=0.0, p_value=1.0)
    skew = float((centred**3).mean()) / second**1.5
    y = skew * np.sqrt((n + 1) * (n + 3) / (6.0 * (n - 2)))
    kurtosis = 3.0 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3)
    kurtosis /= (n - 2.0) * (n + 5) * (n + 7) * (n + 9)
    w2 = np.sqrt(2.0 * (kurtosis - 1.0)) - 1.0
    z = np.arcsinh(y / np.sqrt(2.0 / (w2 - 1.0))) / np.sqrt(0.5 * np.log(w2))
    return Finding(effect=skew, p_value=float(2.0 * ndtr(-abs(z))))


def spread_trend(x: Floats, residuals: Floats) -> Finding:
    """Spearman's rank correlation of |r| with x, and its p-value (t with n − 2).

    >>> x = np.linspace(0, 1, 60)
    >>> r = x * np.random.default_rng(0).normal(size=60)
    >>> bool(spread_trend(x, r).p_value < 0.01)
    True
    """
    n, apart = len(x), np.argsort(np.argsort(x)) - np.argsort(np.argsort(np.abs(residuals)))
    r = 1.0 - 6.0 * float(apart @ apart) / (n * (n**2 - 1))
    t = r * np.sqrt((n - 2) / max(1.0 - r**2, 1e-12))
    return Finding(effect=r, p_value=float(two_sided_p(t, n - 2)))


def bend(x: Floats, residuals: Floats) -> Finding:
    """Do residuals rank differently in five ranges of x (Kruskal and Wallis 1952)?

    Unlike a square term it sees any curve, and outliers count by their rank only. The effect is the
    share of the residual variance that the ranges' means explain.

    >>> x = np.linspace(-1, 1, 60)
    >>> bool(bend(x, x**2 - 1 / 3).p_value < 0.001)
    True
    """
    n = len(x)
    at = np.empty(n, dtype=np.int64)
    at[np.argsort(x, kind="stable")] = np.arange(n) * _BINS // n
    ranks = np.argsort(np.argsort(residuals)) + 1.0
    sizes = np.bincount(at, minlength=_BINS)
    sums = np.bincount(at, ranks, minlength=_BINS)
    h = 12.0 / (n * (n + 1)) * float((sums**2 / sizes).sum()) - 3.0 * (n + 1)
    means = np.bincount(at, residuals, minlength=_BINS) / sizes
    total = max(float((residuals**2).sum()), 1e-300)
    explained = float((sizes * means**2).sum()) / total
    return Finding(effect=explained, p_value=float(chdtrc(_BINS - 1, max(h, 0.0))))


def hidden_outliers(line: Line, beyond: float = 4.0) -> NDArray[np.int64]:
    """Fitted models far from where a robust fit puts them, by position.

    Several outliers pull a least-squares line and hide each other: leaving out one leaves the
    others. A fit by the half of the models that it fits best, then by those within 2.5 standard
    deviations of that (least trimmed squares, reweighted: Rousseeuw and Leroy 1987) is not
    pulled by a tenth of the models; far is more than ``beyond`` standard deviations, estimated
    from the median absolute residual.
    """
    a = line.design
    y = a @ line.coefficients + line.residuals
    correction = 1.4826 * (1.0 + 5.0 / max(line.dof, 1))
    off = np.abs(line.residuals)
    half = len(y) // 2
    middle = float(np.partition(off, half)[half])
    both = np.concatenate([a, y[:, None]], axis=1)
    products = (a[:, :, None] * both[:, None, :]).reshape(len(y), -1)  # of AᵀWA and AᵀWy
    best: NDArray[np.bool_] | None = None
    for step in range(7):
        limit = middle if step < 5 else 2.5 * correction * middle
        near = off <= limit
        if step < 5 and best is not None and (near == best).all():
            continue  # these models are the ones that their own fit fits best
        best = near
        sums = (near.astype(np.float64) @ products).reshape(a.shape[1], -1)
        try:
            off = np.abs(y - a @ np.linalg.solve(sums[:, :-1], sums[:, -1]))
        except np.linalg.LinAlgError:
            break
        middle = float(np.partition(off, half)[half])
    return np.flatnonzero(off > beyond * max(correction * middle, 1e-12))
