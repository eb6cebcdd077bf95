"""A checkpoint on all settings, into the store; test images are decoded once per process."""

import platform
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluate.data import TestSet, Unreadable, batches, open_test_set
from shiftbed.evaluate.models import TorchModel
from shiftbed.evaluate.models.base import versions
from shiftbed.evaluate.perturbations import balanced_subset
from shiftbed.evaluate.predict import pixels_to_float
from shiftbed.evaluate.preprocessing import Preprocessing
from shiftbed.labels import LabelPolicy
from shiftbed.run.execute import stored_test_set
from shiftbed.run.jobs import ranges
from shiftbed.run.perturbed import perturbation_of
from shiftbed.run.spec import SettingSpec
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.train.expand import canonical
from shiftbed.train.prepare import held_out_part
from shiftbed.train.sources import HELD_OUT

__all__ = ["Opened", "evaluate", "is_evaluated", "open_setting"]

Floats = NDArray[np.float32]
Answer = Callable[[TorchModel, "Opened", int], Floats]


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A setting's examples under its label policy, and its pixels as one network sees them."""

    setting: SettingSpec
    test_set: TestSet
    stored: StoredTestSet
    policy: LabelPolicy | None
    preprocessing: Preprocessing
    pixels: NDArray[np.uint8]
    """(N, H, W, C), zeros where an image cannot be read."""
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def readable(self) -> NDArray[np.bool_]:
        """(N,)"""
        found = np.ones(len(self.pixels), dtype=bool)
        found[[bad.row for bad in self.unreadable]] = False
        return found


class _Kept:
    """The most recently used values, up to a number of bytes (but always the last one)."""

    def __init__(self) -> None:
        self.found: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def get(self, key: str, make: Callable[[], tuple[Any, int]], limit: float) -> Any:
        if key not in self.found:
            self.found[key] = make()
        self.found.move_to_end(key)
        while len(self.found) > 1 and sum(size for _, size in self.found.values()) > limit:
            self.found.popitem(last=False)
        return self.found[key][0]


_decoded = _Kept()
_opened = _Kept()


def open_setting(
    setting: SettingSpec, preprocessing: Preprocessing, memory_gib: float = 2.0
) -> Opened:
    """A setting with its images decoded; all perturbations and checkpoints share them."""
    where = setting.test_set
    seed = setting.seed if setting.share is not None else 0
    parts = [where.path, dict(where.options), setting.policy, setting.relabel, setting.share, seed]
    key = canonical(parts)
    test_set, labels, policy = _opened.get(key, lambda: (_open(setting), 1), 16)
    stored = stored_test_set(setting.id, test_set, labels, policy)

    def make() -> tuple[tuple[NDArray[np.uint8], tuple[Unreadable, ...]], int]:
        found, bad = _decode(test_set, preprocessing)
        return (found, bad), found.nbytes

    whole = canonical([key, preprocessing.describe()])
    pixels, unreadable = _decoded.get(whole, make, memory_gib * 2**30)
    return Opened(
        setting=setting,
        test_set=test_set,
        stored=stored,
        policy=policy,
        preprocessing=preprocessing,
        pixels=pixels,
        unreadable=unreadable,
    )


def _decode(
    test_set: TestSet, preprocessing: Preprocessing
) -> tuple[NDArray[np.uint8], tuple[Unreadable, ...]]:
    height, width = preprocessing.size
    found = np.zeros((len(test_set), height, width, preprocessing.channels), dtype=np.uint8)
    bad: list[Unreadable] = []
    for batch in batches(test_set, None, preprocessing.pixels, 256, 2):
        found[batch.rows] = batch.pixels
        bad += batch.unreadable
    return found, tuple(bad)


def _open(setting: SettingSpec) -> tuple[TestSet, NDArray[np.int64], LabelPolicy | None]:
    where = setting.test_set
    options = {k: v for k, v in where.options.items() if k != HELD_OUT}
    if HELD_OUT in where.options:
        test_set = held_out_part(where.path, options, float(where.options[HELD_OUT]))
    else:
        test_set = open_test_set(where.path, name=where.name, **options)
    policy = LabelPolicy.from_json(setting.policy) if setting.policy else None
    labels = np.asarray(test_set.labels, dtype=np.int64)
    if policy is not None and setting.relabel:
        labels = policy.relabel(labels)
        inside = np.flatnonzero(labels >= 0)
        test_set, labels = test_set.subset(inside), labels[inside]
    if setting.share is not None:
        rows = balanced_subset(labels, setting.share, setting.seed, test_set.examples)
        test_set, labels = test_set.subset(rows), labels[rows]
    return test_set, labels, policy


def is_evaluated(store: PredictionStore, model: str, settings: Sequence[SettingSpec]) -> bool:
    """Whether a checkpoint has been evaluated on all settings."""
    return all(
        store.complete(model, one.id)  # first: cheap where there is nothing
        and (store.cell(model, one.id) or {}).get("status") == "complete"
        for one in settings
    )


def evaluate(
    model: TorchModel,
    settings: Sequence[SettingSpec],
    store: PredictionStore,
    *,
    info: Mapping[str, Any],
    details: Mapping[str, Any],
    batch_size: int = 256,
    top: int = 5,
    memory_gib: float = 2.0,
    answer: Answer | None = None,
) -> dict[str, float | None]:
    """Predict every setting that is not in the store yet, and write it there as ``model.id``.

    ``answer`` computes the logits of a setting without perturbation, by default from its pixels.
    Returns the accuracies of what was predicted, None where no image has a label.
    """
    found: dict[str, float | None] = {}
    for setting in settings:
        if is_evaluated(store, model.id, [setting]):
            continue
        opened = open_setting(setting, model.preprocessing, memory_gib)
        perturbation = perturbation_of(setting)
        if perturbation is None and answer is not None:
            logits = answer(model, opened, batch_size)
        else:
            logits = _logits(model, opened, batch_size)
        if opened.policy is not None:
            logits = opened.policy.apply(logits)
        _write(store, model, opened, logits, top)
        record = {
            "status": "complete",
            "backend": "torch",
            "options": {"batch_size": batch_size, "top": top, "keep_logits": False},
            "preprocessing": model.preprocessing.describe(),
            "perturbation": None if perturbation is None else perturbation.describe(),
            "info": dict(info),
            "label_policy": opened.stored.label_policy,
            "fingerprint": opened.stored.fingerprint,
            "n": len(opened.stored),
            "versions": {"python": platform.python_version(), **versions("torch", "numpy")},
            **details,
        }
        if opened.unreadable:
            record["unreadable"] = sorted(f"{b.example} ({b.reason})" for b in opened.unreadable)
        store.write_cell(model.id, setting.id, record)
        known = (opened.stored.labels >= 0) & opened.readable
        right = logits.argmax(axis=1)[known] == opened.stored.labels[known]
        found[setting.id] = float(right.mean()) if known.any() else None
    return found


def _write(
    store: PredictionStore, model: TorchModel, opened: Opened, logits: Floats, top: int
) -> None:
    store.add_test_set(opened.stored)
    labels, readable = opened.stored.labels, opened.readable
    for start, stop in ranges(len(opened.stored)):
        some = slice(start, stop)
        frame = part_from_logits(logits[some], labels[some], top=top, readable=readable[some])
        store.write_part(model.id, opened.setting.id, start, frame)


def _logits(model: TorchModel, opened: Opened, batch_size: int) -> Floats:
    """(N, classes) logits, through the setting's perturbation if it has one."""
    perturbation = perturbation_of(opened.setting)
    perturb = None if perturbation is None else perturbation.on(model, opened.policy)
    parts = []
    for start in range(0, len(opened.pixels), batch_size):
        some = slice(start, start + batch_size)
        pixels = opened.pixels[some]
        if perturb is None:
            parts.append(model.logits(pixels.transpose(0, 3, 1, 2)))
        else:
            labels, ids = opened.stored.labels[some], opened.stored.examples[some]
            parts.append(model.logits(perturb(pixels_to_float(pixels), labels, ids)))
    return np.concatenate(parts)
