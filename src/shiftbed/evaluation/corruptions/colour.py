"""Colour: brightness, contrast, saturation, grey."""

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions.jit import kernel, loose

Batch = NDArray[np.float32]

f = np.float32
LUMA = (f(0.299), f(0.587), f(0.114))  # ITU-R BT.601
R, G, B = LUMA


@kernel
def greyscale(x: Batch, out: Batch) -> None:
    """Every channel becomes 0.299 R + 0.587 G + 0.114 B; grey images stay."""
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        if x.shape[3] == 1:
            target[:] = source
            continue
        for i in range(source.size // 3):
            luma = R * source[3 * i] + G * source[3 * i + 1] + B * source[3 * i + 2]
            luma = min(luma, f(1))
            target[3 * i] = luma
            target[3 * i + 1] = luma
            target[3 * i + 2] = luma


@kernel
def brightness(x: Batch, out: Batch, add: np.float32) -> None:
    """HSV's value raised by ``add``.

    With hue and saturation fixed, RGB is proportional to the value V = max(R, G, B), so this is
    x·min(V + add, 1)/V, and grey min(add, 1) where V = 0.
    """
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        if x.shape[3] == 1:
            for i in range(source.size):
                target[i] = min(source[i] + add, f(1))
            continue
        for i in range(source.size // 3):
            r, g, b = source[3 * i], source[3 * i + 1], source[3 * i + 2]
            value = max(max(r, g), b)
            raised = min(value + add, f(1))
            black = value <= f(0)
            factor = raised / (f(1) if black else value)
            target[3 * i] = raised if black else min(r * factor, f(1))
            target[3 * i + 1] = raised if black else min(g * factor, f(1))
            target[3 * i + 2] = raised if black else min(b * factor, f(1))


@kernel
def saturate(x: Batch, out: Batch, factor: np.float32, add: np.float32) -> None:
    """HSV's saturation S becomes S' = min(S·factor + add, 1).

    With hue and value fixed, V − RGB is proportional to S = (V − min)/V: the result is
    V − (V − x)·S'/S. Grey has no hue; HSV calls it red, so it becomes (V, V(1−S'), V(1−S')).
    """
    for n in range(x.shape[0]):
        source, target = x[n].ravel(), out[n].ravel()
        if x.shape[3] == 1:
            target[:] = source
            continue
        for i in range(source.size // 3):
            r, g, b = source[3 * i], source[3 * i + 1], source[3 * i + 2]
            value = max(max(r, g), b)
            spread = value - min(min(r, g), b)
            grey = spread <= f(0)
            top = min(spread * factor + add * value, value)
            ratio = top / (f(1) if grey else spread)
            target[3 * i] = r if grey else max(value - (value - r) * ratio, f(0))
            target[3 * i + 1] = value - top if grey else max(value - (value - g) * ratio, f(0))
            target[3 * i + 2] = value - top if grey else max(value - (value - b) * ratio, f(0))


@loose
def contrast(x: Batch, out: Batch, factor: np.float32) -> None:
    """(x − mean)·factor + mean, the mean taken per image and channel."""
    channels = x.shape[3]
    count = x.shape[1] * x.shape[2]
    sums = np.empty(x.shape[2] * channels, np.float32)
    for n in range(x.shape[0]):
        rows, target = x[n].reshape(x.shape[1], -1), out[n].reshape(x.shape[1], -1)
        sums[:] = f(0)
        for y in range(rows.shape[0]):
            for i in range(rows.shape[1]):
                sums[i] += rows[y, i]
        rest = np.empty_like(sums)
        for c in range(channels):
            mean = np.sum(sums[c::channels].astype(np.float64)) / count
            rest[c::channels] = f(mean * (1 - np.float64(factor)))
        for y in range(rows.shape[0]):
            for i in range(rows.shape[1]):
                target[y, i] = min(max(rows[y, i] * factor + rest[i], f(0)), f(1))
