"""Noise: each value of an image on its own. Draws are indexed by (row, column, channel)."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from shiftbed.evaluation.corruptions.kernels import Batch, f, kernel
from shiftbed.evaluation.corruptions.philox import TILE, Keys, fill_tile, normal

Poisson = tuple[NDArray[np.uint32], NDArray[np.uint16]]

LEVELS = 255


@kernel
def gaussian(x: Batch, out: Batch, keys: Keys, scale: np.float32) -> None:
    """clip(x + scale·z, 0, 1), z standard normal."""
    tile = np.empty(TILE, np.uint32)
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        for start in range(0, source.size, TILE):
            fill_tile(keys[n], 0, start // TILE, tile)
            a, b = source[start : start + TILE], target[start : start + TILE]
            for i in range(a.size):
                b[i] = min(max(a[i] + scale * normal(tile[i]), f(0)), f(1))


@kernel
def speckle(x: Batch, out: Batch, keys: Keys, scale: np.float32) -> None:
    """clip(x + x·scale·z, 0, 1), z standard normal."""
    tile = np.empty(TILE, np.uint32)
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        for start in range(0, source.size, TILE):
            fill_tile(keys[n], 0, start // TILE, tile)
            a, b = source[start : start + TILE], target[start : start + TILE]
            for i in range(a.size):
                b[i] = min(max(a[i] + a[i] * (scale * normal(tile[i])), f(0)), f(1))


@kernel
def impulse(x: Batch, out: Batch, keys: Keys, amount: float) -> None:
    """A share ``amount`` of the values replaced, half of them by 1 and half by 0."""
    replaced = np.uint32(amount * 2.0**32)
    salt = np.uint32(amount * 2.0**31)
    tile = np.empty(TILE, np.uint32)
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        for start in range(0, source.size, TILE):
            fill_tile(keys[n], 0, start // TILE, tile)
            a, b = source[start : start + TILE], target[start : start + TILE]
            for i in range(a.size):
                kept = f(0) if tile[i] < replaced else a[i]
                b[i] = f(1) if tile[i] < salt else kept


@lru_cache(maxsize=16)
def poisson_table(photons: float) -> Poisson:
    """Distribution functions of Poisson(photons·k/255) for k = 0 … 255, and where to start looking.

    Row k of the first table holds ⌈2³² P(X ≤ j)⌉ − 1 for j = 0, 1, …: a word u draws the first j
    whose entry is not below it, so probabilities are exact to 2⁻³². The second gives that j for
    the smallest word with a given top byte.

    >>> cdf, start = poisson_table(60.0)
    >>> cdf.shape[0], start.shape, int(start[255, 128])
    (256, (256, 256), 60)
    """
    most = int(photons + 7 * np.sqrt(photons) + 20)
    rates = photons * np.arange(LEVELS + 1) / LEVELS
    probability = pdtr(np.arange(most + 1)[None, :], rates[:, None])
    cdf = np.ceil(probability * 2.0**32) - 1
    cdf[:, -1] = 2.0**32 - 1
    table = np.clip(cdf, 0, 2**32 - 1).astype(np.uint32)
    firsts = (np.arange(256, dtype=np.uint64) << np.uint64(24)).astype(np.uint32)
    start = np.stack([np.searchsorted(row, firsts, side="left") for row in table])
    return np.ascontiguousarray(table), start.astype(np.uint16)


@kernel
def shot(
    x: Batch,
    out: Batch,
    keys: Keys,
    cdf: NDArray[np.uint32],
    start_at: NDArray[np.uint16],
    photons: np.float32,
) -> None:
    """clip(Poisson(x·photons)/photons, 0, 1).

    A value between two of the 256 levels is split, Poisson(a + b) = Poisson(a) + Poisson(b): the
    lower level from the table, the rest (a rate below photons/255) by inversion from stream 1.
    """
    tile = np.empty(TILE, np.uint32)
    rest = np.empty(TILE, np.uint32)
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        for start in range(0, source.size, TILE):
            fill_tile(keys[n], 0, start // TILE, tile)
            drawn = False
            a, b = source[start : start + TILE], target[start : start + TILE]
            for i in range(a.size):
                level = min(max(a[i], f(0)), f(1)) * f(LEVELS)
                k = np.int64(level + f(1e-3))
                left = level - f(k)
                u = tile[i]
                j = np.int64(start_at[k, u >> np.uint32(24)])
                while u > cdf[k, j]:
                    j += 1
                if left > f(1e-3):
                    if not drawn:
                        fill_tile(keys[n], 1, start // TILE, rest)
                        drawn = True
                    rate = np.float64(left) * np.float64(photons) / LEVELS
                    chance = np.exp(-rate)
                    total = chance
                    uniform = (np.float64(rest[i]) + 0.5) * 2.0**-32
                    step = 0
                    while uniform > total and step < 60:
                        step += 1
                        chance *= rate / step
                        total += chance
                    j += step
                b[i] = min(f(j) / photons, f(1))
