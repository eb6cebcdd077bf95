"""Blurs: Gaussian and glass, and those of a camera: out of focus, moving, zooming."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions.kernels import (
    Batch,
    Floats,
    Ints,
    clip,
    f,
    inlined,
    kernel,
    loose,
    smooth,
)
from shiftbed.evaluation.corruptions.philox import Keys, fill_words, uniforms

Disk = tuple[Ints, Ints, Floats, int]
Layers = tuple[Ints, Floats, Ints, Floats]

LEVELS = 3  # runs summed in one pass over a row
ONE, TWO = np.uint64(1), np.uint64(2)


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


def soft_disk(radius: float, edge: float) -> NDArray[np.float64]:
    """A disk's indicator, normalised, on a square of at least 17, smoothed by a small Gaussian.

    The Gaussian has 3 taps (5 for radii above 8) and reflects at the edge of the square, as in the
    scripts; where the disk fills the square its weights therefore sum to a little more than 1.
    """
    half = 8 if radius <= 8 else math.floor(radius)
    span = np.arange(-half, half + 1)
    solid = (span[:, None] ** 2 + span[None, :] ** 2 <= radius**2).astype(np.float64)
    solid /= solid.sum()
    reach = 1 if radius <= 8 else 2
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / edge) ** 2)
    taps /= taps.sum()
    for _ in range(2):
        padded = np.pad(solid, [(reach, reach), (0, 0)], "reflect")
        rows = [w * padded[k : k + 2 * half + 1] for k, w in enumerate(taps)]
        solid = np.sum(rows, axis=0).T
    return solid


@lru_cache(maxsize=32)
def disk(radius: float, edge: float) -> Disk:
    """A disk kernel as runs: row distances, run ends and weights in threes, and its reach.

    A row of the kernel falls off from its middle: w(d) = Σ aⱼ [|d| ≤ eⱼ]. With running totals of
    the image's rows each term costs one difference, however long the run.
    """
    weights = soft_disk(radius, edge)
    half = weights.shape[0] // 2
    rows, ends, parts = [], [], []
    for y in range(half + 1):
        profile = np.append(weights[half + y, half:], 0.0)
        steps = profile[:-1] - profile[1:]
        at = np.nonzero(np.abs(steps) > 1e-8 * weights.max())[0]
        for first in range(0, at.size, LEVELS):
            some = at[first : first + LEVELS]
            spare = LEVELS - some.size
            rows.append(y)
            ends.append([*some.tolist(), *[0] * spare])
            parts.append([*steps[some].tolist(), *[0.0] * spare])
    reach = int(np.max(ends))
    return np.array(rows, np.int64), np.array(ends, np.int64), np.array(parts, f), reach


@kernel
def reflected(i: int, size: int) -> int:
    """An index reflected about the outermost elements: −1 is 1, size is size − 2."""
    period = 2 * (size - 1)
    i = abs(i) % period
    return min(i, period - i)


@loose
def running_totals(image: NDArray[np.float32], totals: Floats, reach: int) -> None:
    """Running sums along the rows of an image (H, W, C) reflected by ``reach`` on both sides."""
    height, width, channels = image.shape
    places = np.empty(width + 2 * reach, np.uint64)
    for i in range(places.size):
        places[i] = np.uint64(reflected(i - reach, width) * channels)
    for y in range(height):
        row, total = image[y].ravel(), totals[y]
        total[:channels] = f(0)
        r, g, b = f(0), f(0), f(0)
        if channels == 1:
            for i in range(places.size):
                r += row[places[i]]
                total[i + 1] = r
            continue
        for i in range(places.size):
            at = places[i]
            r += row[at]
            g += row[at + ONE]
            b += row[at + TWO]
            total[3 * i + 3] = r
            total[3 * i + 4] = g
            total[3 * i + 5] = b


@loose
def defocus(x: Batch, out: Batch, rows: Ints, ends: Ints, parts: Floats, reach: int) -> None:
    """Correlate with a disk, edges reflected about the outermost pixel."""
    count, height, width, channels = x.shape
    wide = width * channels
    totals = np.empty((height, (width + 2 * reach + 1) * channels), np.float32)
    both = np.empty(totals.shape[1], np.float32)
    for n in range(count):
        running_totals(x[n], totals, reach)
        for y in range(height):
            target = out[n, y].ravel()
            target[:] = f(0)
            for r in range(rows.size):
                above = totals[reflected(y - rows[r], height)]
                below = totals[reflected(y + rows[r], height)]
                share = f(0.5) if rows[r] == 0 else f(1)
                for i in range(both.size):
                    both[i] = (above[i] + below[i]) * share
                low0 = both[(reach - ends[r, 0]) * channels :]
                low1 = both[(reach - ends[r, 1]) * channels :]
                low2 = both[(reach - ends[r, 2]) * channels :]
                high0 = both[(reach + ends[r, 0] + 1) * channels :]
                high1 = both[(reach + ends[r, 1] + 1) * channels :]
                high2 = both[(reach + ends[r, 2] + 1) * channels :]
                a, b, c = parts[r, 0], parts[r, 1], parts[r, 2]
                for i in range(wide):
                    target[i] += (
                        a * (high0[i] - low0[i])
                        + b * (high1[i] - low1[i])
                        + c * (high2[i] - low2[i])
                    )
            clip(target)


def motion_weights(radius: int, sigma: float) -> Floats:
    """Weights along the path: half a Gaussian over 2·radius + 1 steps, summing to 1.

    >>> [round(float(w), 3) for w in motion_weights(1, 1.0)]
    [0.574, 0.348, 0.078]
    """
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum(), dtype=f)


def motion_offsets(angles: Sequence[float], steps: int) -> Ints:
    """Pixels moved down and right at each step of a path, (N, steps, 2), for angles in degrees.

    >>> motion_offsets([0.0, 45.0], 3).tolist()
    [[[0, 0], [0, -1], [0, -2]], [[0, 0], [-1, -1], [-1, -1]]]
    """
    radians = np.deg2rad(np.asarray(angles, dtype=np.float64))[:, None]
    along = np.arange(steps)[None, :]
    down = -np.ceil(along * np.sin(radians) - 0.5)
    right = -np.ceil(along * np.cos(radians) - 0.5)
    return np.stack([down, right], axis=-1).astype(np.int64)


def motion_path(keys: Keys, p: dict[str, float], low: float, high: float) -> tuple[Ints, Floats]:
    """Steps and weights of a motion whose angle, in degrees, is drawn per image (stream 9)."""
    weights = motion_weights(int(p["radius"]), p["sigma"])
    angles = [low + (high - low) * uniforms(int(key), 9, 1)[0] for key in keys]
    return motion_offsets(angles, weights.size), weights


@inlined
def step_row(y: int, down: int, height: int) -> int:
    """The row that lies ``down`` above, the edge repeated."""
    return min(max(y - down, 0), height - 1)


@loose
def motion(x: Batch, out: Batch, offsets: Ints, weights: Floats) -> None:
    """Σ wᵢ·(x moved by the i-th offset), edges repeated; the number of steps is odd."""
    count, height, width, channels = x.shape
    reach = weights.size
    wide = width * channels
    padded = np.empty((height, (width + 2 * reach) * channels), np.float32)
    for n in range(count):
        for y in range(height):
            row = padded[y]
            row[reach * channels : reach * channels + wide] = x[n, y].ravel()
            for i in range(reach):
                for c in range(channels):
                    row[i * channels + c] = x[n, y, 0, c]
                    row[(reach + width + i) * channels + c] = x[n, y, width - 1, c]
        for y in range(height):
            target = out[n, y].ravel()
            first = padded[step_row(y, offsets[n, 0, 0], height)]
            first = first[(reach - offsets[n, 0, 1]) * channels :]
            for j in range(wide):
                target[j] = weights[0] * first[j]
            for i in range(1, weights.size, 2):
                a = padded[step_row(y, offsets[n, i, 0], height)]
                a = a[(reach - offsets[n, i, 1]) * channels :]
                b = padded[step_row(y, offsets[n, i + 1, 0], height)]
                b = b[(reach - offsets[n, i + 1, 1]) * channels :]
                v, w = weights[i], weights[i + 1]
                for j in range(wide):
                    target[j] += v * a[j] + w * b[j]
            clip(target)


@lru_cache(maxsize=16)
def zoom_layers(end: float, step: float, height: int, width: int) -> Layers:
    """Where each row and column of each enlarged copy comes from: lower index and weight.

    A copy enlarged by z is the middle ⌈H/z⌉ × ⌈W/z⌉ pixels stretched by linear interpolation,
    corners on corners, to round(⌈H/z⌉·z) rows, of which the first H are used.
    """
    return (*_stretch(end, step, height), *_stretch(end, step, width))


def _stretch(end: float, step: float, size: int) -> tuple[Ints, Floats]:
    """Lower index and weight of each of ``size`` places in each copy, (layers, size)."""
    low, part = [], []
    for z in np.arange(1, end, step):
        kept = math.ceil(size / float(z))
        stretched = round(kept * float(z))
        at = np.arange(size) * ((kept - 1) / max(stretched - 1, 1))
        at = np.minimum(at, kept - 1)
        lower = np.minimum(np.floor(at), max(kept - 2, 0))
        low.append(lower + (size - kept) // 2)
        part.append(at - lower)
    return np.array(low, np.int64), np.array(part, f)


@loose
def zoom(x: Batch, out: Batch, low_y: Ints, part_y: Floats, low_x: Ints, part_x: Floats) -> None:
    """The mean of an image and its enlarged copies.

    Along a row of a copy the source moves one pixel per pixel, but for a halt now and then: pieces
    between halts are plain shifts.
    """
    count, height, width, channels = x.shape
    layers = low_y.shape[0]
    mixed = np.empty(width * channels, np.float32)
    share = f(1) / f(layers + 1)
    parts = np.empty((layers, width * channels), np.float32)
    starts = np.empty((layers, width + 1), np.int64)
    pieces = np.zeros(layers, np.int64)
    for z in range(layers):
        for j in range(width):
            if j == 0 or low_x[z, j] != low_x[z, j - 1] + 1:
                starts[z, pieces[z]] = j
                pieces[z] += 1
            parts[z, j * channels : (j + 1) * channels] = part_x[z, j]
        starts[z, pieces[z]] = width
    for n in range(count):
        for y in range(height):
            target = out[n, y].ravel()
            target[:] = x[n, y].ravel()
            for z in range(layers):
                upper, lower = x[n, low_y[z, y]].ravel(), x[n, low_y[z, y] + 1].ravel()
                part = part_y[z, y]
                for i in range(mixed.size):
                    mixed[i] = upper[i] + part * (lower[i] - upper[i])
                for k in range(pieces[z]):
                    at = starts[z, k]
                    size = (starts[z, k + 1] - at) * channels
                    left = mixed[low_x[z, at] * channels :]
                    right = mixed[(low_x[z, at] + 1) * channels :]
                    some, weight = target[at * channels :], parts[z, at * channels :]
                    for i in range(size):
                        some[i] += left[i] + weight[i] * (right[i] - left[i])
            for i in range(target.size):
                target[i] *= share
            clip(target)
