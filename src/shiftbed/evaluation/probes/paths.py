"""Paths between images, and how smoothly a model changes along them (fridovich2022, Section 3).

Paths act on normalised images, per channel, with the two-dimensional DFT and its zero frequency in
the middle. A *window* is the centred square of frequencies |k| ≤ ⌊w·min(height, width)⌋: w = 0.2
keeps 13 × 13 of the frequencies of a 32 × 32 image, w = 0.5 all of them.

An amplitude path keeps the phases p₀ and blends amplitudes in the window; its spectrum
F(λ) = ((1−λ)a₀ + λa₁)·e^{ip₀} is F₀ + λ(a₁ − a₀)e^{ip₀}, linear in λ, so the whole path is
x₀ + λ·D with one inverse transform. A phase path keeps the amplitudes and blends the raw wrapped
phase angles, which is not linear and takes one inverse transform per point. Of it only the change
in the window is transformed, and only the half of the frequencies that a real image has: the
angles of k and −k stay opposite, and what is not conjugate-symmetric in the blend (real
coefficients whose angle turns from 0 to π) drops out with the imaginary part.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
POINTS = 100
"""Evenly spaced λ from 0 to 1, both ends included."""
VARIANTS = ("paper", "released")
THRESHOLD = 0.1
"""Of the highest frequency, above which frequencies are high."""
_ROUNDING = 1e-12


def window(height: int, width: int, w: float) -> NDArray[np.bool_]:
    """(height, width): frequencies of the window, in the order of ``scipy.fft.fft2``."""
    if not 0 < w <= 0.5:
        raise InputError(f"the window must be above 0 and at most 0.5 of the size, is {w:g}")
    half = int(np.floor(w * min(height, width) + 1e-9))
    rows = np.abs(fft.fftfreq(height, 1 / height)) <= half
    columns = np.abs(fft.fftfreq(width, 1 / width)) <= half
    return np.asarray(rows[:, None] & columns[None, :])


def amplitude_path(x0: Floats, x1: Floats, w: float, points: int = POINTS) -> Floats:
    """(points, C, H, W): images from x0 (C, H, W) with amplitudes moving to those of x1.

    At λ = 0 it is x0 itself; pixels are not clipped.
    """
    inside = _checked(x0, x1, w, points)[:, : x0.shape[2] // 2 + 1]
    f0, f1 = fft.rfft2(np.stack([x0, x1]))
    size = np.abs(f0)
    direction = np.where(size > 0, f0 / np.where(size > 0, size, 1), 1.0)  # e^{i·arg f₀}
    gain = np.where(inside, np.abs(f1) - size, np.float32(0)) * direction
    step = fft.irfft2(gain, s=x0.shape[1:])
    path = np.linspace(0, 1, points, dtype=np.float32)[:, None, None, None] * step
    path += x0
    return np.asarray(path, dtype=np.float32)


def phase_path(x0: Floats, x1: Floats, w: float, points: int = POINTS) -> Floats:
    """(points, C, H, W): images from x0 (C, H, W) with phases moving to those of x1.

    At λ = 0 it is x0 itself; pixels are not clipped.
    """
    inside = _checked(x0, x1, w, points)
    width = x0.shape[2]
    rows = np.flatnonzero(inside[:, 0])
    columns = int(inside[0, : width // 2 + 1].sum())
    low, high = fft.rfft2(np.stack([x0, x1]))[:, :, rows, :columns]
    amplitude, start = np.abs(low), np.angle(low)
    lam = np.linspace(0, 1, points, dtype=np.float32)[:, None, None, None]
    angle = lam * (np.angle(high) - start)
    angle += start
    spectra = np.zeros((points, len(x0), x0.shape[1], columns), dtype=np.complex64)
    change = np.empty(angle.shape, dtype=np.complex64)
    change.real = np.cos(angle)
    change.imag = np.sin(angle)
    change *= amplitude
    change -= change[:1].copy()
    spectra[:, :, rows] = change
    spectra = fft.ifft(spectra, axis=2, overwrite_x=True)
    path = fft.irfft(spectra, n=width, axis=3)
    path += x0
    return np.asarray(path, dtype=np.float32)


def pixel_pieces(x0: Floats, x1: Floats, step: float = 1.0, most: int = 128) -> Iterator[Floats]:
    """(m, C, H, W): x0 + i·step·(x1 − x0)/‖x1 − x0‖₂ for i = 0 … ⌊‖x1 − x0‖/step⌋.

    Points are ``step`` apart in ℓ2, so that paths differ in length; at most ``most`` come at a
    time, as paths of large images are long. Two equal images make a path of one point.
    """
    if x0.shape != x1.shape:
        raise InputError(f"two images of one shape make a path, not {x0.shape} and {x1.shape}")
    if step <= 0:
        raise InputError(f"the step of a path must be above 0, is {step:g}")
    difference = x1 - x0
    distance = float(np.sqrt((difference.astype(np.float64) ** 2).sum()))
    points = int(distance / step) + 1
    share = np.arange(points) * (step / distance if distance else 0.0)
    for at in range(0, points, most):
        some = share[at : at + most].astype(np.float32)
        piece = some[:, None, None, None] * difference
        piece += x0
        yield piece


def _checked(x0: Floats, x1: Floats, w: float, points: int) -> NDArray[np.bool_]:
    if x0.ndim != 3 or x0.shape != x1.shape:
        raise InputError(f"two images (C, H, W) make a path, not {x0.shape} and {x1.shape}")
    if points < 2:
        raise InputError(f"a path has at least 2 points, not {points}")
    return window(x0.shape[1], x0.shape[2], w)


def softmax(logits: NDArray[np.floating]) -> Doubles:
    """(…, classes) probabilities."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    np.exp(wide, out=wide)
    wide /= wide.sum(axis=-1, keepdims=True)
    return wide


def magnitudes(probabilities: NDArray[np.floating]) -> Doubles:
    """(P, B): |rFFT| along paths, averaged over classes; B = ⌊points/2⌋ + 1 bins.

    ``probabilities`` (P, points, classes) are softmax outputs along P paths.

    >>> magnitudes(np.full((1, 4, 2), 0.5))
    array([[2., 0., 0.]])
    """
    _check_paths(probabilities)
    found: Doubles = np.abs(fft.rfft(probabilities.astype(np.float64), axis=1)).mean(axis=2)
    return found


def high_frequency_fraction(magnitude: Doubles, *, variant: str = "paper") -> Doubles:
    """(P,): HFF = Σ_{b ≥ ⌈0.1·B⌉} m_b / Σ_b m_b of ``magnitudes`` (P, B).

    The share of the DFT's magnitude at or above a tenth of the highest frequency: bins 6 to 50 of
    51 for 100 points. The code released with the paper leaves the very last bin out of the
    numerator (``variant="released"``). What is left of a constant path is rounding, not frequency:
    below 1e-12 of the total it counts as 0.

    >>> ones = np.ones((1, 51))
    >>> high_frequency_fraction(ones), high_frequency_fraction(ones, variant="released")
    (array([0.88235294]), array([0.8627451]))
    """
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    bins = magnitude.shape[1]
    first = int(np.ceil(THRESHOLD * bins - 1e-9))
    last = bins - 1 if variant == "released" else bins
    total = magnitude.sum(axis=1)
    high = magnitude[:, first:last].sum(axis=1)
    high = np.where(high <= _ROUNDING * total, 0.0, high)
    share: Doubles = np.minimum(high / np.where(total > 0, total, 1.0), 1.0)
    return share


def consistent_distance(probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    """(P,): 0-based index of the first point whose class differs from point 0's; points if none.

    >>> path = np.array([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> consistent_distance(path)
    array([2])
    """
    _check_paths(probabilities)
    best = probabilities.argmax(axis=2)
    other = best != best[:, :1]
    first = other.argmax(axis=1)
    return np.asarray(np.where(other.any(axis=1), first, probabilities.shape[1]))


def _check_paths(probabilities: NDArray[np.floating]) -> None:
    if probabilities.ndim != 3 or 0 in probabilities.shape[1:]:
        raise InputError(
            f"probabilities must be (paths, points, classes), are {probabilities.shape}"
        )
