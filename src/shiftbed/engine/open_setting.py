"""Settings opened: a test set under its label policy, as the store keeps it.

Whoever evaluates, a setting has the same examples, labels and fingerprint. Opened test sets and
decoded images are kept for the next model, up to a number of bytes.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.engine.plan import SettingPlan, TestSetSpec, ranges
from shiftbed.evaluation.attacks import balanced_subset
from shiftbed.evaluation.corrupt_tree import images_of
from shiftbed.evaluation.data import Batch, TestSet, Unreadable, batches
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.labels import LabelPolicy
from shiftbed.records import Setting
from shiftbed.store import StoredTestSet


class Kept:
    """The most recently used values, up to a number of bytes (but always the last one)."""

    def __init__(self) -> None:
        self.found: OrderedDict[Any, tuple[Any, float]] = OrderedDict()

    def get(self, key: Any, make: Callable[[], tuple[Any, float]], limit: float) -> Any:
        if key not in self.found:
            self.put(key, *make(), limit)
        self.found.move_to_end(key)
        return self.found[key][0]

    def put(self, key: Any, value: Any, size: float, limit: float) -> None:
        self.found[key] = value, size
        while len(self.found) > 1 and sum(one for _, one in self.found.values()) > limit:
            self.found.popitem(last=False)


_opened = Kept()
_decoded = Kept()
MOST_OPEN = 64
"""Test sets that stay open; their images are read when they are needed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenSetting:
    """A setting's examples under its label policy."""

    plan: SettingPlan
    test_set: TestSet
    stored: StoredTestSet
    policy: LabelPolicy | None

    @property
    def id(self) -> str:
        return self.stored.setting

    def batches(
        self,
        preprocessing: Preprocessing,
        start: int,
        stop: int,
        *,
        batch_size: int,
        threads: int = 2,
        memory_gib: float = 0.0,
    ) -> Iterator[Batch]:
        """Examples start … stop−1 as a model sees them; decoded once where memory allows."""
        limit = memory_gib * 2**30
        key = (self.plan.key, repr(preprocessing.describe()), start, stop)
        if key in _decoded.found:
            pixels = _decoded.get(key, lambda: (None, 0), limit)
            for at in range(start, stop, batch_size):
                rows = np.arange(at, min(at + batch_size, stop))
                yield Batch(rows, pixels[rows - start], [])
            return
        height, width = preprocessing.size
        keep = (stop - start) * height * width * preprocessing.channels <= limit / 2
        seen: list[NDArray[np.uint8]] = []
        rows_of = range(start, stop)
        for batch in batches(
            self.test_set, rows_of, preprocessing.pixels, batch_size, threads, preprocessing.draft
        ):
            keep = keep and not batch.unreadable  # what cannot be read now is tried again
            if keep:
                seen.append(batch.pixels.copy())
            yield batch
        if keep:
            whole = np.concatenate(seen)
            _decoded.put(key, whole, whole.nbytes, limit)

    def decode(self, preprocessing: Preprocessing, memory_gib: float = 2.0) -> "DecodedSetting":
        """All its images at once, as one network sees them."""
        height, width = preprocessing.size
        shape = (len(self.stored), height, width, preprocessing.channels)
        found = np.zeros(shape, dtype=np.uint8)
        readable = np.zeros(len(self.stored), dtype=bool)
        bad: list[Unreadable] = []
        for start, stop in ranges(len(self.stored)):
            for batch in self.batches(
                preprocessing, start, stop, batch_size=256, memory_gib=memory_gib
            ):
                found[batch.rows] = batch.pixels
                readable[batch.rows] = True
                bad += batch.unreadable
        return DecodedSetting(setting=self, pixels=found, readable=readable, unreadable=tuple(bad))


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodedSetting:
    """A setting with all its images in memory."""

    setting: OpenSetting
    pixels: NDArray[np.uint8]
    """(N, H, W, C), zeros where an image cannot be read."""
    readable: NDArray[np.bool_]
    """(N,)"""
    unreadable: tuple[Unreadable, ...]


def open_setting(plan: SettingPlan) -> OpenSetting:
    """A setting opened; all perturbations of the same images share them."""
    test_set, stored, policy = _opened.get(plan.key, lambda: (_open(plan), 1), MOST_OPEN)
    if stored.unread:
        del _opened.found[plan.key]  # what cannot be read now is tried again
    own = replace(stored, setting=plan.id, record=plan.setting)
    return OpenSetting(plan=plan, test_set=test_set, stored=own, policy=policy)


def _open(plan: SettingPlan) -> tuple[TestSet, StoredTestSet, LabelPolicy | None]:
    one, images = plan.setting, plan.images
    test_set = images.open() if isinstance(images, TestSetSpec) else images
    labels = np.asarray(test_set.labels, dtype=np.int64)
    if one.policy is not None and one.relabel:
        labels = one.policy.relabel(labels)
        inside = np.flatnonzero(labels >= 0)
        test_set, labels = test_set.subset(inside), labels[inside]
    if one.share is not None:
        rows = balanced_subset(labels, one.share, one.seed, test_set.examples)
        if one.share < 1 and len(rows) == len(labels):
            said = (
                f"a share of {one.share:g} keeps all {len(rows)} images: at least one of each class"
            )
            test_set = replace(test_set, notes=(*test_set.notes, said))
        test_set, labels = test_set.subset(rows), labels[rows]
    stored = stored_test_set(one, test_set, labels)
    if isinstance(images, TestSetSpec) and images.clean is not None:
        source = images_of(images.path, len(test_set))
        stored = replace(stored, details={**(stored.details or {}), "images": source})
    return test_set, stored, one.policy


def stored_test_set(
    setting: Setting, test_set: TestSet, labels: NDArray[np.int64]
) -> StoredTestSet:
    """A test set as the store keeps it, its labels in the target label space."""
    policy = setting.policy
    return StoredTestSet(
        setting=setting.id,
        record=setting,
        examples=test_set.examples,
        labels=labels,
        fingerprint=test_set.fingerprint,
        unread=test_set.unread,
        fingerprint_without=test_set.fingerprint_without,
        label_policy=policy.describe() if policy else _full(test_set),
        classes=len(test_set.classes) if test_set.classes else None,
        label_sets=test_set.label_sets,
        groups=None if test_set.groups is None else tuple(map(str, test_set.groups)),
        details={
            "citation": test_set.citation,
            "licence": test_set.licence,
            "notes": list(test_set.notes),
        },
    )


def _full(test_set: TestSet) -> str:
    if test_set.label_sets is not None:
        return "multi-label: right if the prediction is one of the image's labels"
    return (
        f"all {len(test_set.classes)} classes" if test_set.classes else "all of the model's classes"
    )
