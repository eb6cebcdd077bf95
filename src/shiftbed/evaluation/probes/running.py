"""Probes of a model into a store: in parts, so that a killed run continues where it was."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.backends import Backend, choose_backend
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models import Model, TorchModel
from shiftbed.evaluation.probes.measure import (
    Score,
    as_pixels,
    images_of,
    measure_images,
    measure_paths,
    pieces_of,
)
from shiftbed.evaluation.probes.pairs import any_pairs, between_pairs, some_rows, within_pairs
from shiftbed.evaluation.probes.paths import POINTS
from shiftbed.evaluation.probes.settings import Probe, default_pairs, is_small
from shiftbed.store import PredictionStore
from shiftbed.store.probes import (
    probe_parts,
    probe_record,
    remove_probe_part,
    write_probe,
    write_probe_part,
)

Rows = NDArray[np.int64]
Piece = Callable[[int, int], pl.DataFrame]
"""From first and last + 1 to the results in between."""
Report = Callable[[str, int, int], None]
"""What is measured, how much of it is done, and how much there is."""


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
    """Measure probes of one model on one test set; those that cannot be had, and why.

    ``pairs`` is the number of paths (of images, for the Jacobian); by default the paper's for this
    size of image. What the store has already is not measured again. Fewer paths than it has change
    nothing; more are added to them. Paths run on the ``backend`` that is fastest (see
    ``backends.py``), and go on with the one they were begun with.
    """
    model_name, setting_name = name or model.id, setting or test_set.name
    runs = _Runs(model=model, asked=backend)
    refused: dict[str, str] = {}
    for probe in probes:
        if probe.name == "jacobian" and not isinstance(model, TorchModel):
            refused[probe.name] = (
                f"{model.id} has no gradients (it is no torch module), so its Jacobian cannot be "
                "had; the other probes can"
            )
            continue
        try:
            rows = chosen_rows(model, test_set, probe, pairs)
        except InputError as error:
            refused[probe.name] = str(error)
            continue
        about: dict[str, Any] = {
            "parameters": probe.describe(),
            "fingerprint": test_set.fingerprint,
            "model_facts": model.describe(),
        }
        key = (model_name, setting_name, probe.name)
        there = probe_record(store, *key)
        agrees(key, there, about)
        if probe.name == "jacobian":
            piece: Piece = partial(_jacobians, model, test_set, probe, rows, threads)
        else:
            engine = str((there or {}).get("backend") or runs.fastest(test_set, probe, rows))
            about["backend"] = engine
            score = partial(runs.score, engine)
            piece = partial(_paths, model, test_set, probe, rows, score, threads)
        into_parts(store, key, about, len(rows), _chunk(model), piece, report)
    return refused


def chosen_rows(model: Model, test_set: TestSet, probe: Probe, pairs: int | None) -> Rows:
    """(P, 2) pairs of rows for paths, (N,) rows for the Jacobian."""
    images, size = len(test_set), model.preprocessing.size
    labels = np.asarray(test_set.labels)
    if probe.name == "pixel_within":
        return within_pairs(labels, pairs, probe.seed)
    if probe.name == "pixel_between":
        return between_pairs(labels, pairs, probe.seed)
    wanted = default_pairs(probe.name, size, images) if pairs is None else pairs
    if probe.name == "jacobian":
        return some_rows(images, wanted or 0, probe.seed)
    return any_pairs(images, wanted, probe.seed)


def into_parts(
    store: PredictionStore,
    key: tuple[str, str, str],
    about: dict[str, Any],
    total: int,
    chunk: int,
    piece: Piece,
    report: Report | None = None,
) -> None:
    """Measure what is missing of 0 … total − 1 in chunks, and write each when it is done.

    Parts begin at multiples of the chunk. A last part that was shorter is measured anew when more
    is wanted; one that is longer than wanted stays.
    """
    there = probe_record(store, *key)
    agrees(key, there, about)
    chunk = int(there["chunk"]) if there else chunk
    have = dict(probe_parts(store, *key))
    wanted = {at: min(at + chunk, total) for at in range(0, total, chunk)}
    paths = max([total, *have.values()])
    missing = {start for start, stop in wanted.items() if have.get(start, 0) < stop}
    if missing:
        write_probe(store, *key, {**about, "paths": paths, "chunk": chunk, "status": "running"})
    for start, stop in wanted.items():
        if start in missing:
            write_probe_part(store, *key, start, piece(start, stop))
            if start in have:
                remove_probe_part(store, *key, (start, have[start]))
        if report is not None:
            report(key[2], stop, total)
    if missing or there is None:
        write_probe(store, *key, {**about, "paths": paths, "chunk": chunk, "status": "complete"})


def agrees(key: tuple[str, str, str], there: dict[str, Any] | None, about: dict[str, Any]) -> None:
    """Refuse to add to results of other images, or measured otherwise."""
    if there is None:
        return
    where = f"{key[2]} of {key[0]!r} on {key[1]!r} is in the store"
    if there.get("fingerprint") != about["fingerprint"]:
        raise InputError(f"{where} with other images; use another store, or another name")
    old, new = there.get("parameters", {}), about["parameters"]
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            raise InputError(
                f"{where} with {name} = {old.get(name)}, now {new.get(name)}; use another store"
            )


def _chunk(model: Model) -> int:
    """Paths per part: seconds of work on two cores."""
    return 100 if is_small(model.preprocessing.size) else 20


def _paths(
    model: Model,
    test_set: TestSet,
    probe: Probe,
    rows: Rows,
    score: Score,
    threads: int,
    start: int,
    stop: int,
) -> pl.DataFrame:
    return measure_paths(model, test_set, probe, rows[start:stop], score=score, threads=threads)


def _jacobians(
    model: Model, test_set: TestSet, probe: Probe, rows: Rows, threads: int, start: int, stop: int
) -> pl.DataFrame:
    return measure_images(model, test_set, probe, rows[start:stop], threads=threads)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Runs:
    """Backends of one model, opened when they are needed."""

    model: Model
    asked: str
    opened: dict[str, Backend] = field(default_factory=dict)

    def fastest(self, test_set: TestSet, probe: Probe, rows: Rows) -> str:
        """The backend asked for, or the fastest one on a path that can be read."""
        if self.opened:
            return next(iter(self.opened))
        sample: list[NDArray[np.float32]] = []
        for first, second in rows[:10].tolist():
            images = images_of(self.model, test_set, np.array([first, second]), threads=1)
            if len(images) == 2:
                piece = next(pieces_of(probe, images[first], images[second]))
                sample.append(as_pixels(piece, self.model.preprocessing))
                break
        count = len(rows) * POINTS
        found = choose_backend(self.model, sample, self.asked, images=count, within=False)
        self.opened[found.name] = found
        return found.name

    def score(self, name: str, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        if name not in self.opened:
            self.opened[name] = choose_backend(self.model, [], name, within=False)
        return self.opened[name].run(pixels)
