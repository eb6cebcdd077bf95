"""Spectra of images: mean amplitude per radial frequency (Yin et al. 2019, Section 3).

Of an (C, H, W) image in [0, 1], |DFT| of each channel is averaged over channels and over the ring
of frequencies whose distance from 0, √((k₁/H)² + (k₂/W)²)·min(H, W), rounds to r = 0, 1, …,
⌊min(H, W)/2⌋. For a corruption the image is the corrupted one minus the clean one. Every image
gives one spectrum; their mean has a Gaussian interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import ndtri

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, batches
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.perturbations import parse_perturbation
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.probes.pairs import some_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """Mean amplitude at radial frequencies 0, 1, …, with the ends of its interval."""

    name: str
    mean: Floats
    low: Floats
    high: Floats
    n: int
    """Images."""


def radial_spectra(images: NDArray[np.floating]) -> Floats:
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


def spectra(name: str, each: Floats, level: float = 0.95) -> Spectrum:
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
    threads: int = 2,
) -> list[Spectrum]:
    """Of a test set as the model sees it, and of corrupted minus clean images.

    The first is the test set's own; each other is called after its corruption, ``fog:3``.
    """
    rows = np.sort(some_rows(len(test_set), images, seed))
    perturb = {name: parse_perturbation(name, seed=seed).on(model) for name in corruptions}
    found: dict[str, list[Floats]] = {name: [] for name in (test_set.name, *perturb)}
    labels = np.asarray(test_set.labels)
    for batch in batches(test_set, rows, model.preprocessing.pixels, 64, threads):
        if not len(batch.rows):
            continue
        x = pixels_to_float(batch.pixels)
        found[test_set.name].append(radial_spectra(x))
        names = [test_set.examples[row] for row in batch.rows]
        for name, act in perturb.items():
            found[name].append(radial_spectra(act(x, labels[batch.rows], names) - x))
    none = np.zeros((0, 1))
    return [
        spectra(name, np.concatenate(parts) if parts else none, level)
        for name, parts in found.items()
    ]
