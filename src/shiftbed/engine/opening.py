"""Settings opened: a test set under its label policy, as the store keeps it.

``run`` and ``train`` share this, so that a setting has the same examples, labels and fingerprint
whoever evaluates on it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbed.engine.spec import SettingSpec
from shiftbed.evaluation.attacks import balanced_subset
from shiftbed.evaluation.corrupted_trees import images_of
from shiftbed.evaluation.data import TestSet, open_test_set
from shiftbed.labels import LabelPolicy
from shiftbed.store import StoredTestSet

Open = Callable[..., TestSet]
_IMAGES = ("test_set", "policy", "relabel", "share")


def images_key(setting: SettingSpec) -> str:
    """The same text for settings of the same images: perturbations do not matter."""
    whole = asdict(setting)
    part = {key: whole[key] for key in _IMAGES}
    part["seed"] = setting.seed if setting.share is not None else 0
    return json.dumps(part, sort_keys=True)


def open_images(
    setting: SettingSpec, open: Open = open_test_set
) -> tuple[TestSet, StoredTestSet, LabelPolicy | None]:
    """A setting opened; all perturbations of the same images share them.

    ``open(path, name=…, **options)`` reads the test set: another function where options say more
    than ``open_test_set`` knows.
    """
    test_set, stored, policy = _opened(images_key(setting), open)
    return test_set, replace(stored, setting=setting.id), policy


@lru_cache(maxsize=16)
def _opened(text: str, open: Open) -> tuple[TestSet, StoredTestSet, LabelPolicy | None]:
    setting = json.loads(text)
    where = setting["test_set"]
    name = where["name"] if where["clean"] is None else where["clean"]
    test_set = open(where["path"], name=name, **where["options"])
    policy = LabelPolicy.from_json(setting["policy"]) if setting["policy"] else None
    labels = np.asarray(test_set.labels, dtype=np.int64)
    if policy is not None and setting["relabel"]:
        labels = policy.relabel(labels)
        inside = np.flatnonzero(labels >= 0)
        test_set, labels = test_set.subset(inside), labels[inside]
    if setting["share"] is not None:
        rows = balanced_subset(labels, setting["share"], setting["seed"], test_set.examples)
        test_set, labels = test_set.subset(rows), labels[rows]
    stored = stored_test_set("", test_set, labels, policy)
    if where["clean"] is not None:
        source = images_of(where["path"], len(test_set))
        stored = replace(stored, details={**(stored.details or {}), "images": source})
    return test_set, stored, policy


def stored_test_set(
    setting: str, test_set: TestSet, labels: NDArray[np.int64], policy: LabelPolicy | None
) -> StoredTestSet:
    """A test set as the store keeps it, its labels in the target label space."""
    sets = test_set.label_sets
    described = policy.describe() if policy else _full(test_set)
    groups = None if test_set.groups is None else tuple(map(str, test_set.groups))
    return StoredTestSet(
        setting=setting,
        examples=test_set.examples,
        labels=labels,
        fingerprint=test_set.fingerprint,
        label_policy=described,
        classes=len(test_set.classes) if test_set.classes else None,
        label_sets=sets,
        groups=groups,
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
