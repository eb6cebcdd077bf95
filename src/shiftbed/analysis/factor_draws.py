"""How far loadings and eigenvalues move when other networks had been drawn."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.extraction import (
    Extraction,
    eigenvalues,
    leading,
    minimum_residual,
)
from shiftbed.analysis.rotation import gamma_of, match, procrustes, turn_planes, unit_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class FactorDraws:
    """Loadings and eigenvalues of resampled networks."""

    asked: int
    loadings: Floats
    """(n, p, k)"""
    eigenvalues: Floats
    """(n, p)"""

    @property
    def n(self) -> int:
        """Resamples that gave a solution."""
        return len(self.loadings)

    def ends(self, draws: Floats, level: float) -> tuple[Floats, Floats]:
        """Percentile intervals over the first axis; NaN if there are fewer than two resamples."""
        if self.n < 2:
            nothing = np.full(draws.shape[1:], np.nan)
            return nothing, nothing
        tail = (1.0 - level) / 2.0
        low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        return np.asarray(low), np.asarray(high)

    def note(self, unit: str) -> str:
        """What the intervals are, or why there are none."""
        if self.asked <= 0:
            return "no intervals: no resampling was asked for"
        if self.n < 2:
            return f"no intervals: {self.n} of {self.asked} resamples gave a solution"
        lost = f"; {self.asked - self.n} more gave no solution" if self.n < self.asked else ""
        return f"percentiles over {self.n} resamples of the {unit}s, taken as independent{lost}"


def resampled_loadings(
    values: Floats,
    units: NDArray[np.int64],
    found: Extraction,
    loadings: Floats,
    extraction: str,
    rotation: str,
    kaiser: bool,
    draws: int,
    seed: int,
) -> FactorDraws:
    """Extract and rotate again on ``draws`` resamples of the units that rows of values belong to.

    Each solution is laid over ``loadings`` (Procrustes), rotated by the criterion from there, and
    matched in sign and order, so that the intervals include the rotation's own uncertainty. A
    resample in which a column is constant, or whose extraction does not converge, has no loadings
    to give and is left out. Principal axis and minimum residual share their solutions; the
    quicker one does the resamples of both.
    """
    p = values.shape[1]
    stack = _resampled_correlations(values, units, draws, seed)
    k = loadings.shape[1]
    if extraction != "components":
        psi, _, converged = minimum_residual(stack, k, found.uniqueness, tolerance=1e-6)
        stack = stack[converged]
        reduced = stack - psi[converged][:, :, None] * np.eye(p)
    else:
        reduced = stack
    near = leading(reduced, k)
    near = near @ procrustes(near, loadings)
    if rotation != "none" and k > 1:
        rows = unit_rows(near) if kaiser else near
        near = near @ turn_planes(rows, np.eye(k), gamma_of(rotation, k), tolerance=1e-6)
    return FactorDraws(
        asked=draws,
        loadings=np.array([match(one, loadings) for one in near]).reshape(-1, p, k),
        eigenvalues=eigenvalues(stack),
    )


def _resampled_correlations(
    values: Floats, units: NDArray[np.int64], draws: int, seed: int
) -> Floats:
    """(≤ draws, p, p): correlations of resamples, without those in which a column is constant.

    How often each unit is drawn weighs the moments of its rows, so a matrix product does many
    resamples.
    """
    (n, p), count = values.shape, int(units.max()) + 1
    rng = np.random.default_rng([seed, n, p, max(draws, 0)])
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    squares = (standard[:, :, None] * standard[:, None, :]).reshape(n, p * p)
    found = [np.empty((0, p, p))]
    step = max(1, 4_000_000 // n)
    for first in range(0, draws, step):
        several = range(first, min(first + step, draws))
        drawn = [np.bincount(rng.integers(0, count, count), minlength=count) for _ in several]
        weights = np.array(drawn, dtype=np.float64)[:, units]
        weights /= weights.sum(axis=1, keepdims=True)
        mean = weights @ standard
        covariance = (weights @ squares).reshape(-1, p, p) - mean[:, :, None] * mean[:, None, :]
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        varied = (variance > 1e-12).all(axis=1)
        length = np.sqrt(variance[varied])
        matrices = covariance[varied] / (length[:, :, None] * length[:, None, :])
        matrices[:, np.arange(p), np.arange(p)] = 1.0
        found.append(np.clip(matrices, -1.0, 1.0))
    return np.concatenate(found)
