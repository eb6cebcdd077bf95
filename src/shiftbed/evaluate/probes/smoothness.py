"""How smoothly a model's probabilities change along a path (fridovich2022, Section 3)."""

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from shiftbed.errors import InputError

__all__ = ["VARIANTS", "consistent_distance", "high_frequency_fraction"]

Floats = NDArray[np.float64]
VARIANTS = ("paper", "released")


def high_frequency_fraction(
    probabilities: NDArray[np.floating], *, threshold: float = 0.1, variant: str = "paper"
) -> Floats:
    """(P,): share of the DFT's magnitude at or above a tenth of the highest frequency.

    ``probabilities`` (P, points, classes) are softmax outputs along P paths. With B = ⌊points/2⌋+1
    bins m_b, the mean over classes of |rFFT|, HFF = Σ_{b ≥ ⌈0.1·B⌉} m_b / Σ_b m_b: bins 6 to 50 of
    51 for 100 points. The code released with the paper leaves the last bin out of the numerator
    (``variant="released"``: bins 6 to 49 over bins 0 to 50).

    >>> flat = np.full((1, 100, 3), 1 / 3)
    >>> high_frequency_fraction(flat)
    array([0.])
    """
    if variant not in VARIANTS:
        raise InputError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    if probabilities.ndim != 3:
        raise InputError("probabilities must be (paths, points, classes)")
    magnitude = np.abs(fft.rfft(probabilities, axis=1)).mean(axis=2, dtype=np.float64)
    bins = magnitude.shape[1]
    first = int(np.ceil(threshold * bins))
    last = bins - 1 if variant == "released" else bins
    total = magnitude.sum(axis=1)
    high = magnitude[:, first:last].sum(axis=1)
    # What is left of a constant path is rounding, not frequency.
    high = np.where(high <= 1e-6 * total, 0.0, high)
    return np.where(total > 0, high / np.where(total > 0, total, 1), 0.0)


def consistent_distance(probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    """(P,): 0-based index of the first point whose class differs from point 0's; points if none.

    >>> path = np.array([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> consistent_distance(path)
    array([2])
    """
    if probabilities.ndim != 3:
        raise InputError("probabilities must be (paths, points, classes)")
    best = probabilities.argmax(axis=2)
    other = best != best[:, :1]
    first = other.argmax(axis=1)
    return np.where(other.any(axis=1), first, probabilities.shape[1])
