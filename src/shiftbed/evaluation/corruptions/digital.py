"""Colour (brightness, contrast, saturation, grey), pixelation, JPEG, elastic deformation."""

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions.kernels import (
    Batch,
    Floats,
    Ints,
    clip,
    f,
    gaussian_taps,
    kernel,
    loose,
    smooth,
    smooth_modes,
    smoothing_modes,
)
from shiftbed.evaluation.corruptions.philox import Keys, fill_words, uniforms

LUMA = (f(0.299), f(0.587), f(0.114))  # ITU-R BT.601
R, G, B = LUMA
ONE, TWO, THREE = (
    np.uint64(1),
    np.uint64(2),
    np.uint64(3),
)  # unsigned: numba need not look for negative indices


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


@lru_cache(maxsize=64)
def bounds(size: int, factor: float) -> tuple[Ints, Ints, Ints]:
    """First and last+1 pixel averaged into each of ⌊size·factor⌋, and which of them each shows.

    Pillow's box filter averages whole pixels: those within half a step of the centre.

    >>> [b.tolist() for b in bounds(8, 0.25)]
    [[0, 4], [4, 8], [0, 0, 0, 0, 1, 1, 1, 1]]
    """
    few = max(int(size * factor), 1)
    step = size / few
    centres = (np.arange(few) + 0.5) * step
    at, middle = np.arange(size)[None, :], centres[:, None]
    off = (at - middle + 0.5) * (1 / step)
    inside = (off > -0.5) & (off <= 0.5)  # and once more, with the rounding of Pillow's bounds
    inside &= (at >= np.floor(middle - step / 2 + 0.5)) & (at < np.floor(middle + step / 2 + 0.5))
    first = inside.argmax(axis=1)
    last = first + inside.sum(axis=1)
    back = few / size
    shown = np.add.accumulate([back * 0.5, *[back] * (size - 1)]).astype(np.int64)  # as Pillow sums
    return first, last, np.minimum(shown, few - 1)


@loose
def pixelate(
    x: Batch,
    out: Batch,
    top: Ints,
    bottom: Ints,
    shown_y: Ints,
    left: Ints,
    right: Ints,
    shown_x: Ints,
) -> None:
    """Average into fewer pixels, then repeat them."""
    count, height, width, channels = x.shape
    column = np.empty(width * channels, np.float32)
    few = np.empty(left.size * channels, np.float32)
    for n in range(count):
        done = -1
        for y in range(height):
            target = out[n, y].ravel()
            if shown_y[y] == done:
                target[:] = out[n, y - 1].ravel()
                continue
            done = shown_y[y]
            column[:] = f(0)
            for at in range(top[done], bottom[done]):
                row = x[n, at].ravel()
                for i in range(column.size):
                    column[i] += row[i]
            for j in range(left.size):
                share = f(1) / f((right[j] - left[j]) * (bottom[done] - top[done]))
                if channels == 1:
                    few[j] = min(np.sum(column[left[j] : right[j]]) * share, f(1))
                    continue
                r, g, b = f(0), f(0), f(0)
                for i in range(np.uint64(left[j]), np.uint64(right[j])):
                    r += column[THREE * i]
                    g += column[THREE * i + ONE]
                    b += column[THREE * i + TWO]
                few[3 * j] = min(r * share, f(1))
                few[3 * j + 1] = min(g * share, f(1))
                few[3 * j + 2] = min(b * share, f(1))
            if channels == 1:
                for j in range(width):
                    target[j] = few[shown_x[j]]
                continue
            for j in range(width):
                shown = 3 * shown_x[j]
                target[3 * j] = few[shown]
                target[3 * j + 1] = few[shown + 1]
                target[3 * j + 2] = few[shown + 2]


def jpeg(x: Batch, out: Batch, quality: int) -> None:
    """Round to 8 bits, encode as JPEG (4:2:0) and decode: the bytes Pillow writes, read back."""
    settings = [cv2.IMWRITE_JPEG_QUALITY, quality]
    how = cv2.IMREAD_GRAYSCALE if x.shape[3] == 1 else cv2.IMREAD_COLOR
    for pixels, target in zip(x, out, strict=True):
        image = (pixels * f(255) + f(0.5)).astype(np.uint8)
        _, coded = cv2.imencode(".jpg", image[..., ::-1], settings)  # its colours are reversed
        decoded = np.asarray(cv2.imdecode(coded, how)).reshape(target.shape)
        np.divide(decoded[..., ::-1], f(255), out=target)


def affine_maps(keys: Keys, height: int, width: int, reach: float) -> NDArray[np.float32]:
    """Per image, the 2×3 map from a place (x, y, 1) in the result to its source.

    Three points around the centre move by up to ``reach`` pixels in each direction; the map that
    takes them there is inverted.
    """
    side = min(height, width) // 3
    cx, cy = float(width // 2), float(height // 2)
    corners = [(cx + side, cy + side), (cx + side, cy - side), (cx - side, cy - side)]
    start = np.array([[x, y, 1.0] for x, y in corners]).T
    maps = np.empty((len(keys), 2, 3), f)
    for n, key in enumerate(keys):
        u = np.array([*uniforms(int(key), 2, 4), *uniforms(int(key), 3, 2)]).reshape(2, 3)
        moved = np.vstack([start[:2] + (2 * u - 1) * reach, np.ones(3)])
        determinant = abs(np.linalg.det(moved))
        maps[n] = (start @ np.linalg.inv(moved))[:2] if determinant > 1e-6 else np.eye(3)[:2]
    return maps


@loose
def reflect(at: Floats, cells: Ints, size: int, border: bool) -> None:
    """Places reflected into 0 … size − 1, split into a lower pixel and, in place, what is left.

    Reflected about the edge pixels (edges once) or, with ``border``, about their outer borders.
    """
    low = f(-0.5) if border else f(0)
    span = f(2 * size) if border else f(2 * size - 2)
    back, last = f(1) / span, f(size - 1)
    for i in range(at.size):
        off = abs(at[i] - low)
        off = off - span * np.floor(off * back)
        off = min(max(min(off, span - off) + low, f(0)), last)
        cell = min(np.int32(off), np.int32(size - 2))
        cells[i] = cell
        at[i] = off - f(cell)


@loose
def sample(
    image: NDArray[np.float32], at_y: Floats, at_x: Floats, out: Floats, border: bool
) -> None:
    """Linear interpolation of an image (H, W, C) at a row of places, (W,) each, into (W·C,).

    Places outside are reflected; the two arrays of places are used up.
    """
    height, width, channels = image.shape
    rows, columns = np.empty(at_y.size, np.int64), np.empty(at_y.size, np.int64)
    reflect(at_y, rows, height, border)
    reflect(at_x, columns, width, border)
    flat = image.ravel()
    stride = width * channels
    down = np.uint64(stride)
    for i in range(at_y.size):
        v, u = at_y[i], at_x[i]
        k = np.uint64(rows[i] * stride + columns[i] * channels)
        if channels == 3:
            to = np.uint64(3 * i)
            for _ in range(3):
                a, b = flat[k], flat[k + THREE]
                d, e = flat[k + down], flat[k + down + THREE]
                upper, lower = a + u * (b - a), d + u * (e - d)
                out[to] = upper + v * (lower - upper)
                k += ONE
                to += ONE
        else:
            a, b, d, e = flat[k], flat[k + ONE], flat[k + down], flat[k + down + ONE]
            upper, lower = a + u * (b - a), d + u * (e - d)
            out[i] = upper + v * (lower - upper)


@loose
def warp(
    image: NDArray[np.float32],
    out: NDArray[np.float32],
    turned: NDArray[np.float32],
    affine: NDArray[np.float32],
    dy: Floats,
    dx: Floats,
) -> None:
    """An affine map (reflected about edge pixels), then a displacement (about their borders)."""
    height, width = image.shape[0], image.shape[1]
    at_y, at_x = np.empty(width, np.float32), np.empty(width, np.float32)
    for y in range(height):
        left, top = affine[0, 1] * f(y) + affine[0, 2], affine[1, 1] * f(y) + affine[1, 2]
        for x in range(width):
            at_x[x] = affine[0, 0] * f(x) + left
            at_y[x] = affine[1, 0] * f(x) + top
        sample(image, at_y, at_x, turned[y].ravel(), False)
    for y in range(height):
        for x in range(width):
            at_y[x] = f(y) + dy[y, x]
            at_x[x] = f(x) + dx[y, x]
        sample(turned, at_y, at_x, out[y].ravel(), True)
        clip(out[y].ravel())


@kernel
def draw_field(key: int, stream: int, out: Floats) -> None:
    """Uniform draws in [−1, 1) for each pixel."""
    words = np.empty(out.size, np.uint32)
    fill_words(key, stream, words)
    flat = out.ravel()
    for i in range(flat.size):
        flat[i] = f(np.int32(words[i] >> np.uint32(8))) * f(2.0**-23) - f(1)


def smoothed(field: Floats, sigma: float) -> Floats:
    """Gaussian smoothing cut at 3σ, reflected at the edges; by taps, or by modes where wide."""
    taps = gaussian_taps(sigma, 3.0) if sigma > 0 else np.ones(1, f)
    if taps.size > 32:
        down, along = (smoothing_modes(sigma, side) for side in field.shape)
        return smooth_modes(field, down, along)
    out = np.empty_like(field)
    smooth(field, out, taps, 1, True)
    return out


def displacement(
    key: int, height: int, width: int, alpha: float, sigma: float
) -> tuple[Floats, Floats]:
    """How far each pixel's source lies below and to the right: alpha times smoothed draws."""
    field = np.empty((height, width), f)
    draw_field(key, 0, field)
    right = smoothed(field, sigma) * f(alpha)
    draw_field(key, 1, field)
    return smoothed(field, sigma) * f(alpha), right


def elastic(x: Batch, out: Batch, keys: Keys, alpha: float, sigma: float, reach: float) -> None:
    """A random affine map, then each pixel moved by alpha times a smoothed random field."""
    height, width = x.shape[1:3]
    maps = affine_maps(keys, height, width, reach)
    turned = np.empty(x.shape[1:], f)
    for n, key in enumerate(keys):
        down, right = displacement(key, height, width, alpha, sigma)
        warp(x[n], out[n], turned, maps[n], down, right)
