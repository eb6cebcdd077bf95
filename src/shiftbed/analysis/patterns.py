"""The shape of an (ID, OOD) scatter: line, vertical, horizontal, decreasing, or none.

wenzel2022 (Section 4.2, Figure 2) names the shapes by eye. Here each is a rule on five measures of
the accuracies x (ID) and y (OOD) of n networks; ``Rules`` holds the thresholds:

- spreads: s_x, s_y = 90 % − 10 % quantile of x and y, freed of image noise where sizes are known;
- steepness: s_x / s_y;
- rank: Spearman's r of x and y;
- slope: the least-squares slope on the scale, and whether its interval leaves out 0;
- kept: (90 % quantile of y − chance) / (median of x − chance), how much of the ID accuracy above
  chance the best networks keep.

Asked in this order: *horizontal* (no transfer) if kept ≤ 0.2; *no clear trend* if both spreads are
under 2 points; where steepness ≤ 0.25, *vertical* (underspecified) unless |r| ≥ 0.8; *increasing*
or *decreasing* if |r| ≥ 0.5 and the slope's interval is on the same side of 0; else *no clear
trend*. The margin is the distance of the nearest measure from a threshold that would change the
answer, in standard errors over resampled networks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_fractions, check_level
from shiftbed.analysis.predictiveness import average_ranks
from shiftbed.errors import InputError
from shiftbed.scales import LOGIT, Scale
from shiftbed.scales import scale as scale_of

Floats = NDArray[np.float64]
NAN = float("nan")
INTERDECILE = 2.5631031310892007
"""90 % − 10 % quantile of a standard normal variable."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What the rules for patterns are about."""

    n: int
    spread_id: float = NAN
    spread_ood: float = NAN
    steepness: float = NAN
    """spread_id/spread_ood, infinite where there is no OOD spread."""
    rank: float = NAN
    """Spearman's r; 0 where one side has no spread (then ``undefined`` says so)."""
    slope: float = NAN
    """Least-squares slope on the scale; NaN where there is none (then ``undefined`` says so)."""
    slope_low: float = NAN
    slope_high: float = NAN
    slope_t: float = 0.0
    """Slope over the half width of its interval: ±1 and beyond leave out 0; 0 without a slope."""
    kept: float = NAN
    """Share of the median ID accuracy above chance that the best tenth keeps."""
    above_chance: bool = True
    """Whether the median ID accuracy is better than chance."""
    on_boundary: int = 0
    """Networks at exactly 0 or 1, which the scale cannot place."""
    undefined: str
    """Why the rank correlation or the slope is missing, "" if neither is."""


def _measures(
    points: Floats,
    rows: NDArray[np.int64],
    *,
    chance: float,
    sizes: tuple[int, int] | None,
    scale: Scale,
    level: float,
) -> list[Measures]:
    """Of accuracies (n, 2), ID and OOD, none missing: one for each resample of their rows."""
    count, n = rows.shape
    if n < 3:  # nothing to measure: the rules ask for n first
        return [Measures(n=n, undefined=f"{n} networks: nothing can be measured")] * count
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


PATTERNS = ("increasing", "vertical", "horizontal", "decreasing", "no clear trend", "undecided")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Thresholds of the rules. Spreads are accuracies (fractions)."""

    least_models: int = 10
    flat: float = 0.02
    """A spread below this is no spread."""
    steep: float = 0.25
    """s_x/s_y at or below this is a vertical line, unless x explains y."""
    kept: float = 0.2
    """Networks that keep no more than this of their accuracy above chance do not transfer."""
    trend: float = 0.5
    """|r| from which on there is a trend."""
    strong: float = 0.8
    """|r| from which on a steep scatter is a line, not underspecified."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pattern:
    """The shape of one scatter, and how sure that is."""

    pattern: str
    """One of ``PATTERNS``."""
    reason: str
    n: int
    """Networks with both accuracies."""
    left_out: int
    """Networks with a missing accuracy."""
    measures: Measures
    rank_low: float
    rank_high: float
    """Interval of Spearman's r: tanh(artanh r ± z √((1 + r²/2)/(n − 3)))."""
    nearest: str
    """The pattern it would be on the other side of the nearest threshold; "" if undecided."""
    margin: float
    """Distance to that threshold in standard errors; infinite if no single measure decides."""
    margin_by: str
    """Measure that is nearest to its threshold."""
    share: float
    """Share of resamples with the same pattern; NaN if undecided."""
    draws: int
    scale: str
    chance: float | None
    """Accuracy of guessing; None if unknown, then 0 was taken."""
    level: float
    notes: tuple[str, ...]


def classify(
    x: ArrayLike,
    y: ArrayLike,
    *,
    chance: float | None = None,
    sizes: tuple[int, int] | None = None,
    scale: str | Scale = LOGIT,
    rules: Rules | None = None,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Pattern:
    """The pattern of ID accuracies x (n,) and OOD accuracies y (n,); NaN is missing.

    ``chance`` is 1/(number of classes); ``sizes`` are the images of the two test sets.

    >>> x = np.linspace(0.5, 0.9, 40)
    >>> classify(x, 0.8 * x + 0.01 * np.sin(40 * x)).pattern
    'increasing'
    >>> classify(x, 0.1 + 0.01 * np.cos(40 * x), chance=0.1).pattern
    'horizontal'
    """
    rules = rules or Rules()
    check_level(level)
    given = np.column_stack([_column(x, "ID"), _column(y, "OOD")])
    if chance is not None and not 0.0 <= chance < 1.0:
        raise InputError(f"chance must be a fraction below 1, got {chance:g}")
    points = given[np.isfinite(given).all(axis=1)]
    how: dict[str, Any] = {
        "chance": chance or 0.0,
        "sizes": sizes,
        "scale": scale_of(scale),
        "level": level,
    }
    found = _measures(points, np.arange(len(points))[None, :], **how)[0]
    pattern, reason = decide(found, rules)
    spread: list[Measures] = []
    if pattern != "undecided" and bootstrap > 0:
        rng = np.random.default_rng([seed, len(points), bootstrap])
        drawn = rng.integers(0, len(points), (bootstrap, len(points)))
        spread = _measures(points, drawn, **how)
    nearest, margin, by = _margin(found, spread, rules, pattern)
    same = [decide(one, rules)[0] == pattern for one in spread]
    low, high = _rank_interval(found.rank, len(points), level)
    return Pattern(
        pattern=pattern,
        reason=reason,
        n=len(points),
        left_out=len(given) - len(points),
        measures=found,
        rank_low=low,
        rank_high=high,
        nearest=nearest,
        margin=margin,
        margin_by=by,
        share=float(np.mean(same)) if same else float("nan"),
        draws=len(spread),
        scale=scale_of(scale).name,
        chance=chance,
        level=level,
        notes=_notes(found, chance, sizes, scale_of(scale).name),
    )


def decide(found: Measures, rules: Rules) -> tuple[str, str]:
    """The pattern of these measures and the rule that gave it, in words."""
    if found.n < rules.least_models:
        few = f"{found.n} network{'s' if found.n != 1 else ''}"
        return "undecided", f"{few} with both accuracies, at least {rules.least_models} are needed"
    if not found.above_chance:
        return "undecided", "at least half of the networks are no better than chance on ID data"
    if found.kept <= rules.kept:
        return "horizontal", f"keeps {found.kept:.0%} of its ID accuracy above chance"
    flat_x, flat_y = found.spread_id < rules.flat, found.spread_ood < rules.flat
    if flat_x and flat_y:
        return (
            "no clear trend",
            f"all networks are alike: both spreads < {100 * rules.flat:g} points",
        )
    steep = found.steepness <= rules.steep
    needed = rules.strong if steep else rules.trend
    sides = (found.rank >= needed and found.slope_t >= 1.0) - (
        found.rank <= -needed and found.slope_t <= -1.0
    )
    if sides:
        way = "increasing" if sides > 0 else "decreasing"
        return way, f"rank correlation {found.rank:.2f}, slope clear of 0"
    if steep:
        return "vertical", (
            f"ID spread {100 * found.spread_id:.1f} points, OOD spread "
            f"{100 * found.spread_ood:.1f} points, rank correlation {found.rank:.2f}"
        )
    if abs(found.rank) >= rules.trend:
        return "no clear trend", f"rank correlation {found.rank:.2f}, but the slope may be 0"
    return "no clear trend", f"rank correlation {found.rank:.2f}"


def _margin(
    found: Measures, draws: Sequence[Measures], rules: Rules, pattern: str
) -> tuple[str, float, str]:
    """Nearest other pattern, distance to it in standard errors, and the measure that decides."""
    if len(draws) < 2:
        return "", float("nan"), ""
    best: tuple[str, float, str] = ("", float("inf"), "")
    for name, thresholds, stretch in _thresholds(rules):
        at = float(stretch(np.float64(getattr(found, name))))
        values = stretch(np.array([getattr(one, name) for one in draws]))
        error = float(np.std(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
        for threshold in thresholds:
            beyond = threshold + (1e-9 if getattr(found, name) < threshold else -1e-9)
            moved: dict[str, Any] = {name: beyond}
            other = decide(replace(found, **moved), rules)[0]
            if other in (pattern, "undecided"):
                continue
            away = abs(at - float(stretch(np.float64(threshold))))
            distance = away / error if error > 0 else float("inf")
            if distance < best[1]:
                best = (other, distance, name)
    return best


def _thresholds(
    rules: Rules,
) -> list[tuple[str, tuple[float, ...], Callable[[Floats | np.float64], Floats]]]:
    """Measures, their thresholds, and the scale on which their errors are about normal."""
    ranks = (rules.trend, rules.strong)
    return [
        ("kept", (rules.kept,), np.asarray),
        ("spread_id", (rules.flat,), np.asarray),
        ("spread_ood", (rules.flat,), np.asarray),
        ("steepness", (rules.steep,), lambda v: np.log(np.clip(v, 1e-6, 1e6))),
        ("rank", (*ranks, *(-r for r in ranks)), lambda v: np.arctanh(np.clip(v, -0.9999, 0.9999))),
        ("slope_t", (1.0, -1.0), np.asarray),
    ]


def _rank_interval(rank: float, n: int, level: float) -> tuple[float, float]:
    if n < 4 or not abs(rank) < 1.0:
        return float("nan"), float("nan")
    half = float(ndtri(0.5 + level / 2)) * np.sqrt((1.0 + rank**2 / 2.0) / (n - 3))
    centre = np.arctanh(rank)
    return float(np.tanh(centre - half)), float(np.tanh(centre + half))


def _column(values: ArrayLike, what: str) -> Floats:
    found = np.asarray(check_fractions(values, f"{what} accuracy"))
    if found.ndim != 1:
        raise InputError(f"{what} accuracies must be a list, got an array of {found.shape}")
    return found


def _notes(
    found: Measures, chance: float | None, sizes: tuple[int, int] | None, scale: str
) -> tuple[str, ...]:
    notes = []
    if chance is None:
        notes.append("chance is unknown and taken as 0")
    if sizes is None:
        notes.append("test-set sizes are unknown: spreads include image noise")
    if found.on_boundary:
        notes.append(f"{found.on_boundary} networks at exactly 0 or 1 are not in the {scale} slope")
    if found.undefined:
        notes.append(found.undefined)
    return tuple(notes)
