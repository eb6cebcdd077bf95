"""How smoothly a model's probabilities change along a path (fridovich2022, Section 3)."""

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
VARIANTS = ("paper", "released")
THRESHOLD = 0.1
"""Of the highest frequency, above which frequencies are high."""
_ROUNDING = 1e-12


def softmax(logits: NDArray[np.floating]) -> Floats:
    """(…, classes) probabilities.

    >>> softmax(np.array([[0.0, 0.0]]))
    array([[0.5, 0.5]])
    """
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    np.exp(wide, out=wide)
    wide /= wide.sum(axis=-1, keepdims=True)
    return wide


def magnitudes(probabilities: NDArray[np.floating]) -> Floats:
    """(P, B): |rFFT| along paths, averaged over classes; B = ⌊points/2⌋ + 1 bins.

    ``probabilities`` (P, points, classes) are softmax outputs along P paths.

    >>> magnitudes(np.full((1, 4, 2), 0.5))
    array([[2., 0., 0.]])
    """
    _checked(probabilities)
    found: Floats = np.abs(fft.rfft(probabilities.astype(np.float64), axis=1)).mean(axis=2)
    return found


def share_above(
    magnitude: Floats, *, threshold: float = THRESHOLD, variant: str = "paper"
) -> Floats:
    """(P,): Σ_{b ≥ ⌈threshold·B⌉} m_b / Σ_b m_b of magnitudes (P, B).

    With ``variant="released"`` the very last bin is left out of the numerator, as in the code
    released with the paper. What is left of a constant path is rounding, not frequency: below
    1e-12 of the total it counts as 0.

    >>> share_above(np.ones((1, 51))), share_above(np.ones((1, 51)), variant="released")
    (array([0.88235294]), array([0.8627451]))
    """
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    if not 0 < threshold <= 1:
        raise InputError(f"the threshold must be above 0 and at most 1, is {threshold:g}")
    bins = magnitude.shape[1]
    first = int(np.ceil(threshold * bins - 1e-9))
    last = bins - 1 if variant == "released" else bins
    total = magnitude.sum(axis=1)
    high = magnitude[:, first:last].sum(axis=1)
    high = np.where(high <= _ROUNDING * total, 0.0, high)
    share: Floats = np.minimum(high / np.where(total > 0, total, 1.0), 1.0)
    return share


def high_frequency_fraction(
    probabilities: NDArray[np.floating], *, threshold: float = THRESHOLD, variant: str = "paper"
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
    return share_above(magnitudes(probabilities), threshold=threshold, variant=variant)


def consistent_distance(probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    """(P,): 0-based index of the first point whose class differs from point 0's; points if none.

    >>> path = np.array([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> consistent_distance(path)
    array([2])
    """
    _checked(probabilities)
    best = probabilities.argmax(axis=2)
    other = best != best[:, :1]
    first = other.argmax(axis=1)
    return np.asarray(np.where(other.any(axis=1), first, probabilities.shape[1]))


def _checked(probabilities: NDArray[np.floating]) -> None:
    if probabilities.ndim != 3 or 0 in probabilities.shape[1:]:
        raise InputError(
            f"probabilities must be (paths, points, classes), are {probabilities.shape}"
        )
