"""Heads that share a backbone: its features of a setting are computed once, all heads answer.

Features are those of the batches that each model would see by itself, and each head multiplies
them by itself: its predictions are the same to the last bit as without sharing. That the network's
own output is what its head makes of the features is looked at in every batch; where it is not,
every model goes its own way, as it does under attacks.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shiftbed.atomic import one_at_a_time, write_atomically
from shiftbed.engine.open_setting import Kept, OpenSetting
from shiftbed.evaluation.backends import exported_features
from shiftbed.evaluation.data import Unreadable
from shiftbed.evaluation.models import Model, TorchModel
from shiftbed.evaluation.models.heads import Split, light
from shiftbed.evaluation.predict import Answer, Perturb, Pixels, seen_by_model
from shiftbed.places import only_here

Rows = NDArray[np.int64]
LEAST_GIB = 0.25
"""Features that stay in memory whatever memory_gib says: the next head needs them."""
_features = Kept()
_backbones: dict[str, Split] = {}
_refused: set[str] = set()
"""Backbones whose networks do more than multiply their features."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """What enters the heads, for the examples of one part, batch by batch."""

    values: NDArray[np.float32]
    """(readable examples, width)"""
    rows: Rows
    """Their numbers."""
    sizes: Rows
    """Of the batches."""
    unreadable: tuple[Unreadable, ...] = ()


def forget() -> None:
    """Keep no features and no backbone: what comes next is computed."""
    _features.found.clear()
    _backbones.clear()
    _refused.clear()


def parts_of(model: Model) -> Split | None:
    """A model as backbone and head; None where it has none, or does more than that."""
    parts = model.parts if isinstance(model, TorchModel) else None
    return None if parts is None or parts.backbone in _refused else parts


def on_shared(model: Model) -> Model:
    """The model on the backbone that an earlier one has in this process, if it has the same."""
    parts = parts_of(model)
    if parts is None:
        return model
    first = _backbones.setdefault(parts.backbone, parts)
    for key in [key for key in _backbones if key != parts.backbone][:-1]:  # two, as of models
        del _backbones[key]
    found = light(parts.model, parts, first)
    if found is None:
        _refused.add(parts.backbone)
        return model
    return found


def backbone_of(model: Model) -> str | None:
    """The digest that models with the same backbone have in common."""
    parts = parts_of(on_shared(model))
    return None if parts is None else parts.backbone


def part_features(
    parts: Split,
    setting: OpenSetting,
    start: int,
    stop: int,
    options: Mapping[str, Any],
    *,
    perturb: Perturb | None = None,
    done: Mapping[str, Any] | None = None,
    folder: str | None = None,
    backend: str = "torch",
) -> Features | None:
    """Features of examples start … stop−1, computed once; None if logits are not made of them.

    ``perturb`` is what ``done`` describes. ``folder`` keeps features on disk, for other processes.
    """
    if parts.backbone in _refused:
        return None
    seen = parts.model.preprocessing.describe()
    size = int(options["batch_size"])
    own = [parts.backbone, backend, seen, setting.stored.fingerprint, done, start, stop, size]
    key = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:24]
    limit = max(LEAST_GIB, float(options["memory_gib"])) * 2**30
    if key in _features.found:
        kept: Features = _features.get(key, lambda: (None, 0), limit)
        return kept
    path = None if folder is None else only_here(folder, "features") / f"{key}.npz"
    with nullcontext() if path is None else one_at_a_time(path):
        found = _read(path) if path is not None and path.is_file() else None
        if found is None:
            found = _computed(parts, setting, start, stop, options, perturb, backend)
            if found is None:
                _refused.add(parts.backbone)
                return None
            if path is not None and not found.unreadable:
                with write_atomically(path) as file:
                    np.savez(file, values=found.values, rows=found.rows, sizes=found.sizes)
    if not found.unreadable:  # what cannot be read now is tried again
        _features.put(key, found, found.values.nbytes, limit)
    return found


def _read(path: Path) -> Features:
    with np.load(path, allow_pickle=False) as arrays:
        return Features(values=arrays["values"], rows=arrays["rows"], sizes=arrays["sizes"])


def _computed(
    parts: Split,
    setting: OpenSetting,
    start: int,
    stop: int,
    options: Mapping[str, Any],
    perturb: Perturb | None,
    backend: str,
) -> Features | None:
    run: Callable[[Pixels], NDArray[np.float32] | None] = parts.checked
    if backend == "onnxruntime":
        graph = exported_features(parts)
        if graph is None:
            return None
        run = graph
    loaded = setting.batches(
        parts.model.preprocessing,
        start,
        stop,
        batch_size=options["batch_size"],
        threads=options["threads"],
        memory_gib=options["memory_gib"],
    )
    values: list[NDArray[np.float32]] = []
    rows, bad = [np.empty(0, np.int64)], list[Unreadable]()
    for batch in loaded:
        bad += batch.unreadable
        if not len(batch.rows):
            continue
        x = seen_by_model(batch, setting.stored.examples, setting.stored.labels, perturb)
        found = run(x)
        if found is None:
            return None
        values.append(found)
        rows.append(np.asarray(batch.rows))
    width = values[0].shape[1] if values else 0
    return Features(
        values=np.concatenate([np.empty((0, width), np.float32), *values]),
        rows=np.concatenate(rows),
        sizes=np.array([len(one) for one in values], dtype=np.int64),
        unreadable=tuple(bad),
    )


def answered(parts: Split, features: Features, backend: str) -> Iterator[Answer]:
    """The head's logits, batch by batch, as the backend gives them to a head alone."""
    threads = 1 if backend == "onnxruntime" else None
    if features.unreadable:
        yield Answer(np.empty(0, np.int64), None, features.unreadable)
    ends = np.cumsum(features.sizes)
    for stop, size in zip(ends.tolist(), features.sizes.tolist(), strict=True):
        some = slice(stop - size, stop)
        own = torch.from_numpy(features.values[some]).to(parts.model.device)
        yield Answer(features.rows[some], parts.answer(own, threads), ())
