"""Images by frequency: a model's error under each, and their spectra (Yin et al. 2019).

Heat map: U_{ij} is the real image of unit ℓ2 norm whose DFT is zero but at (i, j) and (−i, −j). To
each channel of an image in [0, 1] ±v·U_{ij} is added, the sign drawn per image and channel; pixels
are not clipped, so that the perturbation stays one frequency. (i, j) and (−i, −j) have the same U,
so half of the frequencies are measured.

Spectrum (Section 3): of an (C, H, W) image in [0, 1], |DFT| of each channel is averaged over
channels and over the ring of frequencies whose distance from 0, √((k₁/H)² + (k₂/W)²)·min(H, W),
rounds to r = 0, 1, …, ⌊min(H, W)/2⌋. For a corruption the image is the corrupted one minus the
clean one. Every image gives one spectrum; their mean has a Gaussian interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import fft
from scipy.special import ndtri

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, batches
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.perturbations import parse_perturbation
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.probes.measure import BATCH, Report, about_probe, into_parts, pixels_of
from shiftbed.evaluation.probes.probe import is_small, some_rows
from shiftbed.store import PredictionStore
from shiftbed.store.probes import read_probe

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
PROBE = "heatmap"
_COLUMNS = dict.fromkeys(("i", "j", "wrong", "n"), pl.Int64)


def basis(height: int, width: int, i: int, j: int) -> Floats:
    """(height, width): U_{ij}, the real wave of frequency (i, j) and norm 1.

    >>> u = basis(8, 8, 1, 2)
    >>> round(float((u**2).sum()), 6), int((np.abs(np.fft.fft2(u)) > 1e-3).sum())
    (1.0, 2)
    """
    spectrum = np.zeros((height, width), dtype=np.complex128)
    spectrum[i % height, j % width] = 1.0
    spectrum[-i % height, -j % width] = 1.0
    wave = fft.ifft2(spectrum).real
    return np.asarray(wave / np.sqrt((wave**2).sum()), dtype=np.float32)


def frequencies(height: int, width: int, most: int | None = None) -> NDArray[np.int64]:
    """(F, 2): frequencies (i, j) with |i|, |j| ≤ ``most``, one of each pair (i, j), (−i, −j)."""
    if most is not None and most < 0:
        raise InputError(f"the highest frequency must be at least 0, is {most}")
    sides = []
    for size in (height, width):
        along = fft.fftshift(fft.fftfreq(size, 1 / size)).astype(np.int64)
        sides.append(along if most is None else along[np.abs(along) <= most])
    seen: set[tuple[int, int]] = set()
    found = []
    for i in sides[0].tolist():
        for j in sides[1].tolist():
            if (-i % height, -j % width) not in seen:
                found.append((i, j))
                seen.add((i % height, j % width))
    return np.array(found, dtype=np.int64)


def default_norm(height: int, width: int) -> float:
    """v = 4 at 32 × 32 and 15.7 at 224 × 224 (Yin et al. 2019); a line through both elsewhere.

    The line is in the side √(H·W); below 32 px it goes to 0 with the side.
    """
    side = float(np.sqrt(height * width))
    return 4.0 * side / 32 if side < 32 else 4.0 + (15.7 - 4.0) * (side - 32) / (224 - 32)


def heat_map(
    store: PredictionStore,
    model: Model,
    test_set: TestSet,
    *,
    name: str | None = None,
    setting: str | None = None,
    norm: float | None = None,
    most: int | None = None,
    images: int = 256,
    seed: int = 0,
    report: Report | None = None,
) -> pl.DataFrame:
    """Errors per frequency: columns i, j, wrong, n; kept in the store, part by part.

    ``most`` is the highest frequency per axis: by default all of a small image's, and 15 of a
    large one's (31 × 31 frequencies). Labels are the test set's own.
    """
    height, width = model.preprocessing.size
    if most is None and not is_small((height, width)):
        most = 15
    v = default_norm(height, width) if norm is None else norm
    if v <= 0:
        raise InputError(f"the norm of the perturbation must be above 0, is {v:g}")
    waves = frequencies(height, width, most)
    labels = np.asarray(test_set.labels)
    labelled = np.flatnonzero(labels >= 0)
    if not len(labelled):
        raise InputError(f"{test_set.name} has no labels, so there is no error to map")
    rows = labelled[some_rows(len(labelled), images, seed)]
    how = {"norm": v, "most": most, "images": len(rows), "seed": seed}
    key = (name or model.id, setting or test_set.name, PROBE)

    @cache
    def prepared() -> tuple[Floats, NDArray[np.int64], Floats]:
        """Pixels, labels and signs (N, C, 1, 1) of the images that can be read."""
        found = pixels_of(model, test_set, rows)
        if not found:
            raise InputError(f"{test_set.name}: no image could be read")
        pixels = np.stack([found[row] for row in rows.tolist() if row in found])
        sign = np.random.default_rng((seed, 7)).choice(
            np.array([-1, 1], np.float32), size=(*pixels.shape[:2], 1, 1)
        )
        return pixels, labels[[row for row in rows.tolist() if row in found]], sign

    def wrong(i: int, j: int) -> int:
        x, y, sign = prepared()
        wave = np.float32(v) * basis(height, width, i, j)
        count = 0
        for at in range(0, len(x), BATCH):
            some = slice(at, at + BATCH)
            best = model.logits(x[some] + sign[some] * wave, within=False).argmax(axis=1)
            count += int((best != y[some]).sum())
        return count

    def piece(start: int, stop: int) -> pl.DataFrame:
        rows = [(i, j, wrong(i, j), len(prepared()[1])) for i, j in waves[start:stop].tolist()]
        return pl.DataFrame(rows, schema=_COLUMNS, orient="row")

    into_parts(store, key, about_probe(model, test_set, how), len(waves), 16, piece, report)
    return read_probe(store, *key)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """Mean amplitude at radial frequencies 0, 1, …, with the ends of its interval."""

    name: str
    mean: Doubles
    low: Doubles
    high: Doubles
    n: int
    """Images."""


def radial_spectra(images: NDArray[np.floating]) -> Doubles:
    """(N, R): mean amplitude per ring of frequencies of (N, C, H, W) images.

    >>> flat = np.full((1, 1, 4, 4), 0.5)
    >>> radial_spectra(flat)
    array([[8., 0., 0.]])
    """
    if images.ndim != 4:
        raise InputError(f"images must be (N, C, height, width), are {images.shape}")
    height, width = images.shape[2:]
    shorter = min(height, width)
    down, across = fft.fftfreq(height)[:, None], fft.fftfreq(width)[None, :]
    ring = np.rint(np.hypot(down, across) * shorter).astype(np.int64).ravel()
    amplitude = np.abs(fft.fft2(images.astype(np.float64))).mean(axis=1).reshape(len(images), -1)
    rings = shorter // 2 + 1
    count = np.bincount(ring, minlength=rings)[:rings]
    total = np.stack([np.bincount(ring, one, minlength=rings)[:rings] for one in amplitude])
    return np.asarray(total / count)


def mean_spectrum(name: str, each: Doubles, level: float = 0.95) -> Spectrum:
    """The mean of (N, R) spectra, ± z·sd/√N (no interval from one image)."""
    n = len(each)
    if not n:
        raise InputError(f"{name}: no image could be read")
    mean = each.mean(axis=0)
    half = np.full(mean.shape, np.nan)
    if n > 1:
        half = float(ndtri(0.5 + level / 2)) * each.std(axis=0, ddof=1) / np.sqrt(n)
    return Spectrum(name=name, mean=mean, low=mean - half, high=mean + half, n=n)


def spectra_of(
    model: Model,
    test_set: TestSet,
    corruptions: Sequence[str] = (),
    *,
    images: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> list[Spectrum]:
    """Of a test set as the model sees it, and of corrupted minus clean images.

    The first is the test set's own; each other is called after its corruption, ``fog:3``.
    """
    rows = np.sort(some_rows(len(test_set), images, seed))
    perturb = {name: parse_perturbation(name, seed=seed).on(model) for name in corruptions}
    found: dict[str, list[Doubles]] = {name: [] for name in (test_set.name, *perturb)}
    labels = np.asarray(test_set.labels)
    p = model.preprocessing
    for batch in batches(test_set, rows, p.pixels, 64, draft=p.draft):
        if not len(batch.rows):
            continue
        x = pixels_to_float(batch.pixels)
        found[test_set.name].append(radial_spectra(x))
        names = [test_set.examples[row] for row in batch.rows]
        for name, act in perturb.items():
            found[name].append(radial_spectra(act(x, labels[batch.rows], names) - x))
    none = np.zeros((0, 1))
    return [
        mean_spectrum(name, np.concatenate(parts) if parts else none, level)
        for name, parts in found.items()
    ]
