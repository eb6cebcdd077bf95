"""Are two models equally accurate? McNemar's exact test, and many tests at once by Holm's rule."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtri

from shiftbed.analysis.intervals import check_level
from shiftbed.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class McNemar:
    """Test of equal accuracy from answers to the same n examples, elementwise."""

    difference: Floats
    """Accuracy of the first less that of the second."""
    low: Floats
    high: Floats
    p_value: Floats
    """Exact, two-sided."""


def mcnemar(first_only: ArrayLike, second_only: ArrayLike, n: int, level: float = 0.95) -> McNemar:
    """McNemar's exact test from b = first right alone and c = second right alone, of n examples.

    If the models are equally accurate, b given b + c is binomial with ½, so
    p = min(1, 2·P(B(b+c, ½) ≤ min(b, c))); 1 where they never differ. The difference (b − c)/n gets
    the paired Wald interval with ½ added to each cell of the table (Agresti and Min 2005).

    >>> found = mcnemar(9, 1, 50)
    >>> round(float(found.p_value), 5), round(float(found.difference), 2)
    (0.02148, 0.16)
    """
    b, c = np.broadcast_arrays(np.asarray(first_only), np.asarray(second_only))
    if n < 1:
        raise InputError("McNemar's test needs at least one example")
    if (b < 0).any() or (c < 0).any() or (b + c > n).any():
        raise InputError(f"counts of McNemar's table must be at least 0 and together at most {n}")
    with np.errstate(invalid="ignore"):
        p = np.minimum(1.0, 2.0 * bdtr(np.minimum(b, c), b + c, 0.5))
    p = np.where(b == c, 1.0, p)
    size, wide_b, wide_c = n + 2.0, b + 0.5, c + 0.5
    centre = (wide_b - wide_c) / size
    spread = np.sqrt(np.maximum(wide_b + wide_c - (wide_b - wide_c) ** 2 / size, 0.0)) / size
    half = float(ndtri(0.5 + check_level(level) / 2)) * spread
    return McNemar(
        difference=np.asarray((b - c) / n),
        low=np.asarray(np.maximum(centre - half, -1.0)),
        high=np.asarray(np.minimum(centre + half, 1.0)),
        p_value=np.asarray(p),
    )


def holm(p_values: ArrayLike) -> Floats:
    """Adjusted p-values of Holm; NaN stays NaN.

    Calling everything at or below α different makes one or more mistakes with probability at most
    α, however the tests depend on each other: p̃_(k) = max_{l≤k} min(1, (m − l + 1)·p_(l)).

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    there = np.flatnonzero(np.isfinite(p))
    order = there[np.argsort(p[there], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted
