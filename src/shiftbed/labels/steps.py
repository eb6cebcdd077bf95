"""The steps a label policy is made of: classes kept, classes combined."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from shiftbed.errors import InputError, unknown

HOW = {
    "max": "max of softmax",
    "mean": "mean of softmax",
    "sum": "sum of softmax",
    "max-logit": "max of logits",
}
"""Ways to combine the scores of the classes mapped to one target."""
_IN_KEY = 6
"""A subset of at most so many classes is spelled out in its key."""
_BLOCK = 1024
"""Images whose scores are combined at a time, to stay within the processor's caches."""


MOST_CLASSES = 2**24
"""No model has more; a class map that speaks of more would take memory for all of them."""
SEVERAL = -2
"""In place of a new label, where a class has several."""


class _Step:
    """What both kinds of step say of their new classes, each a group of old ones."""

    groups: tuple[tuple[int, ...], ...]

    @property
    def width(self) -> int:
        """Number of classes it makes."""
        return len(self.groups)

    @property
    def needs(self) -> int:
        """The least number of classes it can be applied to."""
        return max(max(group, default=0) for group in self.groups) + 1

    def targets(self) -> list[tuple[int, ...]]:
        """For each class all its new labels."""
        found: list[tuple[int, ...]] = [() for _ in range(self.needs)]
        for at, group in enumerate(self.groups):
            for one in group:
                found[one] += (at,)
        return found

    def table(self) -> NDArray[np.int64]:
        """For each class its new label, −1 if it has none, ``SEVERAL`` if it has several."""
        new = [one[0] if len(one) == 1 else SEVERAL if one else -1 for one in self.targets()]
        return np.array(new, dtype=np.int64)


@dataclass(frozen=True)
class Subset(_Step):
    """A step that keeps these classes."""

    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        _distinct(self.indices, "subset")

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        return tuple((one,) for one in self.indices)

    @property
    def key(self) -> str:
        """Short and canonical."""
        if self.width <= _IN_KEY:
            return "classes-" + "-".join(map(str, self.indices))
        return f"{self.width}-classes-{_hash(self.indices)}"

    def apply(self, logits: NDArray[Any]) -> NDArray[Any]:
        """(N, K) → (N, width)."""
        return logits[:, list(self.indices)]

    def describe(self, classes: int | None) -> str:
        """In words, from a label space of ``classes``."""
        of = f" of {classes}" if classes is not None else ""
        return f"subset of {self.width}{of} classes, logits sliced before argmax"


@dataclass(frozen=True)
class ClassMap(_Step):
    """A step that combines the classes of each group; see ``class_map``."""

    groups: tuple[tuple[int, ...], ...]
    how: str
    names: tuple[str, ...]
    overlapping: bool = False
    """Whether a class may belong to several targets (many-to-many)."""

    def __post_init__(self) -> None:
        used = [one for group in self.groups for one in group]
        _distinct(sorted(set(used)) if self.overlapping else used, "class map")
        for group in self.groups if self.overlapping else ():
            if group:
                _distinct(group, "class map")
        if self.how not in HOW:
            raise unknown("way to combine classes", self.how, HOW)
        if len(self.names) != len(self.groups) or len(set(self.names)) < len(self.names):
            raise InputError("class map: needs one name per target, all different")

    @property
    def key(self) -> str:
        """Short and canonical; the targets' names do not matter."""
        return f"{self.width}-by-{self.how}-{_hash(self.groups)}"

    def apply(self, logits: NDArray[Any]) -> NDArray[Any]:
        """(N, K) → (N, width): log-probabilities, or logits for ``max-logit``."""
        kind = np.promote_types(logits.dtype, np.float32)
        scores = np.full((len(logits), self.width), -np.inf, dtype=kind)
        filled = [at for at, group in enumerate(self.groups) if group]
        for at in range(0, len(logits), _BLOCK):
            block = logits[at : at + _BLOCK].astype(kind, copy=False)
            scores[at : at + _BLOCK, filled] = self._combine(block)
        return scores

    def _combine(self, logits: NDArray[Any]) -> NDArray[Any]:
        """The scores of the targets that have classes."""
        sizes = np.array([len(group) for group in self.groups if group])
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        picked = logits[:, [one for group in self.groups for one in group]]
        scores: NDArray[Any] = np.maximum.reduceat(picked, starts, axis=1)
        if self.how in ("mean", "sum"):
            base = np.where(np.isfinite(scores), scores, 0)
            picked -= np.repeat(base, sizes, axis=1)
            with np.errstate(divide="ignore"):
                scores = np.log(np.add.reduceat(np.exp(picked), starts, axis=1)) + base
        if self.how == "mean":
            scores -= np.log(sizes).astype(logits.dtype)
        if self.how != "max-logit":
            scores -= logsumexp(logits, axis=1, keepdims=True)
        return scores

    def describe(self, classes: int | None) -> str:
        """In words, from a label space of ``classes``."""
        used = len({one for group in self.groups for one in group})
        of = f" of {classes}" if classes is not None and classes != used else ""
        empty = sum(not group for group in self.groups)
        never = f" ({empty} of them never predicted)" if empty else ""
        shared = sum(len(one) > 1 for one in self.targets())
        several = f", {shared} of them to several" if shared else ""
        return f"{used}{of} classes mapped to {self.width}{never}{several} by {HOW[self.how]}"


def step_from_json(read: dict[str, Any]) -> Subset | ClassMap:
    if "subset" in read:
        return Subset(tuple(whole_number(one, "a class index") for one in read["subset"]))
    groups = tuple(
        tuple(sorted(whole_number(one, "a class index") for one in group)) for group in read["map"]
    )
    overlapping = read.get("overlapping", False)
    if not isinstance(overlapping, bool):
        raise InputError("overlapping must be true or false")
    return ClassMap(groups, str(read["how"]), tuple(map(str, read["names"])), overlapping)


def check_width(classes: int, step: Subset | ClassMap) -> None:
    if step.needs > classes:
        raise InputError(
            f"label policy: class index {step.needs - 1} is out of range, there are {classes} "
            f"classes (0 to {classes - 1})"
        )


def _distinct(indices: Sequence[int], what: str) -> None:
    if not len(indices):
        raise InputError(f"{what}: needs at least one class")
    seen: set[int] = set()
    for index in indices:
        if index < 0:
            raise InputError(f"{what}: class index {index} is negative")
        if index >= MOST_CLASSES:
            raise InputError(f"{what}: class index {index} is beyond {MOST_CLASSES}")
        if index in seen:
            raise InputError(f"{what}: class {index} is given twice")
        seen.add(index)


def whole_number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{what} must be a whole number, is {value!r}")
    return int(value)


def _hash(values: object) -> str:
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()[:12]
