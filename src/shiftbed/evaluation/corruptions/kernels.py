"""What the kernels share: compiling with Python types kept, clipping, Gaussian smoothing.

Kernels release the interpreter lock and are run over images by a pool of threads. numba's own
threads are not used: one of its threading layers ends the process when two Python threads meet in
it, and compiling for it takes several times as long.

In smoothing, rows are kept flat, channels interleaved: a tap k pixels to the right is k·C places
further, so both passes run along memory.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Batch = NDArray[np.float32]
"""(N, H, W, C)"""
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])

f = np.float32


def kernel(function: F) -> F:
    """Compile with every rounding as written, so that torch can repeat it bit for bit."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def loose(function: F) -> F:
    """Compile with sums reordered and multiply-adds fused: for filters, never for draws."""
    flags = {"contract", "reassoc", "nsz", "arcp"}
    return cast(F, njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)(function))


def inlined(function: F) -> F:
    """Compile a few lines that only other kernels call."""
    return cast(F, njit(inline="always", error_model="numpy")(function))


@loose
def clip(values: Floats) -> None:
    """Clip a flat array to [0, 1] in place."""
    for i in range(values.size):
        values[i] = min(max(values[i], f(0)), f(1))


def gaussian_taps(sigma: float, truncate: float = 4.0) -> Floats:
    """Half of a normalised Gaussian kernel, centre first, radius ⌊truncate·σ + ½⌋.

    >>> taps = gaussian_taps(1.0)
    >>> len(taps), round(float(taps[0] + 2 * taps[1:].sum()), 6)
    (5, 1.0)
    """
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1, f)
    at = np.arange(radius + 1)
    weights = np.exp(-0.5 * (at / sigma) ** 2)
    return np.asarray(weights / (weights[0] + 2 * weights[1:].sum()), dtype=f)


@kernel
def inside(i: int, size: int, reflect: bool) -> int:
    """An index brought back into 0 … size−1: the edge repeated, or reflected at its border."""
    if reflect:
        i = i % (2 * size)
        return min(i, 2 * size - 1 - i)
    return min(max(i, 0), size - 1)


@loose
def smooth(image: Floats, out: Floats, taps: Floats, channels: int, reflect: bool) -> None:
    """Blur one image (H, W·C) by symmetric taps in both directions.

    Down first, a row at a time into a padded row, then along it, three pairs of taps in one pass.
    Beyond the edges the image is repeated (abc|ccc) or reflected (abc|cba).
    """
    height, width = image.shape
    radius = taps.size - 1
    pixels, pad = width // channels, radius * channels
    row = np.empty(width + 2 * pad, np.float32)
    middle = row[pad : pad + width]
    passes = -(-radius // 3)
    weights = np.zeros(3 * passes + 1, np.float32)
    weights[: taps.size] = taps
    for y in range(height):
        here = image[y]
        for i in range(width):
            middle[i] = taps[0] * here[i]
        for k in range(1, 3 * passes + 1, 3):
            a0, b0 = image[inside(y - k, height, reflect)], image[inside(y + k, height, reflect)]
            k1, k2 = min(k + 1, radius), min(k + 2, radius)
            a1, b1 = image[inside(y - k1, height, reflect)], image[inside(y + k1, height, reflect)]
            a2, b2 = image[inside(y - k2, height, reflect)], image[inside(y + k2, height, reflect)]
            u, v, w = weights[k], weights[k + 1], weights[k + 2]
            for i in range(width):
                middle[i] += u * (a0[i] + b0[i]) + v * (a1[i] + b1[i]) + w * (a2[i] + b2[i])
        for k in range(1, radius + 1):
            left, right = inside(-k, pixels, reflect), inside(pixels - 1 + k, pixels, reflect)
            for c in range(channels):
                row[pad - k * channels + c] = middle[left * channels + c]
                row[pad + width + (k - 1) * channels + c] = middle[right * channels + c]
        target = out[y]
        for i in range(width):
            target[i] = taps[0] * middle[i]
        for k in range(1, 3 * passes + 1, 3):
            k1, k2 = min(k + 1, radius), min(k + 2, radius)
            a0, b0 = row[pad - k * channels :], row[pad + k * channels :]
            a1, b1 = row[pad - k1 * channels :], row[pad + k1 * channels :]
            a2, b2 = row[pad - k2 * channels :], row[pad + k2 * channels :]
            u, v, w = weights[k], weights[k + 1], weights[k + 2]
            for i in range(width):
                target[i] += u * (a0[i] + b0[i]) + v * (a1[i] + b1[i]) + w * (a2[i] + b2[i])


@lru_cache(maxsize=16)
def smoothing_modes(sigma: float, size: int, truncate: float = 3.0) -> tuple[Floats, Floats]:
    """Gaussian smoothing of ``size`` values reflected at the edges, as two thin matrices A, B.

    Reflection about half samples makes smoothing diagonal in the cosines cos(πk(i+½)/size), with
    the kernel's transform as eigenvalues: smoothed = A (B values). Modes whose eigenvalue stays
    below 0.002 are left out, so a wide kernel needs few.

    >>> a, b = smoothing_modes(20.0, 100)
    >>> a.shape[1] < 20, bool(np.allclose(a @ (b @ np.ones(100)), 1, atol=1e-5))
    (True, True)
    """
    taps = gaussian_taps(sigma, truncate).astype(np.float64)
    at = np.arange(taps.size)
    angles = np.pi * np.arange(size) / size
    gains = np.empty(size)
    for k in range(size):
        gains[k] = taps[0] + 2 * np.dot(taps[1:], np.cos(angles[k] * at[1:]))
    kept = 1 + int(np.max(np.nonzero(np.abs(gains) >= 0.002)[0]))
    basis = np.cos(np.outer(angles[:kept], np.arange(size) + 0.5)) * np.sqrt(2 / size)
    basis[0] /= np.sqrt(2)
    return (
        np.ascontiguousarray((basis * gains[:kept, None]).T, dtype=f),
        np.ascontiguousarray(basis, dtype=f),
    )


@loose
def multiply(a: Floats, b: Floats, out: Floats) -> None:
    """out = a b for small matrices, always in the same order of summation."""
    for i in range(a.shape[0]):
        row = out[i]
        row[:] = f(0)
        for k in range(a.shape[1]):
            weight, other = a[i, k], b[k]
            for j in range(row.size):
                row[j] += weight * other[j]


@loose
def smooth_modes(
    field: Floats, down: tuple[Floats, Floats], along: tuple[Floats, Floats]
) -> Floats:
    """Smooth a field (H, W) by the modes of its two sides: A_y (B_y field B_xᵀ) A_xᵀ."""
    height, width = field.shape
    rows = np.empty((down[1].shape[0], width), np.float32)
    multiply(down[1], field, rows)
    few = np.empty((rows.shape[0], along[1].shape[0]), np.float32)
    multiply(rows, np.ascontiguousarray(along[1].T), few)
    wide = np.empty((rows.shape[0], width), np.float32)
    multiply(few, np.ascontiguousarray(along[0].T), wide)
    out = np.empty((height, width), np.float32)
    multiply(down[0], wide, out)
    return out
