"""Probes of a model into a store: images in, one row of numbers per path or image out.

Work is done in parts of fixed bounds, so that a killed run continues where it was.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.backends import Backend, choose_backend
from shiftbed.evaluation.data import TestSet, batches
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.base import normalised
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.jacobian import differentiable, exact_squares, projected_squares
from shiftbed.evaluation.probes.paths import (
    POINTS,
    amplitude_path,
    consistent_distance,
    high_frequency_fraction,
    magnitudes,
    phase_path,
    pixel_pieces,
    softmax,
)
from shiftbed.evaluation.probes.probe import Probe, is_small, rows_of
from shiftbed.store import PredictionStore
from shiftbed.store.probes import (
    probe_parts,
    probe_record,
    read_probe,
    remove_probe_part,
    write_probe,
    write_probe_part,
)

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Score = Callable[[Floats], Floats]
"""From (N, C, H, W) pixels, which may leave [0, 1], to (N, classes) logits."""
Piece = Callable[[int, int], pl.DataFrame]
"""From first and last + 1 to the results in between."""
Report = Callable[[str, int, int], None]
"""What is measured, how much of it is done, and how much there is."""
BATCH = 128
"""Points of a path that go through the model together: all 100 of them."""


def probe_model(
    store: PredictionStore,
    model: Model,
    test_set: TestSet,
    probes: Sequence[Probe],
    *,
    name: str | None = None,
    setting: str | None = None,
    pairs: int | None = None,
    backend: str = "auto",
    threads: int = 2,
    report: Report | None = None,
) -> dict[str, str]:
    """Measure probes of one model on one test set; those that cannot be measured, and why.

    ``pairs`` is the number of paths (of images, for the Jacobian); by default the paper's for this
    size of image. What the store has already is not measured again. Fewer paths than it has change
    nothing; more are added to them. Paths run on the ``backend`` that is fastest (see
    ``backends.py``), and go on with the one they were begun with.
    """
    key = (name or model.id, setting or test_set.name)
    runs = _Backends(model=model, asked=backend)
    refused: dict[str, str] = {}
    for probe in probes:
        try:
            if probe.name == "jacobian":
                differentiable(model)
            size, labels = model.preprocessing.size, np.asarray(test_set.labels)
            rows = rows_of(probe, labels, size, pairs)
        except InputError as error:
            refused[probe.name] = str(error)
            continue
        about = about_probe(model, test_set, probe.describe())
        measure = partial(measure_images, model, test_set, probe, threads=threads)
        if probe.name != "jacobian":
            there = probe_record(store, *key, probe.name) or {}
            engine = str(there.get("backend") or runs.fastest(test_set, probe, rows))
            about["backend"] = engine
            score = partial(runs.score, engine)
            measure = partial(measure_paths, model, test_set, probe, score=score, threads=threads)
        chunk = 100 if is_small(size) else 20  # seconds of work on two cores

        def piece(start: int, stop: int, rows: Rows = rows, measure: Any = measure) -> pl.DataFrame:
            return measure(rows[start:stop])  # type: ignore[no-any-return]

        own = (*key, probe.name)
        into_parts(store, own, about, len(rows), chunk, piece, report, test_set=test_set)
    return refused


def about_probe(model: Model, test_set: TestSet, parameters: dict[str, Any]) -> dict[str, Any]:
    """What the results of a probe depend on, for its record."""
    return {
        "parameters": parameters,
        "fingerprint": test_set.fingerprint,
        "model_facts": model.describe(),
        "model_fingerprint": model.fingerprint,
    }


def into_parts(
    store: PredictionStore,
    key: tuple[str, str, str],
    about: dict[str, Any],
    total: int,
    chunk: int,
    piece: Piece,
    report: Report | None = None,
    *,
    test_set: TestSet | None = None,
) -> None:
    """Measure what is missing of 0 … total − 1 in chunks, and write each when it is done.

    Parts begin at multiples of the chunk. A last part that was shorter is measured again when
    more is wanted; one that is longer than wanted stays. Rows are images of the ``test_set``, or
    pairs of them: parts with some that could not be read are measured again.
    """
    there = probe_record(store, *key)
    unread = list((there or {}).get("unread", ()))
    begun = about | (_without(test_set, unread) if unread and test_set is not None else {})
    _agrees(key, there, begun)
    chunk = int(there["chunk"]) if there else chunk
    have = dict(probe_parts(store, *key))
    wanted = {at: min(at + chunk, total) for at in range(0, total, chunk)}
    paths = max([total, *have.values()])
    missing = {start for start, stop in wanted.items() if have.get(start, 0) < stop}
    if unread:
        lost = _lost(read_probe(store, *key))
        missing |= {
            at for at, stop in wanted.items() if have.get(at) == stop and lost[at:stop].any()
        }
    if missing:
        write_probe(store, *key, {**begun, "paths": paths, "chunk": chunk, "status": "running"})
    for start, stop in wanted.items():
        if start in missing:
            write_probe_part(store, *key, start, piece(start, stop))
            if have.get(start, stop) != stop:
                remove_probe_part(store, *key, (start, have[start]))
        if report is not None:
            report(key[2], stop, total)
    if missing or there is None or there.get("status") != "complete":
        if test_set is not None:
            lost_images = {*test_set.unread, *_unread(read_probe(store, *key))}
            about = about | _without(test_set, sorted(lost_images))
        write_probe(store, *key, {**about, "paths": paths, "chunk": chunk, "status": "complete"})


def _without(test_set: TestSet, rows: Sequence[int]) -> dict[str, Any]:
    """For the record: which images could not be read, and which the others are."""
    known = {"fingerprint": test_set.fingerprint_without(rows)}
    return known | ({"unread": list(rows)} if rows else {})


def _lost(frame: pl.DataFrame) -> NDArray[np.bool_]:
    """Which paths or images could not be measured, for want of a picture."""
    return frame["points" if "points" in frame.columns else "square"].is_null().to_numpy()


def _unread(frame: pl.DataFrame) -> list[int]:
    """Images of these paths, and of no path that could be measured."""
    rows = frame.select(name for name in ("first", "second") if name in frame.columns).to_numpy()
    lost = _lost(frame)
    return sorted({*rows[lost].ravel().tolist()} - {*rows[~lost].ravel().tolist()})


def _agrees(key: tuple[str, str, str], there: dict[str, Any] | None, about: dict[str, Any]) -> None:
    """Refuse to add to results of other images or another model, or measured otherwise."""
    if there is None:
        return
    where = f"{key[2]} of {key[0]!r} on {key[1]!r} is in the store"
    if there.get("fingerprint") != about["fingerprint"]:
        raise InputError(
            f"{where} with other images, or with some that cannot be read now or could not then; "
            "use another store, or another name"
        )
    was, now = (
        (one.get("model_facts", {}).get("id"), one.get("model_fingerprint"))
        for one in (there, about)
    )
    if any(a != b for a, b in zip(was, now, strict=True) if a is not None and b is not None):
        what = f"of {was[0]}, now {now[0]}" if was[0] != now[0] else "with other weights"
        raise InputError(f"{where}, measured {what}; use another store, or another name")
    old, new = there.get("parameters", {}), about["parameters"]
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            raise InputError(
                f"{where} with {name} = {old.get(name)}, now {new.get(name)}; use another store"
            )


def measure_paths(
    model: Model,
    test_set: TestSet,
    probe: Probe,
    pairs: Rows,
    *,
    score: Score,
    threads: int = 2,
) -> pl.DataFrame:
    """A row per pair (P, 2) of rows of the test set; columns as ``store/probes.py`` says.

    The two images of a path are transformed once; its points go through the model together.
    ``score`` runs the model on pixels, also outside [0, 1].
    """
    space = probe.space(model.preprocessing)
    images = images_of(model, test_set, np.unique(pairs), space, threads=threads)
    rows: list[dict[str, object]] = []
    for first, second in pairs.tolist():
        row: dict[str, object] = {"first": first, "second": second}
        if first in images and second in images:
            pieces = pieces_of(probe, images[first], images[second])
            pixels = (as_pixels(piece, space) for piece in pieces)
            probability = along(score, pixels)[None]
            magnitude = magnitudes(probability)
            row |= {
                "points": probability.shape[1],
                "hff": float(high_frequency_fraction(magnitude)[0]),
                "hff_released": float(high_frequency_fraction(magnitude, variant="released")[0]),
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
    model: Model, test_set: TestSet, probe: Probe, rows: Rows, *, threads: int = 2
) -> pl.DataFrame:
    """A row per image (N,): ``first`` (its row) and ``square``, ‖J‖²_F or its estimate.

    An image's projections are those of its row in the test set.
    """
    pixels = pixels_of(model, test_set, rows, threads=threads)
    there = [row for row in rows.tolist() if row in pixels]
    squares: dict[int, float] = {}
    if there:
        x = np.stack([pixels[row] for row in there])
        std = probe.space(model.preprocessing).std
        if probe.projections:
            draws = {"projections": probe.projections, "seed": probe.seed}
            found = projected_squares(model, x, numbers=there, std=std, **draws)
        else:
            found = exact_squares(model, x, std=std)
        squares = dict(zip(there, found.tolist(), strict=True))
    column = pl.Series([squares.get(row) for row in rows.tolist()], dtype=pl.Float64)
    return pl.DataFrame({"first": rows, "square": column})


def images_of(
    model: Model, test_set: TestSet, rows: Rows, space: Preprocessing, *, threads: int = 2
) -> dict[int, Floats]:
    """(C, H, W) images by row, as the model takes them and normalised as ``space`` says.

    Unreadable ones are left out.
    """
    pixels = pixels_of(model, test_set, rows, threads=threads)
    return {row: normalised(x, space) for row, x in pixels.items()}


def pixels_of(
    model: Model, test_set: TestSet, rows: Rows, *, threads: int = 2
) -> dict[int, Floats]:
    """(C, H, W) images in [0, 1] by row."""
    found: dict[int, Floats] = {}
    p = model.preprocessing
    for batch in batches(test_set, rows, p.pixels, 64, threads, p.draft):
        x = np.ascontiguousarray(pixels_to_float(batch.pixels))
        found |= dict(zip(batch.rows.tolist(), x, strict=True))
    return found


def path_of(probe: Probe, x0: Floats, x1: Floats) -> Floats:
    """(points, C, H, W): the path of that probe between two normalised images."""
    return np.concatenate(list(pieces_of(probe, x0, x1)))


def pieces_of(probe: Probe, x0: Floats, x1: Floats) -> Iterator[Floats]:
    """The same path, as many points at a time as go through the model together."""
    if probe.name.startswith("pixel"):
        yield from pixel_pieces(x0, x1, probe.step, BATCH)
        return
    make = amplitude_path if probe.name == "amplitude" else phase_path
    path = make(x0, x1, probe.w, probe.points)
    yield from (path[at : at + BATCH] for at in range(0, len(path), BATCH))


def along(score: Score, pieces: Iterable[Floats]) -> NDArray[np.float64]:
    """(points, classes): probabilities along a path, given in pieces of pixels."""
    return softmax(np.concatenate([score(pixels) for pixels in pieces]))


def as_pixels(path: Floats, preprocessing: Preprocessing) -> Floats:
    """Normalised images back to the pixels that a model takes, in place; not clipped."""
    path *= np.array(preprocessing.std, np.float32)[:, None, None]
    path += np.array(preprocessing.mean, np.float32)[:, None, None]
    return path


@dataclass(frozen=True, kw_only=True, eq=False)
class _Backends:
    """Backends of one model, opened when they are needed."""

    model: Model
    asked: str
    opened: dict[str, Backend] = field(default_factory=dict)

    def fastest(self, test_set: TestSet, probe: Probe, rows: Rows) -> str:
        """The backend asked for, or the fastest one on a path that can be read."""
        if self.opened:
            return next(iter(self.opened))
        sample: list[Floats] = []
        space = probe.space(self.model.preprocessing)
        for pair in rows[:10]:
            images = images_of(self.model, test_set, pair, space, threads=1)
            if len(images) == 2:
                piece = next(pieces_of(probe, *(images[row] for row in pair.tolist())))
                sample.append(as_pixels(piece, space))
                break
        count = len(rows) * POINTS
        found = choose_backend(self.model, sample, self.asked, images=count, within=False)
        self.opened[found.name] = found
        return found.name

    def score(self, name: str, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        if name not in self.opened:
            self.opened[name] = choose_backend(self.model, [], name, within=False)
        return self.opened[name].run(pixels)
