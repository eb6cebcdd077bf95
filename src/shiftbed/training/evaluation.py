"""A checkpoint on all settings, into the store; test images are decoded once per process.

A setting that a model cannot have (an attack on one without gradients) is recorded as ``run`` does:
its cell failed, with the reason, and it is not tried again.
"""

import platform
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.engine.execute import check_applicable
from shiftbed.engine.jobs import WARNING, ranges
from shiftbed.engine.opening import images_key, open_images
from shiftbed.engine.perturbed import perturbation_of
from shiftbed.engine.spec import SettingSpec
from shiftbed.evaluation.data import TestSet, Unreadable, batches, open_test_set
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.base import FunctionModel, versions
from shiftbed.evaluation.perturbations import NotApplicable, Perturbation
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.labels import LabelPolicy
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.training.prepare import held_out_part
from shiftbed.training.recipe import canonical
from shiftbed.training.sources import HELD_OUT

Floats = NDArray[np.float32]
Answer = Callable[[Any, "Opened", int], Floats]
Say = Callable[[str], None]


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


class Kept:
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


_decoded = Kept()


def open_setting(
    setting: SettingSpec, preprocessing: Preprocessing, memory_gib: float = 2.0
) -> Opened:
    """A setting with its images decoded; all perturbations and checkpoints share them."""
    test_set, stored, policy = open_images(setting, _open)

    def make() -> tuple[tuple[NDArray[np.uint8], tuple[Unreadable, ...]], int]:
        found, bad = _decode(test_set, preprocessing)
        return (found, bad), found.nbytes

    whole = canonical([images_key(setting), preprocessing.describe()])
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


def _open(path: str, *, name: str, **options: Any) -> TestSet:
    """As ``open_test_set``; the held-out part of a data set where that is wanted."""
    if HELD_OUT in options:
        return held_out_part(path, options, float(options.pop(HELD_OUT)))
    return open_test_set(path, name=name, **options)


def is_evaluated(store: PredictionStore, model: str, settings: Sequence[SettingSpec]) -> bool:
    """Whether a checkpoint has been evaluated on all settings that it can have."""
    return all(_is_complete(store, model, one) for one in settings)


def _is_complete(store: PredictionStore, model: str, setting: SettingSpec) -> bool:
    if store.complete(model, setting.id):  # first: cheap where there is nothing
        return (store.cell(model, setting.id) or {}).get("status") == "complete"
    if setting.kind != "adversarial":
        return False
    record = store.cell(model, setting.id) or {}
    return record.get("status") == "failed" and bool(record.get("not_applicable"))


def evaluate(
    model: Model,
    settings: Sequence[SettingSpec],
    store: PredictionStore,
    *,
    info: Mapping[str, Any],
    details: Mapping[str, Any],
    batch_size: int = 256,
    top: int = 5,
    memory_gib: float = 2.0,
    answer: Answer | None = None,
    say: Say = lambda note: None,
) -> dict[str, float | None]:
    """Predict every setting that is not in the store yet, and write it there as ``model.id``.

    ``answer`` computes the logits of a setting without perturbation, by default from its pixels.
    ``say`` hears why settings were left out and what attacks warn of. Returns the accuracies of
    what was predicted, None where no image has a label.
    """
    found: dict[str, float | None] = {}
    refused: list[str] = []
    common = {"info": dict(info), **details}
    for setting in settings:
        if is_evaluated(store, model.id, [setting]):
            continue
        opened = open_setting(setting, model.preprocessing, memory_gib)
        store.add_test_set(opened.stored)
        try:
            logits, record = _predicted(model, opened, batch_size, answer)
        except NotApplicable as error:
            refused.append(str(error))
            failure = {"status": "failed", "error": str(error), "not_applicable": True}
            store.write_cell(model.id, setting.id, common | failure)
            continue
        for start, stop in ranges(len(opened.stored)):
            some = slice(start, stop)
            labels, readable = opened.stored.labels[some], opened.readable[some]
            frame = part_from_logits(logits[some], labels, top=top, readable=readable)
            store.write_part(model.id, setting.id, start, frame)
        for warning in record.get("warnings", []):
            say(f"{setting.id}: {WARNING}{warning}")
        record["options"] = {"batch_size": batch_size, "top": top, "keep_logits": False}
        store.write_cell(model.id, setting.id, _joined(record, common))
        found[setting.id] = _accuracy(opened, logits)
    if refused:
        more = f" (and {len(refused) - 1} more settings)" if len(refused) > 1 else ""
        say(refused[0] + more)
    return found


def _joined(record: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """A cell's record with what all cells of the checkpoint have in common."""
    warnings = sorted({*record.get("warnings", []), *common.get("warnings", [])})
    return record | common | ({"warnings": warnings} if warnings else {})


def _predicted(
    model: Model, opened: Opened, batch_size: int, answer: Answer | None
) -> tuple[Floats, dict[str, Any]]:
    """(N, classes) logits under the setting's label policy, and the record of how they came."""
    perturbation = perturbation_of(opened.setting)
    warnings: list[str] = []
    if perturbation is not None:
        check_applicable(perturbation, model, opened.policy, opened.stored)
    if perturbation is None and answer is not None:
        logits = answer(model, opened, batch_size)
    else:
        logits = _logits(model, opened, perturbation, batch_size, warnings.append)
    if opened.policy is not None:
        logits = opened.policy.apply(logits)
    record = {
        "status": "complete",
        "preprocessing": model.preprocessing.describe(),
        "perturbation": None if perturbation is None else perturbation.describe(),
        "label_policy": opened.stored.label_policy,
        "fingerprint": opened.stored.fingerprint,
        "n": len(opened.stored),
        **_engine(model),
    }
    if opened.unreadable:
        record["unreadable"] = sorted(f"{b.example} ({b.reason})" for b in opened.unreadable)
    if warnings:
        record["warnings"] = sorted(set(warnings))
    return logits, record


def _engine(model: Model) -> dict[str, Any]:
    """What computed the answers."""
    if isinstance(model, FunctionModel):
        name, libraries = model.engine, dict(model.facts.get("libraries", {}))
    else:
        name, libraries = "torch", versions("torch")
    known = {"python": platform.python_version(), **libraries, **versions("numpy")}
    return {"backend": name, "versions": known}


def _accuracy(opened: Opened, logits: Floats) -> float | None:
    known = (opened.stored.labels >= 0) & opened.readable
    right = logits.argmax(axis=1)[known] == opened.stored.labels[known]
    return float(right.mean()) if known.any() else None


def _logits(
    model: Model,
    opened: Opened,
    perturbation: Perturbation | None,
    batch_size: int,
    say: Say,
) -> Floats:
    """(N, classes) logits, through the setting's perturbation if it has one."""
    perturb = None if perturbation is None else perturbation.on(model, opened.policy, say)
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
