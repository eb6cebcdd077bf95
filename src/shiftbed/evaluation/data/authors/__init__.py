"""Test sets of the catalogue, read from the layout in which their authors publish them.

``open_test_set("imagenet-a@DIR")`` comes here. Each reader knows one family of layouts, raises an
error that says what was expected where if it finds another, and numbers classes as the catalogue
does, so that a missing folder never shifts labels. Counts and labels are compared with the
published ones; differences are notes, not errors: parts of a set are useful, too.
"""

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.lookup import find
from shiftbed.errors import InputError
from shiftbed.evaluation.data.authors import domains, imagenet, small_images, videos
from shiftbed.evaluation.data.raw_examples import Labels, RawExamples, encode
from shiftbed.evaluation.data.test_set import TestSet
from shiftbed.places import local, url_of

__all__ = ["Examined", "examine", "label_digest", "split_spec"]

READERS: dict[str, Callable[[TestSetEntry, Path], RawExamples]] = {
    "cifar-10": small_images.read_cifar,
    "cifar-10-c": small_images.read_cifar_c,
    "cifar-10.1": small_images.read_cifar_1,
    "cifar-10.2": small_images.read_cifar_2,
    "cinic-10": small_images.read_cinic,
    "domains": domains.read_domain,
    "imagenet": imagenet.read_validation,
    "imagenet-c": imagenet.read_corruption,
    "numbers": imagenet.read_numbers,
    "objectnet": imagenet.read_objectnet,
    "real": imagenet.read_real,
    "synsets": imagenet.read_synsets,
    "vid-robust": videos.read_vid_robust,
    "wilds": domains.read_wilds,
    "ytbb-robust": videos.read_ytbb_robust,
}
_SPEC = re.compile(r"([A-Za-z0-9][\w.\-]*(?:/[\w.\-]+){0,2})@(.*)", re.DOTALL)


def split_spec(spec: str) -> tuple[str, str] | None:
    """``NAME@PATH`` as (name, path); None for a path.

    A file that is called so is a file.

    >>> split_spec("pacs/sketch@data/PACS"), split_spec("data/val")
    (('pacs/sketch', 'data/PACS'), None)
    """
    found = _SPEC.fullmatch(spec)
    if found is None or os.path.lexists(spec):
        return None
    return found[1], found[2]


class Examined(NamedTuple):
    """A test set, and what is not there of it or differs from what is published, in words."""

    entry: TestSetEntry
    test_set: TestSet
    missing: tuple[str, ...]
    differs: tuple[str, ...]


def examine(name: str, path: str, *, called: str | None = None) -> Examined:
    """The test set of that name in the catalogue, from its authors' layout at ``path``."""
    entry = find(name)
    if path and url_of(path) is not None:
        path = str(local(path, name))
    if entry.layout == "digits":
        found = small_images.read_digits(entry, Path(path) if path else None)
    else:
        if not path or "\0" in path or not Path(path).exists():
            raise InputError(f"{name}@{path}: no such directory; expected {entry.tree}")
        found = READERS[entry.layout](entry, Path(path))
    labels = encode(found.labels if found.labels is not None else (), found.classes, found.where)
    groups = None if found.groups is None else np.array([str(one) for one in found.groups])
    differs = tuple(_compared(entry, found, labels))
    test_set = TestSet(
        name=called or entry.test_set,
        examples=found.examples,
        labels=labels.one,
        label_sets=labels.sets,
        images=found.images,
        classes=labels.classes,
        groups=groups,
        notes=(*found.notes, *found.missing, *differs),
        citation=entry.citation,
        licence=entry.licence,
    )
    return Examined(entry, test_set, found.missing, differs)


def label_digest(examples: Sequence[str], labels: Labels) -> str:
    """The start of the SHA-256 of labels: in order, or by name where they are sets."""
    if labels.sets is None:
        return hashlib.sha256(labels.one.astype("<u2").tobytes()).hexdigest()[:16]
    own = sorted(zip(examples, labels.sets, strict=True))
    text = "\n".join(f"{name} {' '.join(map(str, one))}" for name, one in own)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compared(entry: TestSetEntry, found: RawExamples, labels: Labels) -> list[str]:
    """How the set differs from what is published about it, in words."""
    count, counted = len(found.examples), labels.one
    known = [one for one in (entry.images, *entry.also) if one is not None]
    if known and count not in known:
        return [f"{count:,} images, published are {' or '.join(f'{one:,}' for one in known)}"]
    notes = []
    if entry.digest is not None and label_digest(found.examples, labels) != entry.digest:
        notes.append("labels or their order differ from the published ones")
    if entry.per_class is not None:
        sizes = np.bincount(counted[counted >= 0], minlength=entry.classes)
        if (sizes != entry.per_class).any():
            notes.append(f"not {entry.per_class} images of each class, as published")
    return notes
