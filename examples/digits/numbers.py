"""Small statistics with intervals that resample models, and p-values for verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata, t

__all__ = [
    "Number",
    "adjusted_r2",
    "holm",
    "mean_of",
    "nested_gain",
    "r2",
    "resampled",
    "spearman",
]

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
    draws: Floats | None = field(default=None, repr=False, compare=False)
    """Resampled values, where it was resampled."""
    dof: float = np.inf

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def points(self) -> str:
        """Fractions as percentage points."""
        return f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}] points"

    def above(self, limit: float) -> float:
        """One-sided p-value of "it is at most this": small if it is above.

        From resamples (k + 1)/(draws + 1), k of them at or below the limit; else from the interval,
        as a t with ``dof`` degrees of freedom.

        >>> Number(value=2.0, low=0.04, high=3.96, n=9).above(0.0).round(3)
        0.023
        """
        return self._beyond(limit, 1.0)

    def below(self, limit: float) -> float:
        """One-sided p-value of "it is at least this": small if it is below."""
        return self._beyond(limit, -1.0)

    def needed(self, *limits: float, alpha: float = 0.05, power: float = 0.8) -> int | None:
        """Models that would tell it from the nearest limit, if the value and the spread stay.

        n·((z₁₋α/₂ + z_power)·error/distance)²: an interval shrinks with the root of their number.
        None on the limit itself.

        >>> Number(value=0.87, low=0.82, high=0.90, n=78).needed(0.9)
        284
        """
        error = (self.high - self.low) / (2 * norm.ppf(0.975))
        distance = min(abs(self.value - limit) for limit in limits)
        if not distance > 0:
            return None
        wanted = norm.ppf(1 - alpha / 2) + norm.ppf(power)
        return max(self.n, int(np.ceil(self.n * (wanted * error / distance) ** 2)))

    def _beyond(self, limit: float, side: float) -> float:
        if self.draws is not None:
            wrong = int((side * (self.draws - limit) <= 0).sum())
            return (wrong + 1) / (len(self.draws) + 1)
        wide = t.ppf((1 + LEVEL) / 2, self.dof) if np.isfinite(self.dof) else norm.ppf(0.975)
        error = max(self.high - self.low, 1e-12) / (2 * wide)
        off = side * (self.value - limit) / error
        return float(t.sf(off, self.dof) if np.isfinite(self.dof) else norm.sf(off))


def resampled(
    statistic: Callable[[NDArray[np.int64]], float],
    n: int,
    *,
    units: Sequence[str] | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> Number:
    """A statistic of rows 0 … n−1, with the percentile interval over resamples of the rows.

    ``units`` names what is drawn instead of single rows, such as the run of each checkpoint.
    """
    rng = np.random.default_rng(seed)
    of = np.arange(n) if units is None else np.unique(list(units), return_inverse=True)[1]
    members = [np.flatnonzero(of == u) for u in range(int(of.max()) + 1)]
    found = np.empty(draws)
    for i in range(draws):
        some = rng.integers(0, len(members), len(members))
        found[i] = statistic(np.concatenate([members[u] for u in some]))
    found = found[np.isfinite(found)]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = statistic(np.arange(n))
    return Number(value=value, low=float(low), high=float(high), n=n, draws=found)


def mean_of(values: Floats) -> Number:
    """A mean with Student's interval.

    >>> mean_of(np.array([1.0, 3.0])).value
    2.0
    """
    n = len(values)
    half = float(t.ppf((1 + LEVEL) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else 1.0
    mean = float(values.mean())
    return Number(value=mean, low=mean - half, high=mean + half, n=n, dof=max(n - 1, 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values: at most 5 % chance that any at or below 0.05 is wrong.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    found, worst = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[i]))
        found[i] = worst
    return found


def nested_gain(
    columns: Floats,
    against: Floats,
    y: Floats,
    units: Sequence[str],
    *,
    folds: int = 10,
    seed: int = 0,
) -> tuple[Number, list[int]]:
    """R² of the best of some columns (n, p) minus that of another (n,), on models held out.

    Units (runs) are dealt into folds; the best column is chosen, and both lines are fitted, on the
    other folds. The gain is the mean over units of (e² of the other − e² of the best)/Var(y), with
    Student's interval. Also which column each fold chose.
    """
    of = np.unique(list(units), return_inverse=True)[1]
    count = int(of.max()) + 1
    fold = np.random.default_rng(seed).permutation(count) % min(folds, count)
    gained, chosen = np.zeros(len(y)), []
    for f in range(min(folds, count)):
        out = fold[of] == f
        there = ~out
        each = [r2(columns[there][:, [k]], y[there]) for k in range(columns.shape[1])]
        best = int(np.nanargmax(each))
        chosen.append(best)
        errors = []
        for x in (against, columns[:, best]):
            slope, intercept = np.polyfit(x[there], y[there], 1)
            errors.append((y[out] - slope * x[out] - intercept) ** 2)
        gained[out] = (errors[0] - errors[1]) / y.var()
    means = np.bincount(of, gained) / np.bincount(of)
    return mean_of(means), chosen


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
