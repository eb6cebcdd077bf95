"""A model along paths: images in, one row of numbers per path out."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.evaluation.data import TestSet, batches
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.base import normalised
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.jacobian import exact_squares, projected_squares
from shiftbed.evaluation.probes.paths import (
    amplitude_path,
    phase_path,
    pixel_path,
    pixel_pieces,
)
from shiftbed.evaluation.probes.settings import Probe
from shiftbed.evaluation.probes.smoothness import (
    consistent_distance,
    magnitudes,
    share_above,
    softmax,
)

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Score = Callable[[Floats], Floats]
"""From (N, C, H, W) pixels, which may leave [0, 1], to (N, classes) logits."""
BATCH = 128
"""Points of a path that go through the model together: all 100 of them."""


def measure_paths(
    model: Model,
    test_set: TestSet,
    probe: Probe,
    pairs: Rows,
    *,
    score: Score | None = None,
    batch_size: int = BATCH,
    threads: int = 2,
) -> pl.DataFrame:
    """A row per pair (P, 2) of rows of the test set; columns as ``store/probes.py`` says.

    The two images of a path are transformed once; its points go through the model together.
    ``score`` is what runs the model on pixels outside [0, 1], by default the model itself.
    """
    score = partial(model.logits, within=False) if score is None else score
    images = images_of(model, test_set, np.unique(pairs), threads=threads)
    rows: list[dict[str, object]] = []
    for first, second in pairs.tolist():
        row: dict[str, object] = {"first": first, "second": second}
        if first in images and second in images:
            pieces = pieces_of(probe, images[first], images[second], batch_size)
            pixels = (as_pixels(piece, model.preprocessing) for piece in pieces)
            probability = along(score, pixels)[None]
            magnitude = magnitudes(probability)
            row |= {
                "points": probability.shape[1],
                "hff": float(share_above(magnitude)[0]),
                "hff_released": float(share_above(magnitude, variant="released")[0]),
                "cd": int(consistent_distance(probability)[0]),
                "magnitude": magnitude[0].astype(np.float32),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=_PATHS)


_PATHS: dict[str, Any] = {
    "first": pl.Int64,
    "second": pl.Int64,
    "points": pl.Int32,
    "hff": pl.Float64,
    "hff_released": pl.Float64,
    "cd": pl.Int32,
    "magnitude": pl.List(pl.Float32),
}


def measure_images(
    model: Model,
    test_set: TestSet,
    probe: Probe,
    rows: Rows,
    *,
    batch_size: int = 32,
    threads: int = 2,
) -> pl.DataFrame:
    """A row per image (N,): ``first`` (its row) and ``square``, ‖J‖²_F or its estimate.

    An image's projections are those of its row in the test set.
    """
    pixels = _pixels_of(model, test_set, rows, threads=threads)
    there = [row for row in rows.tolist() if row in pixels]
    squares: dict[int, float] = {}
    if there:
        x = np.stack([pixels[row] for row in there])
        found = (
            projected_squares(
                model,
                x,
                projections=probe.projections,
                seed=probe.seed,
                numbers=there,
                batch_size=batch_size,
            )
            if probe.projections
            else exact_squares(model, x, batch_size=batch_size)
        )
        squares = dict(zip(there, found.tolist(), strict=True))
    column = pl.Series([squares.get(row) for row in rows.tolist()], dtype=pl.Float64)
    return pl.DataFrame({"first": rows, "square": column})


def images_of(
    model: Model, test_set: TestSet, rows: Rows, *, threads: int = 2
) -> dict[int, Floats]:
    """(C, H, W) normalised images by row; unreadable ones are left out."""
    pixels = _pixels_of(model, test_set, rows, threads=threads)
    return {row: normalised(x, model.preprocessing) for row, x in pixels.items()}


def _pixels_of(model: Model, test_set: TestSet, rows: Rows, *, threads: int) -> dict[int, Floats]:
    """(C, H, W) images in [0, 1] by row."""
    found: dict[int, Floats] = {}
    transform = model.preprocessing.pixels
    for batch in batches(test_set, rows, transform, 64, threads):
        x = np.ascontiguousarray(pixels_to_float(batch.pixels))
        found |= dict(zip(batch.rows.tolist(), x, strict=True))
    return found


def path_of(probe: Probe, x0: Floats, x1: Floats) -> Floats:
    """(points, C, H, W): the path of that probe between two normalised images."""
    if probe.name == "amplitude":
        return amplitude_path(x0, x1, probe.w, probe.points)
    if probe.name == "phase":
        return phase_path(x0, x1, probe.w, probe.points)
    return pixel_path(x0, x1, probe.step)


def pieces_of(probe: Probe, x0: Floats, x1: Floats, most: int = BATCH) -> Iterator[Floats]:
    """The same path, at most ``most`` points at a time."""
    if probe.name.startswith("pixel"):
        yield from pixel_pieces(x0, x1, probe.step, most)
        return
    path = path_of(probe, x0, x1)
    yield from (path[at : at + most] for at in range(0, len(path), most))


def along(score: Score, pieces: Iterable[Floats]) -> NDArray[np.float64]:
    """(points, classes): probabilities along a path, given in pieces of pixels."""
    return softmax(np.concatenate([score(pixels) for pixels in pieces]))


def as_pixels(path: Floats, preprocessing: Preprocessing) -> Floats:
    """Normalised images back to the pixels that a model takes, in place; not clipped."""
    path *= np.array(preprocessing.std, np.float32)[:, None, None]
    path += np.array(preprocessing.mean, np.float32)[:, None, None]
    return path
