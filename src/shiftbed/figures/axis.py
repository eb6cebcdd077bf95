"""An axis of accuracies on one of the scales: its range, its ticks, where a value is drawn."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.scales import Scale

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """Positions are scaled values S(p), from ``low`` to ``high``; ticks are accuracies p."""

    setting: str
    title: str
    n: int
    """The test-set size most models have, 0 if unknown."""
    scale: Scale
    low: float
    high: float
    ticks: tuple[float, ...]

    @property
    def tick_labels(self) -> list[str]:
        return [percent(tick) for tick in self.ticks]

    def thinned(self, most: int) -> "Axis":
        """With fewer ticks where there is no room for all."""
        if len(self.ticks) <= most:
            return self
        ticks = self.scale.ticks(self.ticks[0], self.ticks[-1], max(2, most))
        return replace(self, ticks=tuple(ticks))

    def at(self, accuracy: ArrayLike) -> Floats:
        """Positions of accuracies, wherever they fall."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.scale.forward(accuracy)

    def within(self, accuracy: ArrayLike) -> Floats:
        """Positions kept on the axis: what lies beyond an end, if only 0 or 1, is put on it.

        >>> from shiftbed.scales import LOGIT
        >>> axis = fit_axis([0.0, 0.5, 0.9], scale=LOGIT, setting="a", title="a", n=0)
        >>> float(axis.within(0.0)) == axis.low
        True
        """
        return np.clip(self.at(accuracy), self.low, self.high)

    def between(self, low: float, high: float) -> "Axis":
        """The axis from one accuracy to another."""
        ends = self.scale.forward([low, high])
        ticks = tuple(self.scale.ticks(low, high))
        return replace(self, low=float(ends[0]), high=float(ends[1]), ticks=ticks)


def fit_axis(
    accuracy: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    scale: Scale,
    setting: str,
    title: str,
    n: int,
) -> Axis:
    """An axis around accuracies and their intervals [lower, upper].

    Intervals widen the axis by an eighth of the points' range at most. Accuracies with no finite
    position (0 and 1 on the logit and probit scales) get room at the end they are drawn on.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        points = scale.forward(accuracy)
        ends = [points if e is None else scale.forward(e) for e in (lower, upper)]
    inside = points[np.isfinite(points)]
    if len(inside):
        low, high = float(inside.min()), float(inside.max())
    else:
        low, high = (float(v) for v in scale.forward([0.05, 0.95]))
    if high - low < 1e-9:
        low, high = low - 0.1, high + 0.1
    span = high - low
    reach_low = np.nanmin(np.append(ends[0], low))
    reach_high = np.nanmax(np.append(ends[1], high))
    margins = [
        min(low - float(reach_low), span / 8) + (0.04 + 0.06 * (points == -np.inf).any()) * span,
        min(float(reach_high) - high, span / 8) + (0.04 + 0.06 * (points == np.inf).any()) * span,
    ]
    low, high = float(low - margins[0]), float(high + margins[1])
    bounds = [float(scale.inverse(end)) for end in (low, high)]
    return Axis(
        setting=setting,
        title=title,
        n=n,
        scale=scale,
        low=low,
        high=high,
        ticks=tuple(scale.ticks(max(bounds[0], 0.0), min(bounds[1], 1.0))),
    )


def percent(fraction: float, digits: int | None = None) -> str:
    """A fraction as a percentage, as short as it is exact unless digits are asked for.

    >>> percent(0.55), percent(0.995), percent(0.5512, 1)
    ('55%', '99.5%', '55.1%')
    """
    if not math.isfinite(fraction):
        return "–"
    text = f"{100 * fraction:.10g}" if digits is None else f"{100 * fraction:.{digits}f}"
    return text.replace("-", "−") + "%"
