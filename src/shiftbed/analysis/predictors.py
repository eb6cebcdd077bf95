"""How well a measurement of a model predicts its accuracy under shift (fridovich2022, Section 4).

Within each group of models, such as an architecture, y = m·x + b is fitted by least squares: y is
probit(OOD accuracy), x the measurement (probit of it if it is an accuracy). Slope m and R² are
averaged over the groups with equal weight.

Intervals. Of a group: m ± t·se with n − 2 degrees of freedom; R² from Fisher's interval of r (0 to
the larger square where it holds both signs). Of the average: m̄ ± z·√(Σ se²)/G, and R² by the
percentiles of a bootstrap of models within groups, which lie high where R² is near 0. All are of
models drawn from a population of such models; image noise is in the scatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level, pearson
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NAN = float("nan")
_FEWEST = 3
"""Models that a line and its R² need."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """y = slope·x + intercept in one group; NaN where there is none, and ``note`` says why."""

    group: str
    n: int
    slope: float = NAN
    slope_low: float = NAN
    slope_high: float = NAN
    intercept: float = NAN
    r2: float = NAN
    r2_low: float = NAN
    r2_high: float = NAN
    slope_error: float = NAN
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """The average over groups, and each group's fit."""

    fits: tuple[Fit, ...]
    slope: float = NAN
    slope_low: float = NAN
    slope_high: float = NAN
    r2: float = NAN
    r2_low: float = NAN
    r2_high: float = NAN
    n: int
    """Models in the groups that were fitted."""
    note: str = ""

    @property
    def fitted(self) -> tuple[Fit, ...]:
        return tuple(fit for fit in self.fits if np.isfinite(fit.r2))


def fit_group(x: Floats, y: Floats, group: str = "", level: float = 0.95) -> Fit:
    """The line of one group; pairs that are not finite are left out.

    >>> fit = fit_group(np.array([0.0, 1, 2, 3]), np.array([1.0, 3, 5, 7]))
    >>> round(fit.slope, 6), round(fit.intercept, 6), round(fit.r2, 6), fit.n
    (2.0, 1.0, 1.0, 4)
    """
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    r, low, high, n = pearson(x, y, level)
    if n < _FEWEST:
        return Fit(group=group, n=n, note=f"{n} models, a line needs {_FEWEST}")
    if not np.isfinite(r):
        return Fit(group=group, n=n, note="no spread in the measurement or in the accuracy")
    slope = r * float(y.std() / x.std())
    residual = max(0.0, 1 - r * r) * float(((y - y.mean()) ** 2).sum())
    error = float(np.sqrt(residual / (n - 2) / ((x - x.mean()) ** 2).sum()))
    half = float(stdtrit(n - 2, 0.5 + check_level(level) / 2)) * error
    ends = sorted((low * low, high * high))
    return Fit(
        group=group,
        n=n,
        slope=slope,
        slope_low=slope - half,
        slope_high=slope + half,
        intercept=float(y.mean()) - slope * float(x.mean()),
        r2=r * r,
        r2_low=0.0 if low < 0 < high else ends[0],
        r2_high=ends[1],
        slope_error=error,
        note="" if np.isfinite(low) else "no interval of R²: fewer than 4 models, or r = ±1",
    )


def predictor(
    x: Floats,
    y: Floats,
    groups: Sequence[tuple[str, Mask]],
    *,
    level: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Predictor:
    """Slope and R² averaged over named groups of models; groups without a fit are left out.

    ``x`` and ``y`` (models,) are on the scales to be fitted.
    """
    if not groups:
        raise InputError("there is no group of models to fit")
    fits = tuple(fit_group(x[rows], y[rows], name, level) for name, rows in groups)
    used = [(f, rows) for f, (_, rows) in zip(fits, groups, strict=True) if np.isfinite(f.r2)]
    left = [f"{f.group or 'all'}: {f.note}" for f in fits if not np.isfinite(f.r2)]
    if not used:
        return Predictor(fits=fits, n=0, note="; ".join(left))
    count, n = len(used), sum(f.n for f, _ in used)
    slope, r2 = (float(np.mean(v)) for v in zip(*((f.slope, f.r2) for f, _ in used), strict=True))
    if count == 1:
        only = used[0][0]
        bounds = only.slope_low, only.slope_high, only.r2_low, only.r2_high
        left += [only.note] if only.note else []
    else:
        z = float(ndtri(0.5 + check_level(level) / 2))
        half = z * float(np.sqrt(sum(f.slope_error**2 for f, _ in used))) / count
        ends = _bootstrap(x, y, [rows for _, rows in used], level, bootstrap, seed)
        bounds = slope - half, slope + half, *ends
    return Predictor(
        fits=fits,
        slope=slope,
        slope_low=bounds[0],
        slope_high=bounds[1],
        r2=r2,
        r2_low=bounds[2],
        r2_high=bounds[3],
        n=n,
        note="; ".join(left),
    )


def _bootstrap(
    x: Floats, y: Floats, groups: Sequence[Mask], level: float, draws: int, seed: int
) -> tuple[float, float]:
    """Percentiles of the mean R² when models are drawn anew within each group."""
    if draws < 1:
        return NAN, NAN
    total, used = np.zeros(draws), np.zeros(draws)
    for at, rows in enumerate(groups):
        rows = rows & np.isfinite(x) & np.isfinite(y)
        a, b = x[rows] - x[rows].mean(), y[rows] - y[rows].mean()
        n = len(a)
        one = _weights(seed, at, n, draws) @ np.stack([a, b, a * a, b * b, a * b], axis=1)
        across = (one[:, 2] - one[:, 0] ** 2) * (one[:, 3] - one[:, 1] ** 2)
        fine = across > 1e-12 * (a.var() * b.var())
        r2 = (one[:, 4] - one[:, 0] * one[:, 1]) ** 2 / np.where(fine, across, 1.0)
        total += np.where(fine, np.minimum(r2, 1.0), 0.0)
        used += fine
    share = total[used > 0] / used[used > 0]
    if not len(share):
        return NAN, NAN
    tail = 50 * (1 - level)
    low, high = np.percentile(share, [tail, 100 - tail])
    return float(low), float(high)


@lru_cache(maxsize=64)
def _weights(seed: int, group: int, n: int, draws: int) -> Floats:
    """(draws, n): how often each model is drawn, over n; shared by all metrics and settings."""
    rng = np.random.default_rng((seed, group))
    return np.asarray(rng.multinomial(n, np.full(n, 1 / n), size=draws) / n)


def ranks(r2: Sequence[float]) -> list[int]:
    """1 for the largest R², 2 for the second, 0 for all others and where there is none.

    >>> ranks([0.2, float("nan"), 0.9, 0.5])
    [0, 0, 1, 2]
    """
    order = sorted((i for i, v in enumerate(r2) if np.isfinite(v)), key=lambda i: -r2[i])
    found = [0] * len(r2)
    for rank, i in enumerate(order[:2], 1):
        found[i] = rank
    return found
