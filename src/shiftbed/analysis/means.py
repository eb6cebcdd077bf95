"""Mean effective robustness of a group of models, which share the line and the test images.

The mean of n values of ρ is less certain than their spread says: the line's error moves them all,
and so do the images. With E (n, n) the covariance of the errors of ρ and d the deviations from the
mean, Var = 1ᵀE1/n² + max(B − tr(QE), 0), where B = dᵀQd is the variance of a mean of models (or of
families f, where they are known: B = F/(F−1) Σ_f (Σ_{i∈f} d_i)²/n²), of which the part that
errors explain is taken off. Degrees of freedom by Welch and Satterthwaite: F − 1 for the spread,
those of the line for its share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Errors:
    """Errors of ρ of n models."""

    matrix: Floats
    """(n, n): their covariance, from the line and the images."""
    fit: Floats
    """(n, n): the part of it that comes from the scatter of the fitted models."""
    corrected: Floats
    """(n,): ρ against the line freed of attenuation."""
    dof: float
    """Degrees of freedom of ``fit``."""
    interval: str
    """``paired``, ``modelled`` or ``independent``."""


@dataclass(frozen=True, kw_only=True)
class GroupMean:
    """The mean of ρ over a group, as a sample of models of its kind."""

    mean: float
    std: float
    low: float
    high: float
    n: int
    families: int | None
    shared: float
    """Variance of the mean from the line and the images."""
    spread: float
    """… from the models' (families') spread."""
    dof: float


def group_mean(
    rho: Floats,
    errors: Errors | None,
    families: Sequence[str | None] | None = None,
    level: float = 0.95,
) -> GroupMean:
    """Mean of ρ (n,) with an interval; none for fewer than two models (families), or no errors.

    >>> nothing = np.zeros((3, 3))
    >>> exact = Errors(matrix=nothing, fit=nothing, corrected=np.array([0.0, 0.01, 0.02]), dof=9,
    ...                interval="paired")
    >>> found = group_mean(exact.corrected, exact)
    >>> round(found.mean, 3), round(found.high - found.mean, 4)  # t(0.975, 2)·0.01/√3
    (0.01, 0.0248)
    """
    n = len(rho)
    mean, std = float(rho.mean()), float(rho.std(ddof=1)) if n > 1 else float("nan")
    related = (
        None if families is None else [f"\0{i}" if f is None else f for i, f in enumerate(families)]
    )
    units = list(range(n)) if related is None else related
    _, codes = np.unique(np.asarray(units, dtype=str), return_inverse=True)
    count = int(codes.max()) + 1 if n else 0
    found: dict[str, Any] = {"mean": mean, "std": std, "n": n}
    found["families"] = None if families is None else count
    if errors is None or count < 2:
        nothing = float("nan")
        return GroupMean(
            **found, low=nothing, high=nothing, shared=nothing, spread=nothing, dof=nothing
        )
    sums = np.zeros((count, n))
    sums[codes, np.arange(n)] = 1.0
    sums -= sums.mean(axis=1, keepdims=True)  # sums of deviations from the mean
    form = count / (count - 1) * sums.T @ sums / n**2
    between = float(rho @ form @ rho)
    shared = max(float(errors.matrix.sum()), 0.0) / n**2
    spread = max(between - float(np.sum(form * errors.matrix)), 0.0)
    fit = max(float(errors.fit.sum()), 0.0) / n**2
    total = shared + spread
    dof = total**2 / max(spread**2 / (count - 1) + fit**2 / errors.dof, 1e-300)
    half = float(stdtrit(min(dof, 1e9), 0.5 + level / 2)) * float(np.sqrt(total))
    centre = float(errors.corrected.mean())
    other = mean if abs(centre - mean) > half else centre
    low, high = min(centre, other) - half, max(centre, other) + half
    return GroupMean(**found, low=low, high=high, shared=shared, spread=spread, dof=dof)


def mean_of_shifts(
    rho: Floats,
    shared: Sequence[float],
    families: Sequence[str | None] | None = None,
    level: float = 0.95,
) -> GroupMean:
    """The mean over models of ρ (n,) that was averaged over shifts before.

    ``shared`` is each shift's variance of the mean from its line and images. Lines and images of
    different shifts are taken to err together: the error is at most the mean of the shifts' errors.
    """
    n, nothing = len(rho), np.zeros((len(rho), len(rho)))
    errors = None
    if np.isfinite(shared).all():
        together = np.full((n, n), float(np.sqrt(shared).mean()) ** 2)
        errors = Errors(
            matrix=together, fit=nothing, corrected=rho, dof=1.0, interval="independent"
        )
    return group_mean(rho, errors, families, level)
