"""What a reader finds, before it becomes a test set: raw labels are made into class numbers here.

Labels come as numbers, as class names or as lists of either; this is the one place that decides
what they mean, so that every format treats them alike.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.catalogue.maps import imagenet_synsets
from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.data.images import Images
from shiftbed.reading.files import read_json, read_text

IMAGENET = "imagenet-1k"
"""The name under which the 1,000 synsets are given as ``classes``."""
LabelSets = str | Path | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a test set is to be read; see ``open_test_set``."""

    image_column: str | None = None
    label_column: str | None = None
    group_column: str | None = None
    id_column: str | None = None
    caption_column: str | None = None
    classes: tuple[str, ...] | None = None
    labels: str | Path | None = None
    layout: str | None = None
    root: str | Path | None = None
    unlabelled: bool = False

    @property
    def columns(self) -> tuple[str | None, ...]:
        """What was asked for by name."""
        named = (self.image_column, self.label_column, self.group_column, self.id_column)
        return *named, self.caption_column


@dataclass(frozen=True, kw_only=True, eq=False)
class RawExamples:
    """Examples as a reader found them, all of one length."""

    where: str
    """The source, for messages."""
    examples: tuple[str, ...]
    images: Images
    labels: Sequence[Any] | NDArray[Any] | None
    """One per example: a number, a name, a list of either, or None; None if there are none."""
    classes: tuple[str, ...] | None = None
    groups: Sequence[Any] | NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What should be there and is not, in words; for sets of which that is known."""
    captions: Sequence[str | None] | None = None
    """One per example, where they were asked for."""
    by_name: bool = False
    """Whether the order is that of directories and files, which no list of labels follows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """Labels as class numbers, or as sets of them."""

    one: NDArray[np.int64]
    sets: tuple[tuple[int, ...], ...] | None = None
    classes: tuple[str, ...] | None = None


def encode(
    raw: Sequence[Any] | NDArray[Any], classes: tuple[str, ...] | None, where: str
) -> Labels:
    """Raw labels as class numbers; names are numbered in the order of ``classes``, else sorted.

    >>> encode(["cat", "ant", None], None, "here").one
    array([ 1,  0, -1])
    """
    if isinstance(raw, np.ndarray) and raw.shape == (len(raw), 1):
        raw = raw[:, 0]
    if isinstance(raw, np.ndarray) and raw.ndim != 1:
        raise InputError(
            f"{where}: labels are of shape {raw.shape}, expected ({len(raw)},); several labels of "
            "one image are a set of classes"
        )
    if isinstance(raw, np.ndarray) and raw.dtype.kind in "iu":
        return Labels(one=_in_range(raw, classes, where), classes=classes)
    try:
        listed = [_plain(label) for label in raw]
    except (SystemError, UnicodeError, ValueError) as error:  # numpy's texts are not checked
        raise InputError(f"{where}: labels are texts that cannot be read: {brief(error)}") from None
    if not any(isinstance(label, (list, tuple)) for label in listed):
        one, classes = _encode_each(listed, classes, where)
        return Labels(one=one, classes=classes)
    rows = [label if isinstance(label, (list, tuple)) else [label] for label in listed]
    flat = [_plain(one) for row in rows for one in row]
    numbers, classes = _encode_each(flat, classes, where)
    parts = np.split(numbers, np.cumsum([len(row) for row in rows])[:-1])
    sets = tuple(tuple(sorted({int(one) for one in part} - {-1})) for part in parts)
    return Labels(one=np.full(len(sets), -1), sets=sets, classes=classes)


def _encode_each(
    listed: list[Any], classes: tuple[str, ...] | None, where: str
) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Single labels as class numbers, and the classes they are numbered by."""
    names = [label for label in listed if isinstance(label, str)]
    numeric = all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names)
    if numeric and not (names and classes is not None and set(names) <= set(classes)):
        numbers = [-1 if label is None else _number(label, where) for label in listed]
        return _in_range(np.array(numbers, dtype=np.int64), classes, where), classes
    classes = tuple(sorted(set(names))) if classes is None else classes
    at: dict[str | None, int] = {name: number for number, name in enumerate(classes)}
    at[None] = -1
    for label in listed:
        if label is not None and not isinstance(label, str):
            raise InputError(f"{where}: labels are both names and numbers, such as {shown(label)}")
        if label not in at:
            raise unknown(f"class in {where}", str(label), classes)
    return np.array([at[label] for label in listed], dtype=np.int64), classes


def _plain(label: Any) -> Any:
    """Python's own value; text without surrounding blanks, and none where there is none."""
    if isinstance(label, np.generic | np.ndarray):
        label = label.tolist()
    if isinstance(label, bytes):
        label = label.decode("utf-8", "backslashreplace")
    if isinstance(label, (set, frozenset)):
        label = list(label)
    return (label.strip() or None) if isinstance(label, str) else label


def _number(label: Any, where: str) -> int:
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, bool) or not isinstance(label, (int, str)) or abs(int(label)) >= 2**62:
        raise InputError(f"{where}: label {shown(label)} is neither a class number nor a name")
    return int(label)


def _in_range(
    labels: NDArray[Any], classes: tuple[str, ...] | None, where: str
) -> NDArray[np.int64]:
    most = len(classes) - 1 if classes is not None else 2**62
    wrong = np.flatnonzero((labels < -1) | (labels > most))
    if wrong.size:
        end = f" to {most}" if classes is not None else ""
        raise InputError(
            f"{where}: label {labels[wrong[0]]} is no class, expected 0{end} or -1 for none"
        )
    return labels.astype(np.int64)


def read_classes(classes: str | Path | Sequence[str] | None) -> tuple[str, ...] | None:
    """Class names in order: a list of them, a file with one per line, or ``imagenet-1k``."""
    if classes is None:
        return None
    if classes == IMAGENET:
        return imagenet_synsets()
    if isinstance(classes, (str, Path)):
        try:
            text = read_text(classes)
        except InputError as error:
            raise InputError(
                f"classes: {shown(str(classes))} is neither {IMAGENET!r} nor a readable file with "
                f"a class name per line: {some([str(error)])}"
            ) from None
        classes = [line.strip() for line in text.splitlines() if line.strip()]
    names = tuple(map(str, classes))
    if not names or len(set(names)) < len(names):
        raise InputError("classes: expected at least one name, all different")
    return names


def label_sets_of(
    given: LabelSets, found: RawExamples, classes: tuple[str, ...] | None
) -> tuple[tuple[int, ...], ...]:
    """Label sets that come beside the images, as JSON or a value: a mapping by id, or a list.

    A mapping's keys are example ids or file names. A list is in the order of the examples, and for
    a folder in the order of the file names (as ReaL's list is).
    """
    read: Any = given
    if isinstance(given, (str, Path)):
        try:
            read = read_json(given)
        except InputError as error:
            raise InputError(f"{given}: expected a JSON file of label sets: {error}") from None
    bases = [Path(example).name for example in found.examples]
    unique = len(set(bases)) == len(bases)
    if isinstance(read, Mapping):
        pairs = zip(found.examples, bases, strict=True)
        rows = [read.get(one, read.get(base) if unique else None) for one, base in pairs]
    else:
        rows = list(read) if isinstance(read, Sequence) else []
        if len(rows) != len(bases):
            raise InputError(f"label sets: {len(rows)} for {len(bases)} images")
        if found.by_name:
            if not unique:
                raise InputError("label sets: file names repeat; give a mapping from example id")
            order = sorted(range(len(bases)), key=bases.__getitem__)
            rows = [row for _, row in sorted(zip(order, rows, strict=True), key=lambda one: one[0])]
    for example, row in zip(found.examples, rows, strict=True):
        if not isinstance(row, Sequence) or isinstance(row, str):
            raise InputError(f"label sets: no list of labels for {example!r}")
    sets = encode([list(row) for row in rows], classes, "label sets").sets
    return sets if sets is not None else ()


def group_names(groups: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Groups as an array: numbers, or text."""
    if isinstance(groups, np.ndarray):
        return groups
    if all(isinstance(one, int) for one in groups):
        return np.array(groups, dtype=np.int64)
    return np.array(["" if one is None else str(one) for one in groups])


def check_name(name: str) -> str:
    """A test set's name, refused if it does not fit into the id of a setting."""
    if not name or re.search(r"[@+/\\\s]", name) or not name.isprintable():
        raise InputError(f"name {shown(name)}: must have no blanks, slashes, '@' or '+'")
    return name


def numbered(size: int) -> tuple[str, ...]:
    """Row numbers as ids, of one length."""
    digits = len(str(size - 1))
    return tuple(f"{row:0{digits}d}" for row in range(size))


def no_label(examples: Sequence[str], of: int) -> str:
    """The note about examples without a label."""
    return f"no label for {len(examples)} of {of} images: {some(examples)}"


def shown(value: object) -> str:
    """A value in a message: on one line and not too long."""
    text = repr(value)
    return text if len(text) <= 160 else text[:60] + "…" + text[-99:]


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more
