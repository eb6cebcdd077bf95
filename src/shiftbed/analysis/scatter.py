"""Measures of one (ID, OOD) scatter, for many resamples of its networks at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from shiftbed.analysis.predictiveness import average_ranks
from shiftbed.scales import Scale

Floats = NDArray[np.float64]
INTERDECILE = 2.5631031310892007
"""90 % − 10 % quantile of a standard normal variable."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What the rules for patterns are about; see ``shiftbed.analysis.patterns``."""

    n: int
    spread_id: float
    spread_ood: float
    steepness: float
    """spread_id/spread_ood, infinite where there is no OOD spread."""
    rank: float
    """Spearman's r; 0 where one side has no spread (then ``undefined`` says so)."""
    slope: float
    """Least-squares slope on the scale; NaN where there is none (then ``undefined`` says so)."""
    slope_low: float
    slope_high: float
    slope_t: float
    """Slope over the half width of its interval: ±1 and beyond leave out 0; 0 without a slope."""
    kept: float
    """Share of the median ID accuracy above chance that the best tenth keeps."""
    above_chance: bool
    """Whether the median ID accuracy is better than chance."""
    on_boundary: int
    """Networks at exactly 0 or 1, which the scale cannot place."""
    undefined: str
    """Why the rank correlation or the slope is missing, "" if neither is."""


def measure(
    points: Floats, *, chance: float, sizes: tuple[int, int] | None, scale: Scale, level: float
) -> Measures:
    """Measures of accuracies (n, 2), ID and OOD, none missing."""
    rows = np.arange(len(points))[None, :]
    return _measures(points, rows, chance, sizes, scale, level)[0]


def resampled(
    points: Floats,
    draws: int,
    seed: int,
    *,
    chance: float,
    sizes: tuple[int, int] | None,
    scale: Scale,
    level: float,
) -> list[Measures]:
    """Measures of ``draws`` resamples of the rows of points (n, 2)."""
    n = len(points)
    rows = np.random.default_rng([seed, n, draws]).integers(0, n, (max(draws, 0), n))
    return _measures(points, rows, chance, sizes, scale, level) if draws > 0 else []


def _measures(
    points: Floats,
    rows: NDArray[np.int64],
    chance: float,
    sizes: tuple[int, int] | None,
    scale: Scale,
    level: float,
) -> list[Measures]:
    count, n = rows.shape
    if n < 3:  # nothing to measure: the rules ask for n first
        return [_nothing(n)] * count
    drawn = points[rows]
    low, high = np.quantile(drawn, [0.1, 0.9], axis=1)
    spread = high - low
    if sizes is not None:
        noise = (drawn * (1.0 - drawn)).mean(axis=1) / np.asarray(sizes, np.float64)
        spread = np.sqrt(np.maximum(spread**2 - INTERDECILE**2 * noise, 0.0))
    room = np.median(drawn[:, :, 0], axis=1) - chance
    rank = _correlation(average_ranks(drawn[:, :, 0]), average_ranks(drawn[:, :, 1]))
    slope, half, lost = _slopes(points, rows, scale, level)
    with np.errstate(divide="ignore", invalid="ignore"):
        steepness = np.where(spread[:, 1] > 0, spread[:, 0] / spread[:, 1], np.inf)
        kept = np.where(room > 0, (high[:, 1] - chance) / room, np.nan)
        t = np.where(np.isfinite(slope) & (half > 0), slope / half, np.sign(slope) * np.inf)
    return [
        Measures(
            n=n,
            spread_id=float(spread[i, 0]),
            spread_ood=float(spread[i, 1]),
            steepness=float(steepness[i]),
            rank=float(rank[i]) if np.isfinite(rank[i]) else 0.0,
            slope=float(slope[i]),
            slope_low=float(slope[i] - half[i]),
            slope_high=float(slope[i] + half[i]),
            slope_t=0.0 if np.isnan(t[i]) else float(np.clip(t[i], -1e6, 1e6)),
            kept=float(kept[i]),
            above_chance=bool(room[i] > 0),
            on_boundary=int(lost[i]),
            undefined=_undefined(rank[i], slope[i], drawn[i], scale.name),
        )
        for i in range(count)
    ]


def _slopes(
    points: Floats, rows: NDArray[np.int64], scale: Scale, level: float
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Slope on the scale, half its interval, and how many rows the scale cannot place."""
    inside = np.ones(len(points), dtype=bool)
    if not scale.bounded:
        inside = np.asarray(((points > 0.0) & (points < 1.0)).all(axis=1))
    scaled = scale.forward(np.where(inside[:, None], points, 0.5))
    weight = inside[rows].astype(np.float64)
    m = weight.sum(axis=1)
    x, y = scaled[rows, 0], scaled[rows, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (x - ((weight * x).sum(axis=1) / m)[:, None]) * weight
        y = (y - ((weight * y).sum(axis=1) / m)[:, None]) * weight
        sxx, sxy, syy = (x * x).sum(axis=1), (x * y).sum(axis=1), (y * y).sum(axis=1)
        fits = (m >= 3) & (sxx > 1e-12)
        slope = np.where(fits, sxy / sxx, np.nan)
        rest = np.maximum(syy - slope * sxy, 0.0) / np.maximum(m - 2.0, 1.0)
        half = stdtrit(np.maximum(m - 2.0, 1.0), 0.5 + level / 2) * np.sqrt(rest / sxx)
    return slope, np.where(fits, half, np.nan), (rows.shape[1] - m).astype(np.int64)


def _correlation(a: Floats, b: Floats) -> Floats:
    """Pearson's r of the rows of a and b; NaN where one of them is constant."""
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    length = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(length > 0, (a * b).sum(axis=1) / length, np.nan)
    return np.clip(found, -1.0, 1.0)


def _undefined(rank: float, slope: float, points: Floats, scale: str) -> str:
    if np.isfinite(rank) and np.isfinite(slope):
        return ""
    for column, what in ((0, "ID"), (1, "OOD")):
        if np.ptp(points[:, column]) == 0:
            return f"all {what} accuracies are the same: no rank correlation"
    return f"no {scale} slope: too few networks strictly between 0 and 1, or no ID spread"


def _nothing(n: int) -> Measures:
    nan = float("nan")
    return Measures(
        n=n,
        spread_id=nan,
        spread_ood=nan,
        steepness=nan,
        rank=nan,
        slope=nan,
        slope_low=nan,
        slope_high=nan,
        slope_t=0.0,
        kept=nan,
        above_chance=True,
        on_boundary=0,
        undefined=f"{n} networks: nothing can be measured",
    )
