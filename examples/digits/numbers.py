"""Small statistics with intervals that resample models."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, t

__all__ = ["Number", "adjusted_r2", "mean_of", "r2", "resampled", "spearman"]

Floats = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Number:
    """A value with its interval at 95 % and how many models it is from.

    >>> str(Number(value=0.5, low=0.25, high=0.75, n=8))
    '0.50 [0.25, 0.75]'
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def points(self) -> str:
        """Fractions as percentage points."""
        return f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}] points"


def resampled(
    statistic: Callable[[NDArray[np.int64]], float], n: int, *, draws: int = 2000, seed: int = 0
) -> Number:
    """A statistic of rows 0 … n−1, with the percentile interval over resamples of the rows."""
    rng = np.random.default_rng(seed)
    found = np.array([statistic(rng.integers(0, n, n)) for _ in range(draws)])
    found = found[np.isfinite(found)]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Number(value=statistic(np.arange(n)), low=float(low), high=float(high), n=n)


def mean_of(values: Floats) -> Number:
    """A mean with Student's interval.

    >>> mean_of(np.array([1.0, 3.0])).value
    2.0
    """
    n = len(values)
    half = float(t.ppf((1 + LEVEL) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else 1.0
    mean = float(values.mean())
    return Number(value=mean, low=mean - half, high=mean + half, n=n)


def r2(x: Floats, y: Floats) -> float:
    """Of the least-squares plane through x (n, d) and y (n,).

    >>> r2(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0]))
    1.0
    """
    design = np.column_stack([np.ones(len(y)), x])
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    total = ((y - y.mean()) ** 2).sum()
    return float(1 - (left**2).sum() / total) if total > 0 else float("nan")


def adjusted_r2(x: Floats, y: Floats) -> float:
    """R² for which one more column is no gain by itself."""
    n, d = x.shape
    return 1 - (1 - r2(x, y)) * (n - 1) / (n - d - 1) if n > d + 1 else float("nan")


def spearman(x: Floats, y: Floats) -> float:
    """Rank correlation.

    >>> round(spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0])), 9)
    1.0
    """
    a, b = rankdata(x), rankdata(y)
    if a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
