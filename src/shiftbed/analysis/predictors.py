"""How well a measurement of a model predicts its accuracy under shift (fridovich2022, Section 4).

Within each group of models, such as an architecture, y = m·x + b is fitted by least squares: y is
probit(OOD accuracy), x the measurement (probit of it if it is an accuracy). Slope m and R² are
averaged over the groups with equal weight.

R² is at least 0, so its mean over groups lies above the population's: with no relation at all it is
1/(n − 1). ``adjusted`` is the mean of Olkin and Pratt's (1958) unbiased estimate,
1 − (n − 3)/(n − 2)·(1 − R²)·₂F₁(1, 1; n/2; 1 − R²), which may be negative.

Intervals, of models drawn from a population of such models (image noise is in the scatter). Of a
group: m ± t·se with n − 2 degrees of freedom; R² from Fisher's interval of r (0 to the larger
square where it holds both signs). Of the average: m̄ ± z·√(Σ se²)/G; R² by inverting the test that
its mean is θ: with z_g = artanh r_g − r_g/(2(n_g − 1)), populations ζ_g = t·z_g/|z| are tried, z*_g
drawn from N(ζ_g, 1/(n_g − 3)), and the interval holds every θ = mean tanh²ζ_g for which the seen
mean R² is within the central ``level`` of the drawn ones. At θ = 0 it covers 97.5 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import hyp2f1, ndtri, stdtrit

from shiftbed.analysis.intervals import check_level, pearson, two_sided_p
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NAN = float("nan")
_FEWEST = 3
"""Models that a line and its R² need."""

MANY = 25
"""With fewer models in a group the interval of a mean R² covers 92 to 93 % where 95 is said."""


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
    adjusted: float = NAN
    slope_error: float = NAN
    centre: float = NAN
    """Mean of x, where the line is known best."""
    centre_error: float = NAN
    """Standard error of the line there."""
    note: str = ""

    def band(self, x: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
        """Confidence band of the line at x: ŷ ± t·√(s²/n + se(m)²(x − x̄)²).

        >>> fit = fit_group(np.array([0.0, 1, 2, 3]), np.array([1.0, 3, 5, 8]))
        >>> low, high = fit.band(np.array([1.5]))
        >>> round(float(low[0]), 3), round(float(high[0]), 3)
        (3.417, 5.083)
        """
        error = np.hypot(self.centre_error, self.slope_error * (x - self.centre))
        half = float(stdtrit(self.n - 2, 0.5 + check_level(level) / 2)) * error
        line = self.slope * x + self.intercept
        return line - half, line + half


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
    adjusted: float = NAN
    """Mean of the groups' unbiased R², see above."""
    n: int
    """Models in the groups that were fitted."""
    note: str = ""

    @property
    def fitted(self) -> tuple[Fit, ...]:
        return tuple(fit for fit in self.fits if np.isfinite(fit.r2))

    @property
    def small_groups(self) -> bool:
        """Whether R² is a mean over groups of which one has fewer than ``MANY`` models."""
        used = [fit.n for fit in self.fits if np.isfinite(fit.r2)]
        return len(used) > 1 and min(used) < MANY


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
        adjusted=unbiased_r2(r * r, n),
        slope_error=error,
        centre=float(x.mean()),
        centre_error=float(np.sqrt(residual / (n - 2) / n)),
        note="" if np.isfinite(low) else "no interval of R²: fewer than 4 models, or r = ±1",
    )


def unbiased_r2(r2: float, n: int) -> float:
    """Olkin and Pratt's unbiased estimate of ρ² from R² of n normal pairs; NaN for fewer than 4.

    >>> round(unbiased_r2(0.5, 10), 4), unbiased_r2(1.0, 10)
    (0.5093, 1.0)
    """
    if n < 4:
        return NAN
    return 1 - (n - 3) / (n - 2) * (1 - r2) * float(hyp2f1(1, 1, n / 2, 1 - r2))


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
        ends = _mean_r2_interval([f for f, _ in used], level, bootstrap, seed)
        bounds = slope - half, slope + half, *ends
    return Predictor(
        fits=fits,
        slope=slope,
        slope_low=bounds[0],
        slope_high=bounds[1],
        r2=r2,
        r2_low=bounds[2],
        r2_high=bounds[3],
        adjusted=float(np.mean([f.adjusted for f, _ in used])),
        n=n,
        note="; ".join(left),
    )


def _mean_r2_interval(
    fits: Sequence[Fit], level: float, draws: int, seed: int
) -> tuple[float, float]:
    """Every mean ρ² that the mean of the groups' R² does not speak against."""
    if draws < 1 or any(fit.n < 4 or fit.r2 >= 1.0 for fit in fits):
        return NAN, NAN
    n = np.array([fit.n for fit in fits], dtype=np.float64)
    r = np.sqrt([fit.r2 for fit in fits])
    seen = float((r * r).mean())
    z = np.maximum(np.arctanh(r) - r / (2 * (n - 1)), 0.0)
    length = float(np.sqrt((z**2).sum()))
    towards = z / length if length > 0 else np.full(len(z), len(z) ** -0.5)
    noise = np.random.default_rng(seed).standard_normal((draws, len(z))) / np.sqrt(n - 3)

    def quantile(t: float, share: float) -> float:
        true = t * towards
        drawn = np.tanh(true + np.tanh(true) / (2 * (n - 1)) + noise) ** 2
        return float(np.quantile(drawn.mean(axis=1), share))

    def end(share: float) -> float:
        """The mean ρ² from which on the seen one is the ``share`` quantile."""
        low, high = 0.0, 1.0
        if quantile(low, share) >= seen:
            return 0.0
        while quantile(high, share) < seen and high < 50:
            low, high = high, 2 * high
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if quantile(middle, share) < seen else (low, middle)
        return float((np.tanh(high * towards) ** 2).mean())

    tail = (1 - check_level(level)) / 2
    return end(1 - tail), end(tail)


@dataclass(frozen=True, kw_only=True)
class Lead:
    """By how much one measurement's mean R² is above another's."""

    gain: float
    p_value: float = NAN
    note: str = ""


def lead(
    first: Floats,
    second: Floats,
    y: Floats,
    groups: Sequence[tuple[str, Mask]],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Lead:
    """Does one measurement predict better than another? Mean R²(first) − mean R²(second).

    Models are drawn anew within each group, the same ones for both, over the models that have both;
    the p-value is two-sided, from the gain over its bootstrap standard error with Σ(n_g − 2)
    degrees of freedom. Comparing the best of many with the runner-up by a two-sided test at α calls
    one best that is not in at most α of cases (Gutmann and Maymin 1987).

    >>> x = np.linspace(0, 1, 20)
    >>> found = lead(x, np.cos(9 * x), x + 0.01 * np.sin(50 * x), [("all", x > -1)])
    >>> found.gain > 0.5, found.p_value < 0.01
    (True, True)
    """
    both = np.isfinite(first) & np.isfinite(second) & np.isfinite(y)
    used = [(i, rows & both) for i, (_, rows) in enumerate(groups)]
    used = [(i, rows) for i, rows in used if rows.sum() > _FEWEST]
    seen, drawn, dof = [], [], 0.0
    for i, rows in used:
        n = int(rows.sum())
        weights = np.vstack([np.full(n, 1 / n), _weights(seed, i, n, max(bootstrap, 0))])
        each = _weighted_r2(first[rows], y[rows], weights) - _weighted_r2(
            second[rows], y[rows], weights
        )
        if np.isfinite(each[0]):
            seen.append(float(each[0]))
            drawn.append(each[1:])
            dof += n - 2
    if not seen:
        return Lead(gain=NAN, note="no group has enough models with both")
    gain = float(np.mean(seen))
    if bootstrap < 2:
        return Lead(gain=gain, note="not tested: no resampling was asked for")
    error = float(np.nanstd(np.nanmean(drawn, axis=0), ddof=1))
    if error <= 1e-12:
        return Lead(gain=gain, p_value=1.0 if abs(gain) < 1e-9 else 0.0)
    return Lead(gain=gain, p_value=float(two_sided_p(gain / error, dof)))


def _weighted_r2(x: Floats, y: Floats, weights: Floats) -> Floats:
    """(draws,): R² of weighted models; NaN where x or y has no spread."""
    a, b = x - x.mean(), y - y.mean()
    one = weights @ np.stack([a, b, a * a, b * b, a * b], axis=1)
    across = (one[:, 2] - one[:, 0] ** 2) * (one[:, 3] - one[:, 1] ** 2)
    fine = across > 1e-12 * (a.var() * b.var())
    r2 = (one[:, 4] - one[:, 0] * one[:, 1]) ** 2 / np.where(fine, across, 1.0)
    return np.where(fine, np.minimum(r2, 1.0), np.nan)


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
