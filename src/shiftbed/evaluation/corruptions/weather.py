"""Snow, fog and spatter: layers drawn from an image's key, then laid over it."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions.blur import motion, motion_path
from shiftbed.evaluation.corruptions.digital import LUMA
from shiftbed.evaluation.corruptions.kernels import (
    Batch,
    Floats,
    f,
    gaussian_taps,
    kernel,
    loose,
    smooth,
)
from shiftbed.evaluation.corruptions.philox import Keys, fill_normals, fill_words

R, G, B = LUMA
WATER = (f(175 / 255), f(238 / 255), f(238 / 255))  # pale turquoise
MUD = (f(63 / 255), f(42 / 255), f(20 / 255))  # brown


@loose
def plasma(key: int, decay: float, out: Floats) -> None:
    """A heightmap by diamond and square, scaled to [0, 1], on a torus whose side is a power of two.

    Each step halves the grid: the middle of a square, then of its sides, is the mean of its four
    neighbours plus a uniform draw in ±wibble², and wibble is divided by ``decay``.
    """
    size = out.shape[0]
    draws = np.empty(size * size, np.uint32)
    fill_words(key, 0, draws)
    at = 0
    out[0, 0] = f(0)
    step, wibble = size, 100.0
    while step >= 2:
        half = step // 2
        scale = f(wibble * wibble * 2.0**-31)
        low = f(wibble * wibble)
        for y in range(0, size, step):
            below = (y + step) & (size - 1)
            for x in range(0, size, step):
                right = (x + step) & (size - 1)
                total = (out[y, x] + out[below, x]) + (out[y, right] + out[below, right])
                out[y + half, x + half] = total * f(0.25) + (f(draws[at]) * scale - low)
                at += 1
        for y in range(0, size, step):
            above = (y - half) & (size - 1)
            for x in range(0, size, step):
                right = (x + step) & (size - 1)
                total = (out[y + half, x + half] + out[above, x + half]) + (
                    out[y, x] + out[y, right]
                )
                out[y, x + half] = total * f(0.25) + (f(draws[at]) * scale - low)
                at += 1
        for y in range(0, size, step):
            below = (y + step) & (size - 1)
            for x in range(0, size, step):
                left = (x - half) & (size - 1)
                total = (out[y + half, x + half] + out[y + half, left]) + (
                    out[y, x] + out[below, x]
                )
                out[y + half, x] = total * f(0.25) + (f(draws[at]) * scale - low)
                at += 1
        step = half
        wibble /= decay
    flat = out.ravel()
    lowest, highest = flat[0], flat[0]
    for i in range(flat.size):
        lowest = min(lowest, flat[i])
        highest = max(highest, flat[i])
    span = f(1) / (highest - lowest)
    for i in range(flat.size):
        flat[i] = (flat[i] - lowest) * span


@loose
def fog(x: Batch, out: Batch, keys: Keys, thickness: np.float32, decay: float) -> None:
    """(x + thickness·plasma) · max/(max + thickness), max being the image's largest value."""
    count, height, width, channels = x.shape
    size = 1
    while size < max(height, width):
        size *= 2
    heights = np.empty((size, size), np.float32)
    for n in range(count):
        plasma(keys[n], decay, heights)
        source = x[n].ravel()
        highest = f(0)
        for i in range(source.size):
            highest = max(highest, source[i])
        scale = highest / (highest + thickness)
        thick = thickness * scale
        for y in range(height):
            row, target, veil = x[n, y].ravel(), out[n, y].ravel(), heights[y]
            if channels == 1:
                for i in range(width):
                    target[i] = min(row[i] * scale + veil[i] * thick, f(1))
                continue
            for i in range(width):
                white = veil[i] * thick
                target[3 * i] = min(row[3 * i] * scale + white, f(1))
                target[3 * i + 1] = min(row[3 * i + 1] * scale + white, f(1))
                target[3 * i + 2] = min(row[3 * i + 2] * scale + white, f(1))


def snow_layer(keys: Keys, p: dict[str, float], height: int, width: int) -> NDArray[np.float32]:
    """Flakes: normal draws enlarged, cut off below a threshold, blurred along a fall; (N, H, W, 1).

    They fall at −135° to −45°.

    Only the middle ⌈H/zoom⌉ × ⌈W/zoom⌉ draws would be enlarged, so only these are drawn.
    """
    kept = math.ceil(height / p["zoom"]), math.ceil(width / p["zoom"])
    large = round(kept[0] * p["zoom"]), round(kept[1] * p["zoom"])
    trim = (large[0] - height) // 2, (large[1] - width) // 2
    draws = np.empty(kept, f)
    flakes = np.empty((len(keys), *large, 1), f)
    for n, key in enumerate(keys):
        fill_normals(key, 0, draws.reshape(-1))
        enlarge(draws, flakes[n], f(p["mean"]), f(p["scale"]), f(p["threshold"]))
    fallen = np.empty_like(flakes)
    motion(flakes, fallen, *motion_path(keys, p, -135, -45))
    return fallen[:, trim[0] : trim[0] + height, trim[1] : trim[1] + width]


@loose
def enlarge(
    draws: Floats,
    out: NDArray[np.float32],
    mean: np.float32,
    scale: np.float32,
    threshold: np.float32,
) -> None:
    """Linear interpolation corner on corner of mean + scale·draws, 0 below the threshold."""
    height, width = out.shape[0], out.shape[1]
    tall, wide = draws.shape
    down = f(tall - 1) / f(max(height - 1, 1))
    along = f(wide - 1) / f(max(width - 1, 1))
    for y in range(height):
        at_y = f(y) * down
        y0 = min(np.int64(at_y), max(tall - 2, 0))
        y1 = min(y0 + 1, tall - 1)
        v = at_y - f(y0)
        for x in range(width):
            at_x = f(x) * along
            x0 = min(np.int64(at_x), max(wide - 2, 0))
            x1 = min(x0 + 1, wide - 1)
            u = at_x - f(x0)
            upper = draws[y0, x0] + u * (draws[y0, x1] - draws[y0, x0])
            lower = draws[y1, x0] + u * (draws[y1, x1] - draws[y1, x0])
            value = mean + scale * (upper + v * (lower - upper))
            out[y, x, 0] = min(max(value, f(0)), f(1)) if value >= threshold else f(0)


@loose
def lay_snow(x: Batch, out: Batch, layer: NDArray[np.float32], keep: np.float32) -> None:
    """Whiten the image, then add the layer and the layer turned by half a turn.

    Whitening is keep·x + (1 − keep)·max(x, 1.5·grey + 0.5). The layer is rounded to 8 bits.
    """
    count, height, width, channels = x.shape
    rest = f(1) - keep
    fallen = np.empty(width, np.float32)
    for n in range(count):
        for y in range(height):
            row, target = x[n, y].ravel(), out[n, y].ravel()
            upper, lower = layer[n, y], layer[n, height - 1 - y]
            for i in range(width):
                here = f(np.int32(upper[i, 0] * f(255) + f(0.5)))
                fallen[i] = here + f(np.int32(lower[width - 1 - i, 0] * f(255) + f(0.5)))
            if channels == 1:
                for i in range(width):
                    white = max(row[i], row[i] * f(1.5) + f(0.5))
                    value = keep * row[i] + rest * white + fallen[i] * f(1 / 255)
                    target[i] = min(max(value, f(0)), f(1))
                continue
            for i in range(width):
                r, g, b = row[3 * i], row[3 * i + 1], row[3 * i + 2]
                white = (R * r + G * g + B * b) * f(1.5) + f(0.5)
                more = fallen[i] * f(1 / 255)
                target[3 * i] = min(keep * r + rest * max(r, white) + more, f(1))
                target[3 * i + 1] = min(keep * g + rest * max(g, white) + more, f(1))
                target[3 * i + 2] = min(keep * b + rest * max(b, white) + more, f(1))


@kernel
def cut(values: Floats, mean: np.float32, scale: np.float32, threshold: np.float32) -> None:
    """mean + scale·values in place, 0 below the threshold."""
    flat = values.ravel()
    for i in range(flat.size):
        value = mean + scale * flat[i]
        flat[i] = value if value >= threshold else f(0)


def spatter_layers(keys: Keys, p: dict[str, float], height: int, width: int) -> Floats:
    """How much liquid covers each pixel of each image, (N, H, W).

    Smoothed normal draws above a threshold are drops. Mud is their outline smoothed, kept where it
    is at least 0.8. Water is shaded by the distance from the drops' edges, equalised and embossed.
    """
    taps, mud_taps = gaussian_taps(p["sigma"]), gaussian_taps(p["mud"])
    draws, liquid = np.empty((height, width), f), np.empty((height, width), f)
    covered = np.empty((len(keys), height, width), f)
    for key, cover in zip(keys, covered, strict=True):
        fill_normals(key, 0, draws.reshape(-1))
        smooth(draws, liquid, taps, 1, False)
        cut(liquid, f(p["mean"]), f(p["scale"]), f(p["threshold"]))
        if p["mud"] > 0:
            smooth((liquid > p["threshold"]).astype(f), cover, mud_taps, 1, False)
            cover[cover < 0.8] = 0
        else:
            levels = np.clip(liquid * f(255), 0, 255).astype(np.uint8)
            cover[:] = water(levels, f(p["strength"]))
    return covered


EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def water(liquid: NDArray[np.uint8], strength: np.float32) -> Floats:
    """Shading of drops of water: their edges, the distance from them, equalised, embossed."""
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    near = cv2.blur(np.minimum(distance, f(20)), (3, 3)).astype(np.uint8)
    raised = cv2.filter2D(cv2.equalizeHist(near), cv2.CV_8U, EMBOSS)
    shading = liquid * cv2.blur(raised, (3, 3)).astype(f)
    highest = shading.max()
    return np.asarray(shading * (strength / highest) if highest > 0 else shading, dtype=f)


@loose
def lay_spatter(
    image: NDArray[np.float32],
    out: NDArray[np.float32],
    layer: Floats,
    colour: tuple[np.float32, np.float32, np.float32],
    mud: bool,
) -> None:
    """Water is added to an image (H, W, C); mud covers it. Grey images get the colour's luma."""
    height, width, channels = image.shape
    r, g, b = colour
    luma = f(0.2989) * r + f(0.587) * g + f(0.114) * b
    cover = f(1) if mud else f(0)
    for y in range(height):
        row, target, amounts = image[y].ravel(), out[y].ravel(), layer[y]
        if channels == 1:
            for i in range(width):
                kept = row[i] * (f(1) - cover * amounts[i])
                target[i] = min(max(kept + luma * amounts[i], f(0)), f(1))
            continue
        for i in range(width):
            amount = amounts[i]
            keep = f(1) - cover * amount
            target[3 * i] = min(max(row[3 * i] * keep + r * amount, f(0)), f(1))
            target[3 * i + 1] = min(max(row[3 * i + 1] * keep + g * amount, f(0)), f(1))
            target[3 * i + 2] = min(max(row[3 * i + 2] * keep + b * amount, f(0)), f(1))
