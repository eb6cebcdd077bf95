"""Class twins: what models would answer under another label policy, from what is stored.

The twin of ``val`` for ImageNet-A is ``val``'s images of 200 classes with the logits sliced to
these (taori2020; shi2023 calls for the intersection of classes on the ID side too). No model runs
again; ``relabel`` says how far the stored logits or best classes go. Images that they do not
decide are counted.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.labels import LabelPolicy, subset
from shiftbed.labels.steps import Subset, check_width
from shiftbed.records import older_setting
from shiftbed.store.parts import part_from_logits, part_from_top
from shiftbed.store.relabel import (
    UNDECIDED,
    UNREADABLE,
    computed_from,
    decide,
    from_logits,
    kept_parts,
)
from shiftbed.store.store import PredictionStore
from shiftbed.store.test_sets import StoredTestSet

_SAME = ("info", "spec", "preprocessing", "model_details", "identity", "seed", "backend")
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Twin:
    """One model's twin cell."""

    model: str
    setting: str
    label_policy: str
    n: int
    """Readable examples."""
    right: int = 0
    undecided: int = 0
    unreadable: int = 0
    computed_from: str = ""
    written: bool = False
    note: str = ""


def make_twin(
    store: PredictionStore,
    setting: str,
    policy: LabelPolicy,
    *,
    name: str | None = None,
    models: Iterable[str] | None = None,
) -> list[Twin]:
    """Write the twin of a setting into the store, for all its models or some of them.

    Images whose label has no target are left out. A cell with undecided images is written too,
    but is not complete, so that no accuracy is computed from the rest alone. The test set is
    written first and each cell's record last; the same call again leaves the same files.
    """
    source = store.test_set(setting)
    test_set, rows = twin_test_set(source, policy, name)
    wanted = store.complete_models(setting, models)
    with store.files.lock(alone=False):
        _add_test_set(store, test_set)
        return [_make_cell(store, model, source, test_set, rows, policy) for model in wanted]


def twin_test_set(
    source: StoredTestSet, policy: LabelPolicy, name: str | None = None
) -> tuple[StoredTestSet, Integers]:
    """The images that have a label under the policy, and their rows in the source."""
    if policy.steps and source.classes is not None:
        check_width(source.classes, policy.steps[0])
    labels, sets = policy.relabel(source.labels), None
    rows = np.flatnonzero(labels >= 0)
    if source.label_sets is not None:
        every = policy.relabel_sets(source.label_sets)
        rows = np.flatnonzero([bool(one) for one in every])
        sets = tuple(every[row] for row in rows)
    if not len(rows):
        raise InputError(f"no image of {source.setting!r} has a label under: {policy.describe()}")
    record = (source.record or older_setting(source.setting)).under(policy, name=name or "")
    named = record.id
    if named == source.setting:
        raise InputError(f"a twin needs another name than {source.setting!r}")
    whole = source.label_policy.startswith("all ") or not source.label_policy
    described = policy.describe() if whole else f"{source.label_policy}; {policy.describe()}"
    identity = f"{source.fingerprint}\n{replace(policy, classes=None).to_json()}"
    groups = source.groups
    return (
        StoredTestSet(
            setting=named,
            record=record,
            examples=tuple(source.examples[row] for row in rows),
            labels=labels[rows] if sets is None else np.full(len(rows), -1),
            fingerprint=f"twin:{hashlib.sha256(identity.encode()).hexdigest()}",
            label_policy=described,
            classes=policy.width,
            label_sets=sets,
            groups=None if groups is None else tuple(groups[row] for row in rows),
            details={"twin_of": source.setting, "policy": policy.to_json()},
        ),
        rows,
    )


def common_classes(test_sets: Sequence[StoredTestSet]) -> tuple[LabelPolicy, ...]:
    """For each test set, the policy that keeps the classes all of them have labels of.

    shi2023, Section 5.1: classes that appear in all test sets, on the ID side too. Test sets that
    are judged on some of the model's classes are compared in the model's own; all come out in one
    order. Where classes were merged there is no common label space.
    """
    spaces = [_model_classes(one) for one in test_sets]
    widths = {len(space) for one, space in zip(test_sets, spaces, strict=True) if not _sliced(one)}
    if len(widths) > 1:
        raise InputError(f"test sets of models with {_listed(widths)} classes share none")
    shared = set.intersection(
        *(
            {int(space[label]) for label in _labels_of(one)}
            for one, space in zip(test_sets, spaces, strict=True)
        )
    )
    if not shared:
        names = ", ".join(one.setting for one in test_sets)
        raise InputError(f"{names}: no class has images in all of them")
    return tuple(
        subset([space.index(one) for one in sorted(shared)], of=len(space)) for space in spaces
    )


def _sliced(test_set: StoredTestSet) -> bool:
    policy = None if test_set.record is None else test_set.record.policy
    return policy is not None and bool(policy.steps)


def _model_classes(test_set: StoredTestSet) -> list[int]:
    """Which of the model's classes each class of a test set is."""
    policy = None if test_set.record is None else test_set.record.policy
    steps = () if policy is None else policy.steps
    whole = not test_set.label_policy or test_set.label_policy.startswith("all ")
    if any(not isinstance(step, Subset) for step in steps) or not (steps or whole):
        raise InputError(
            f"{test_set.setting!r} is judged by {test_set.label_policy}: which class of the model "
            "each of them is, is not known; give all settings one --class-map or --subset"
        )
    if steps:
        return [index for step in steps if isinstance(step, Subset) for index in step.indices]
    known = test_set.classes or max(_labels_of(test_set), default=-1) + 1
    return list(range(known))


def _labels_of(test_set: StoredTestSet) -> set[int]:
    sets = test_set.label_sets
    own = test_set.labels.tolist() if sets is None else [one for some in sets for one in some]
    return {int(one) for one in own if one >= 0}


def _listed(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))


def _add_test_set(store: PredictionStore, test_set: StoredTestSet) -> None:
    """Add it, or find the same examples and labels there already."""
    if test_set.setting in store.settings():
        there = store.test_set(test_set.setting)
        same = there.examples == test_set.examples and there.label_sets == test_set.label_sets
        if same and np.array_equal(there.labels, test_set.labels):
            return
    store.add_test_set(test_set)


def _make_cell(
    store: PredictionStore,
    model: str,
    source: StoredTestSet,
    test_set: StoredTestSet,
    rows: Integers,
    policy: LabelPolicy,
) -> Twin:
    about = Twin(
        model=model, setting=test_set.setting, label_policy=test_set.label_policy, n=len(rows)
    )
    old = store.cell(model, test_set.setting)
    if old is not None and "twin_of" not in old:
        return replace(about, note="was evaluated itself; left as it is")
    try:
        frame, predicted, kind = _twin_frame(store, model, source, test_set, rows, policy)
    except InputError as error:
        return replace(about, note=f"not computable: {error}")
    undecided = int((predicted == UNDECIDED).sum())
    unreadable = int((predicted == UNREADABLE).sum())
    why = (
        f"{undecided:,} of {len(rows):,} examples are not decided by the {kind} kept; keep logits, "
        "or evaluate this setting itself"
    )
    done = replace(
        about,
        n=len(rows) - unreadable,
        right=int(test_set.judge(predicted).right.sum()),
        undecided=undecided,
        unreadable=unreadable,
        computed_from=kind,
        written=True,
        note=why if undecided else "",
    )
    if any(part != (0, len(rows)) for part in store.parts(model, test_set.setting)):
        store.remove(model, test_set.setting)
    store.write_part(model, test_set.setting, 0, frame)
    record = store.cell(model, source.setting) or {}
    store.write_cell(model, test_set.setting, _provenance(record, test_set, done))
    return done


def _twin_frame(
    store: PredictionStore,
    model: str,
    source: StoredTestSet,
    test_set: StoredTestSet,
    rows: Integers,
    policy: LabelPolicy,
) -> tuple[pl.DataFrame, Integers, str]:
    """The twin's predictions as a part, its answers, and what they come from."""
    frames: list[pl.DataFrame] = []
    answers: list[Integers] = []
    kind, at, first = "", 0, 0
    for frame in kept_parts(store, model, source.setting, policy):
        inside = rows[(rows >= at) & (rows < at + len(frame))] - at
        at, kind = at + len(frame), computed_from(frame)
        some = frame if len(inside) == len(frame) else frame[inside]
        labels = test_set.labels[first : first + len(some)]
        first += len(some)
        if kind != "logits":
            answers.append(decide(some, policy))
            frames.append(part_from_top(np.maximum(answers[-1], 0), answers[-1] >= 0))
            continue
        predicted, scores = from_logits(some, policy)
        answers.append(predicted)
        if len(some):
            frames.append(part_from_logits(scores, labels, readable=predicted >= 0))
    if at != len(source):
        raise InputError(f"{model!r} on {source.setting!r} has {at} of {len(source)} predictions")
    return pl.concat(frames, how="vertical_relaxed"), np.concatenate(answers), kind


def _provenance(source: dict[str, Any], test_set: StoredTestSet, twin: Twin) -> dict[str, Any]:
    details = dict(test_set.details or {})
    record: dict[str, Any] = {key: source[key] for key in _SAME if key in source}
    record |= {
        "status": "undecided" if twin.undecided else "complete",
        "twin_of": details["twin_of"],
        "policy": details["policy"],
        "computed_from": twin.computed_from,
        "undecided": twin.undecided,
        "label_policy": test_set.label_policy,
        "fingerprint": test_set.fingerprint,
        "n": len(test_set),
        "versions": dict(source.get("versions") or {}) | {"shiftbed": version("shiftbed")},
    }
    return record | ({"error": twin.note} if twin.undecided else {})
