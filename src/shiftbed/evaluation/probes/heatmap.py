"""Fourier heat maps: a model's error under one frequency of noise at a time (Yin et al. 2019).

U_{ij} is the real image of unit ℓ2 norm whose DFT is zero but at (i, j) and (−i, −j). To each
channel of an image in [0, 1] ±v·U_{ij} is added, the sign drawn per image and channel; pixels are
not clipped, so that the perturbation stays one frequency. (i, j) and (−i, −j) have the same U, so
half of the frequencies are measured.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import fft

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.probes.measure import as_pixels, images_of
from shiftbed.evaluation.probes.pairs import some_rows
from shiftbed.evaluation.probes.running import Report, into_parts
from shiftbed.evaluation.probes.settings import is_small
from shiftbed.store import PredictionStore
from shiftbed.store.probes import read_probe

Floats = NDArray[np.float32]
PROBE = "heatmap"


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
    """(F, 2): frequencies (i, j) with |i|, |j| ≤ ``most``, one of each pair (i, j), (−i, −j).

    >>> len(frequencies(32, 32)), len(frequencies(224, 224, 15))
    (514, 481)
    """
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

    >>> default_norm(32, 32), round(default_norm(224, 224), 1)
    (4.0, 15.7)
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
    batch_size: int = 128,
    threads: int = 2,
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
    about = {
        "parameters": {"norm": v, "most": most, "images": len(rows), "seed": seed},
        "fingerprint": test_set.fingerprint,
        "model_facts": model.describe(),
    }
    key = (name or model.id, setting or test_set.name, PROBE)
    loaded: list[tuple[Floats, NDArray[np.int64], Floats]] = []

    def piece(start: int, stop: int) -> pl.DataFrame:
        if not loaded:
            loaded.append(_prepared(model, test_set, rows, labels, seed, threads))
        x, y, sign = loaded[0]
        wrong = []
        for i, j in waves[start:stop].tolist():
            u = np.float32(v) * basis(height, width, i, j)
            wrong.append(_wrong(model, x, y, sign, u, batch_size))
        return pl.DataFrame(
            {
                "i": waves[start:stop, 0],
                "j": waves[start:stop, 1],
                "wrong": pl.Series(wrong, dtype=pl.Int64),
                "n": pl.Series([len(y)] * len(wrong), dtype=pl.Int64),
            }
        )

    into_parts(store, key, about, len(waves), 16, piece, report)
    return read_probe(store, *key)


def _prepared(
    model: Model,
    test_set: TestSet,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    seed: int,
    threads: int,
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Pixels, labels and signs (N, C, 1, 1) of the images that can be read."""
    found = images_of(model, test_set, rows, threads=threads)
    if not found:
        raise InputError(f"{test_set.name}: no image could be read")
    kept = np.array([row for row in rows.tolist() if row in found])
    pixels = as_pixels(np.stack([found[row] for row in kept.tolist()]), model.preprocessing)
    sign = np.random.default_rng((seed, 7)).choice(
        np.array([-1, 1], np.float32), size=(*pixels.shape[:2], 1, 1)
    )
    return pixels, labels[kept], sign


def _wrong(
    model: Model,
    x: Floats,
    y: NDArray[np.int64],
    sign: Floats,
    wave: Floats,
    batch_size: int,
) -> int:
    wrong = 0
    for at in range(0, len(x), batch_size):
        moved = x[at : at + batch_size] + sign[at : at + batch_size] * wave
        best = model.logits(moved, within=False).argmax(axis=1)
        wrong += int((best != y[at : at + batch_size]).sum())
    return wrong
