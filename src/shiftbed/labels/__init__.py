"""Label policies: how a model's classes and a test set's labels meet, as values.

A policy turns logits over the model's classes into scores over the test set's classes and says
when a prediction is right. It is printed beside every number (``describe``), belongs to the
identity of a setting (``key``), and composes from left to right (``then``).

>>> policy = full(5).then(subset([4, 2, 1]))
>>> policy.describe()
'subset of 3 of 5 classes, logits sliced before argmax'
>>> policy.apply(np.array([[9.0, 1.0, 2.0, 8.0, 3.0]]))
array([[3., 2., 1.]])
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.labels.steps import (
    HOW,
    SEVERAL,
    ClassMap,
    Subset,
    check_width,
    step_from_json,
    whole_number,
)
from shiftbed.places import local
from shiftbed.reading.files import parse_json, read_file

__all__ = [
    "HOW",
    "Judged",
    "LabelPolicy",
    "class_map",
    "full",
    "judge",
    "multi_label",
    "read_class_map",
    "subset",
]
_LIMIT = 1 << 26
"""The largest file of a class map, in bytes."""


def full(classes: int) -> "LabelPolicy":
    """All of a model's classes, as they are."""
    return LabelPolicy(classes=_count(classes))


def subset(indices: Iterable[int], *, of: int | None = None) -> "LabelPolicy":
    """Only these classes, in this order: the logits are sliced *before* the argmax.

    Slicing after it would count as wrong every prediction outside the subset. ``of`` is the
    number of the model's classes, where it is known.

    >>> subset([6, 11, 13], of=1000).key
    'classes-6-11-13'
    """
    step = Subset(tuple(whole_number(index, "a class index") for index in indices))
    return full(of).then(LabelPolicy(steps=(step,))) if of is not None else LabelPolicy((step,))


def class_map(
    groups: Mapping[str, Sequence[int]] | Mapping[int, Sequence[int]],
    how: str = "max",
    *,
    targets: Sequence[str] | int | None = None,
    of: int | None = None,
    overlapping: bool = False,
) -> "LabelPolicy":
    """Many classes to one: each target has the combined score of the classes mapped to it.

    ``how``: the max, mean or sum of their softmax probabilities, or the max of their logits
    (superclasses). Max of softmax and max of logits differ by a constant per image only. Targets
    are in the order of the mapping if they are names, and the labels 0, 1, … if they are numbers.
    ``targets`` is the whole target label space, where some targets have no class: these are never
    predicted. With ``overlapping``, a class may belong to several targets (many-to-many); images
    labelled with such a class have a set of labels then, see ``relabel_sets``.

    >>> policy = class_map({"bird": [0, 1], "dog": [2]}, how="sum")
    >>> np.exp(policy.apply(np.log([[0.3, 0.3, 0.4]]))).round(3)
    array([[0.6, 0.4]])
    >>> policy.describe()
    '3 classes mapped to 2 by sum of softmax'
    """
    for target, sources in groups.items():
        if not len(sources):
            raise InputError(
                f"class map: no class is mapped to {target!r}; name it in targets only"
            )
    names = _target_names(groups, targets)
    by_name = {str(target): sources for target, sources in groups.items()}
    step = ClassMap(
        tuple(
            tuple(sorted(whole_number(one, "a class index") for one in by_name.get(name, ())))
            for name in names
        ),
        how,
        names,
        overlapping,
    )
    policy = LabelPolicy((step,))
    return full(of).then(policy) if of is not None else policy


def read_class_map(path: str | Path, how: str = "max") -> "LabelPolicy":
    """A class map from a JSON file: ``{target: [classes, …]}`` or ``{class: target}``.

    Targets that are numbers are the labels 0, 1, …
    """
    path = local(path)
    try:
        read = parse_json(read_file(path, _LIMIT), "it")
    except InputError as error:
        raise InputError(f"{path}: cannot be read as a class map: {error}") from None
    groups: dict[Any, list[int]] = {}
    if isinstance(read, dict) and read and all(isinstance(v, list) for v in read.values()):
        groups = read
    elif (
        isinstance(read, dict)
        and read
        and all(k.isdigit() and type(v) in (int, str) for k, v in read.items())
    ):
        for one, target in read.items():
            groups.setdefault(str(target), []).append(int(one))
    else:
        raise InputError(f"{path}: expected {{target: [classes, …]}} or {{class: target}}")
    if not all(str(key).isdigit() for key in groups):
        return class_map(groups, how)
    numbered = {int(key): classes for key, classes in groups.items()}
    return class_map(numbered, how, targets=max(numbered) + 1)


def multi_label() -> "LabelPolicy":
    """Labels are sets: right if the prediction is in the image's set (ReaL).

    Images with an empty set are left out, and counted as left out.
    """
    return LabelPolicy(multi=True)


class Judged(NamedTuple):
    """Which predictions are right, and which images count at all."""

    right: NDArray[np.bool_]
    counted: NDArray[np.bool_]

    @property
    def left_out(self) -> int:
        """How many images have no label in the policy's label space."""
        return int((~self.counted).sum())


def judge(
    predicted: ArrayLike, labels: Sequence[Collection[int]] | NDArray[np.integer[Any]]
) -> Judged:
    """Whether predictions (N,) are right, given labels in their own label space.

    ``labels``: one per image, −1 for none, or a set per image, empty for none: then a prediction
    is right if it is in the set (ReaL).

    >>> judge(np.array([3, 1, 2]), np.array([3, 0, -1]))
    Judged(right=array([ True, False, False]), counted=array([ True,  True, False]))
    >>> judge(np.array([3, 1, 2]), [(3, 4), (0,), ()])
    Judged(right=array([ True, False, False]), counted=array([ True,  True, False]))
    """
    guess = np.asarray(predicted)
    if guess.ndim != 1 or len(guess) != len(labels):
        raise InputError(f"{len(labels)} labels need as many predictions, got {guess.shape}")
    if isinstance(labels, np.ndarray):
        counted = labels >= 0
        return Judged((guess == labels) & counted, counted)
    sizes = np.array([len(one) for one in labels], dtype=np.int64)
    flat = np.array([label for one in labels for label in one], dtype=np.int64)
    rows = np.repeat(np.arange(len(guess)), sizes)
    hits = np.bincount(rows[flat == guess[rows]], minlength=len(guess))
    return Judged(hits > 0, sizes > 0)


@dataclass(frozen=True)
class LabelPolicy:
    """Steps from the model's classes to the test set's, and whether its labels are sets.

    Made by ``full``, ``subset``, ``class_map``, ``multi_label`` and ``then``.
    """

    steps: tuple[Subset | ClassMap, ...] = ()
    classes: int | None = None
    """Number of the model's classes, where it is known."""
    multi: bool = False
    """Whether an image's label is a set of classes."""

    def then(self, other: "LabelPolicy") -> "LabelPolicy":
        """This policy, then the other one on its result.

        >>> subset([5, 7, 9]).then(subset([2, 0])) == subset([9, 5])
        True
        """
        have = self.width
        if have is not None and other.classes not in (None, have):
            raise InputError(
                f"label policy: {have} classes cannot go into a policy for {other.classes}"
            )
        if have is not None and other.steps:
            check_width(have, other.steps[0])
        steps = self.steps + other.steps
        at = len(self.steps)
        if self.steps and other.steps:
            last, first = self.steps[-1], other.steps[0]
            if isinstance(last, Subset) and isinstance(first, Subset):
                fused = Subset(tuple(last.indices[one] for one in first.indices))
                steps = (*steps[: at - 1], fused, *steps[at + 1 :])
        classes = self.classes if self.steps or self.classes is not None else other.classes
        return LabelPolicy(steps, classes, self.multi or other.multi)

    @property
    def width(self) -> int | None:
        """Number of classes in the target label space, where it is known."""
        return self.steps[-1].width if self.steps else self.classes

    @property
    def key(self) -> str:
        """Short canonical id of letters, digits, hyphens and full stops.

        Neither the number of the model's classes nor the names of targets change it.

        >>> full(10).key, subset(range(200)).key, multi_label().key
        ('full', '200-classes-3aff9a6fb650', 'multi-label')
        """
        parts = [step.key for step in self.steps] + ["multi-label"] * self.multi
        return ".".join(parts) or "full"

    def describe(self) -> str:
        """One line, to be printed beside every number."""
        words, classes = [], self.classes
        for step in self.steps:
            words.append(step.describe(classes))
            classes = step.width
        if not words:
            words = ["all classes" if classes is None else f"all {classes} classes"]
        if self.multi:
            words.append("right if in the image's label set, images without labels left out")
        return "; ".join(words)

    def apply(self, logits: ArrayLike) -> NDArray[Any]:
        """Logits (N, K) → scores (N, K′) whose softmax and argmax are in the target label space."""
        scores = np.asarray(logits)
        if scores.ndim != 2 or scores.dtype.kind not in "fiu":
            raise InputError(
                f"logits must be numbers of shape (images, classes), are {scores.dtype} of shape "
                f"{scores.shape}"
            )
        if self.classes is not None and scores.shape[1] != self.classes:
            raise InputError(
                f"logits of {scores.shape[1]} classes, the label policy is for {self.classes}"
            )
        for step in self.steps:
            check_width(scores.shape[1], step)
            scores = step.apply(scores)
        return scores

    def relabel(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Labels among the model's classes as labels in the target space, −1 where they have none.

        So a whole test set gets its class-subset twin: keep the images whose label is not −1.

        >>> subset([4, 2]).relabel([2, 3, 4])
        array([ 1, -1,  0])
        """
        new = np.asarray(labels, dtype=np.int64)
        if self.classes is not None and new.size and new.max() >= self.classes:
            raise InputError(f"label {new.max()} is no class, there are {self.classes}")
        for step in self.steps:
            table = step.table()
            inside = (new >= 0) & (new < len(table))
            mapped = np.where(inside, table[np.where(inside, new, 0)], -1)
            if (mapped == SEVERAL).any():
                one = int(new[mapped == SEVERAL][0])
                raise InputError(
                    f"class {one} belongs to several targets of the class map: its images have "
                    "sets of labels (relabel_sets), not one"
                )
            new = mapped
        return new

    def relabel_sets(self, sets: Iterable[Collection[int]]) -> tuple[tuple[int, ...], ...]:
        """The same for sets of labels; labels outside the target space leave their set."""
        found = [set(map(int, one)) for one in sets]
        for step in self.steps:
            targets = step.targets()
            found = [
                {new for label in one if 0 <= label < len(targets) for new in targets[label]}
                for one in found
            ]
        return tuple(tuple(sorted(label for label in one if label >= 0)) for one in found)

    def to_json(self) -> str:
        """As JSON text, see ``from_json``."""
        steps = [
            {"subset": step.indices}
            if isinstance(step, Subset)
            else {"map": step.groups, "how": step.how, "names": step.names}
            | ({"overlapping": True} if step.overlapping else {})
            for step in self.steps
        ]
        return json.dumps({"classes": self.classes, "steps": steps, "multi_label": self.multi})

    @staticmethod
    def from_json(text: str) -> "LabelPolicy":
        """The policy written by ``to_json``."""
        try:
            read = json.loads(text)
            classes = read["classes"]
            policy = LabelPolicy(classes=None if classes is None else _count(classes))
            for step in read["steps"]:
                policy = policy.then(LabelPolicy((step_from_json(step),)))
            if not isinstance(read["multi_label"], bool):
                raise InputError("multi_label must be true or false")
            return replace(policy, multi=read["multi_label"])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"not a label policy: {reason}") from None


def _target_names(
    groups: Mapping[str, Sequence[int]] | Mapping[int, Sequence[int]],
    targets: Sequence[str] | int | None,
) -> tuple[str, ...]:
    """The targets in order; numbers must be the labels 0, 1, …"""
    keys: list[Any] = list(groups)
    if keys and all(isinstance(key, (int, np.integer)) for key in keys):
        size = len(keys) if targets is None else targets
        if not isinstance(size, int):
            raise InputError("class map: targets are numbers, so 'targets' must be their number")
        missing = set(range(size)) - set(keys) if targets is None else set()
        outside = sorted(set(keys) - set(range(size)))
        if missing or outside:
            raise InputError(
                f"class map: targets must be the labels 0 to {size - 1}, got {(outside or keys)[0]}"
                "; give 'targets' if some have no class"
            )
        return tuple(map(str, range(size)))
    if not all(isinstance(key, str) for key in keys):
        raise InputError("class map: targets must be all names or all numbers")
    if isinstance(targets, int):
        raise InputError("class map: targets are names, so 'targets' must list them")
    names = tuple(map(str, keys if targets is None else targets))
    for key in keys:
        if key not in names:
            raise unknown("target of the class map", str(key), names)
    return names


def _count(classes: object) -> int:
    count = whole_number(classes, "the number of classes")
    if count < 1:
        raise InputError(f"the number of classes must be at least 1, is {count}")
    return count
