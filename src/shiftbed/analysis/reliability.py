"""Reliability diagrams: how often a model is right where it says how sure it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reliability:
    """Accuracy over confidence in bins of equal width; arrays are (bins,), NaN in empty bins."""

    edges: Floats
    """(bins + 1,)"""
    confidence: Floats
    """Mean confidence of a bin's examples."""
    accuracy: Floats
    low: Floats
    high: Floats
    """Clopper–Pearson interval of the accuracy."""
    n: NDArray[np.int64]
    level: float

    @property
    def error(self) -> float:
        """ECE = Σ_b (n_b/n)·|accuracy_b − confidence_b|."""
        there = self.n > 0
        gaps = np.abs(self.accuracy[there] - self.confidence[there])
        return float((self.n[there] * gaps).sum() / self.n.sum())


def reliability(
    confidence: ArrayLike, right: ArrayLike, *, bins: int = 10, level: float = 0.95
) -> Reliability:
    """Bins [i/b, (i+1)/b), the last one with 1.0 in it, as ``calibration_error`` has them.

    >>> found = reliability([0.95, 0.95, 0.55, 1.0], [True, False, True, True])
    >>> found.n.tolist(), round(found.error, 4)
    ([0, 0, 0, 0, 0, 1, 0, 0, 0, 3], 0.3375)
    """
    p, hit = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
    if p.ndim != 1 or p.shape != hit.shape or not p.size:
        raise InputError(f"confidences and answers must be two lists of one length, not {p.shape}")
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError("confidences must lie between 0 and 1")
    if bins < 1:
        raise InputError(f"bins must be at least 1, is {bins}")
    at = np.minimum((p * bins).astype(np.int64), bins - 1)
    n = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(at, weights=p, minlength=bins) / n
        share = np.bincount(at, weights=hit, minlength=bins) / n
    low, high = np.full(bins, np.nan), np.full(bins, np.nan)
    there = n > 0
    low[there], high[there] = clopper_pearson(share[there], n[there], level)
    return Reliability(
        edges=np.linspace(0, 1, bins + 1),
        confidence=mean,
        accuracy=share,
        low=low,
        high=high,
        n=n,
        level=level,
    )
