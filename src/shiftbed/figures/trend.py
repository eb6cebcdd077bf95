"""Fitted lines as they are drawn: over a grid, with their band, piece by piece."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Baseline

Floats = NDArray[np.float64]
_STEPS = 201


@dataclass(frozen=True, kw_only=True, eq=False)
class Trend:
    """A fitted line over a grid of ID accuracies; a line with a knee makes two."""

    name: str
    """What the testbed calls its line, or the group the line was fitted on and "line"."""
    x: Floats
    predicted: Floats
    low: Floats
    high: Floats
    """Confidence band of the line."""
    extrapolated: NDArray[np.bool_]
    """Where x is outside the fitted models' range."""
    n: int
    slope: float
    intercept: float


def trends(baseline: Baseline, name: str, x: Floats, level: float) -> list[Trend]:
    """The baseline's pieces over the range of the accuracies x, each on its side of a knee."""
    scale = baseline.scale
    inside = x[np.isfinite(x)] if scale.bounded else x[(x > 0.0) & (x < 1.0)]
    reach = np.append(inside, baseline.support[0])
    pieces = []
    for line in baseline.lines:
        ends = scale.forward(
            [max(reach.min(), line.low), min(reach.max(), np.nextafter(line.high, 0.0))]
        )
        grid = np.linspace(ends[0], ends[1], _STEPS)
        grid = np.unique(np.append(grid, np.clip(scale.forward(baseline.support[0]), *ends)))
        at = np.clip(scale.inverse(grid), line.low, np.nextafter(line.high, 0.0))
        band = baseline.band(at, level, kind="bootstrap" if len(line.draws) else "analytic")
        pieces.append(
            Trend(
                name=name,
                x=at,
                predicted=baseline.predict(at),
                low=band[0],
                high=band[1],
                extrapolated=baseline.extrapolated(at),
                n=line.n,
                slope=line.weights[0],
                intercept=line.intercept,
            )
        )
    return pieces
