"""Do several ID accuracies say the same? Variance inflation, condition number, pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
INFLATION = 10.0
CONDITION = 30.0
ALIKE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Collinearity:
    """How far columns can be told apart."""

    inflation: Floats
    """(k,): VIF = 1/(1 − R²) of each column given the others: by how much its weight's variance
    is larger than it would be if the others were uncorrelated with it."""
    condition: float
    """Largest over smallest singular value of the standardised columns."""
    correlation: Floats
    """(k, k)"""
    warnings: tuple[str, ...]


def collinearity(scaled: Floats, names: Sequence[str]) -> Collinearity:
    """Collinearity of columns (m, k), none of them constant.

    VIF are the diagonal of the inverse correlation matrix.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((2, 50))
    >>> found = collinearity(np.column_stack([a, a + 0.1 * b]), ["a", "b"])
    >>> len(found.warnings)
    3
    """
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    matrix = standard.T @ standard / len(scaled)
    values = np.linalg.svd(standard, compute_uv=False)
    condition = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
    inflation = np.diag(np.linalg.inv(matrix)) if condition < 1e8 else np.full(len(names), np.inf)
    return Collinearity(
        inflation=inflation,
        condition=condition,
        correlation=matrix,
        warnings=tuple(_warnings(names, inflation, condition, matrix)),
    )


def _warnings(
    names: Sequence[str], inflation: Floats, condition: float, matrix: Floats
) -> list[str]:
    found = []
    for i, name in enumerate(names):
        if inflation[i] > INFLATION:
            found.append(
                f"{name}: the other ID sets predict it (VIF {inflation[i]:.0f} > {INFLATION:g}); "
                "its weight is uncertain"
            )
    if condition > CONDITION:
        found.append(
            f"the ID sets together are nearly collinear (condition number {condition:.0f} > "
            f"{CONDITION:g}): predictions hold, single weights mean little"
        )
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            if abs(matrix[i, j]) > ALIKE:
                found.append(f"{names[i]} and {names[j]} correlate by {matrix[i, j]:.3f}")
    return found
