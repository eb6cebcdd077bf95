"""Gaussian and glass blur."""

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions.jit import kernel, loose
from shiftbed.evaluation.corruptions.philox import Keys, fill_words
from shiftbed.evaluation.corruptions.smooth import smooth

Batch = NDArray[np.float32]
Floats = NDArray[np.float32]

f = np.float32


@loose
def clip(values: Floats) -> None:
    """Clip a flat array to [0, 1] in place."""
    for i in range(values.size):
        values[i] = min(max(values[i], f(0)), f(1))


@loose
def gaussian(x: Batch, out: Batch, taps: Floats) -> None:
    """Gaussian blur, edges repeated."""
    height = x.shape[1]
    for n in range(x.shape[0]):
        smooth(x[n].reshape(height, -1), out[n].reshape(height, -1), taps, x.shape[3], False)
        clip(out[n].ravel())


@kernel
def wander(moved: NDArray[np.int32], key: int, reach: int, rounds: int) -> None:
    """Where each pixel of a glass-blurred image comes from, flat (H, W) indices.

    From the bottom right up, each pixel takes the value now held by one at most ``reach`` away
    (−reach … reach−1 in both directions). The scripts mean to swap the two, but swap views of
    one array, which copies; the published images are made so.
    """
    height, width = moved.shape
    flat = moved.ravel()
    for i in range(flat.size):
        flat[i] = i
    draws = np.empty(max(height - 2 * reach, 0) * max(width - 2 * reach, 0), np.uint32)
    for t in range(rounds):
        fill_words(key, t, draws)
        at = 0
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                word = draws[at]
                at += 1
                dx = np.int64(((word & np.uint32(0xFFFF)) * np.uint64(2 * reach)) >> 16) - reach
                dy = np.int64(((word >> np.uint32(16)) * np.uint64(2 * reach)) >> 16) - reach
                flat[h * width + w] = flat[(h + dy) * width + w + dx]


@loose
def glass(x: Batch, out: Batch, keys: Keys, taps: Floats, reach: int, rounds: int) -> None:
    """Gaussian blur, rounding down to 8 bits, pixels moved about, Gaussian blur."""
    count, height, width, channels = x.shape
    blurred = np.empty((height, width * channels), np.float32)
    moved = np.empty((height, width), np.int32)
    shuffled = np.empty((height, width * channels), np.float32)
    for n in range(count):
        smooth(x[n].reshape(height, -1), blurred, taps, channels, False)
        flat, target = blurred.ravel(), shuffled.ravel()
        for i in range(flat.size):
            flat[i] = f(np.int32(min(max(flat[i], f(0)), f(1)) * f(255) + f(1e-4))) / f(255)
        wander(moved, keys[n], reach, rounds)
        source = moved.ravel()
        if channels == 1:
            for i in range(source.size):
                target[i] = flat[source[i]]
        else:
            for i in range(source.size):
                at = 3 * source[i]
                target[3 * i] = flat[at]
                target[3 * i + 1] = flat[at + 1]
                target[3 * i + 2] = flat[at + 2]
        smooth(shuffled, out[n].reshape(height, -1), taps, channels, False)
        clip(out[n].ravel())
