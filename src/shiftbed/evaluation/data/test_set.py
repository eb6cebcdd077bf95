"""Test sets: examples, labels and pictures that are read when they are asked for."""

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data.images import Draft, Images, NoImage
from shiftbed.evaluation.data.objects import images_of, plain, read_items, read_loader
from shiftbed.evaluation.data.raw_examples import (
    check_name,
    encode,
    group_names,
    no_label,
    read_classes,
)


class UnreadableImage(InputError):
    """An image that cannot be read: which one, and why."""

    def __init__(self, example: str, reason: str) -> None:
        super().__init__(example, reason)
        self.example = example
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.example!r}: {self.reason}"


class Unreadable(NamedTuple):
    """An unreadable image in a list of them."""

    row: int
    example: str
    reason: str


@dataclass(frozen=True, init=False, eq=False)
class TestSet:
    """A test set: immutable and read lazily.

    ``images`` are uint8 (N, H, W, C) or (N, H, W); floats in [0, 1] are rounded to 8 bits, and a
    note says so if that changes them. ``layout`` ("NHWC", "NCHW") decides where a shape allows
    both. A writeable array is copied, so that what the fingerprint says stays true.

    ``labels`` are (N,) class numbers or names, None or −1 for an image without one, or a set of
    them for each image. Names are numbered in the order of ``classes``, else sorted. ``examples``
    are ids, by default the position as text; ``groups`` the domain, video or other group of each.

    >>> test_set = TestSet(np.zeros((3, 8, 8, 3), np.uint8), ["cat", "ant", None], name="tiny")
    >>> test_set.classes, test_set.labels.tolist(), test_set.examples, test_set.load(0).size
    (('ant', 'cat'), [1, 0, -1], ('0', '1', '2'), (8, 8))

    The other ways to one: ``open`` (paths), ``from_loader``, ``from_dataset``, ``from_hf``.
    """

    __test__ = False  # not a test, whatever pytest makes of its name

    name: str
    examples: tuple[str, ...]
    labels: NDArray[np.int64]
    """(N,) class numbers, −1 for none; −1 throughout where ``label_sets`` are given."""
    images: Images = field(repr=False)
    label_sets: tuple[tuple[int, ...], ...] | None = field(repr=False)
    classes: tuple[str, ...] | None = field(repr=False)
    groups: NDArray[Any] | None = field(repr=False)
    captions: tuple[str | None, ...] | None = field(repr=False)
    """Texts of the images, where they were asked for; no part of the fingerprint."""
    notes: tuple[str, ...]
    """What was seen and not used, or changed, one line each."""
    citation: str
    licence: str

    def __init__(
        self,
        images: Images | Any,
        labels: Sequence[Any] | NDArray[Any] | Any | None,
        name: str = "test-set",
        *,
        classes: Sequence[str] | None = None,
        groups: Sequence[Any] | NDArray[Any] | None = None,
        examples: Sequence[str] | None = None,
        citation: str = "",
        licence: str = "",
        notes: Sequence[str] = (),
        layout: str | None = None,
        label_sets: tuple[tuple[int, ...], ...] | None = None,
        captions: Sequence[str | None] | None = None,
    ) -> None:
        where = f"test set {name!r}"
        made = not isinstance(images, Images)
        if made:
            check_name(name)
            images, more = images_of(images, where, layout)
            notes = (*notes, *more)
        ids = tuple(map(str, range(len(images)) if examples is None else examples))
        if labels is not None and len(labels) != len(ids):
            raise InputError(f"{where}: {len(labels)} labels for {len(ids)} images")
        space = None if classes is None else read_classes(classes)
        encoded = encode([None] * len(ids) if labels is None else plain(labels), space, where)
        without = [one for one, label in zip(ids, encoded.one, strict=True) if label < 0]
        if made and encoded.sets is None and 0 < len(without) < len(ids):
            notes = (*notes, no_label(without, len(ids)))
        values = {
            "name": name,
            "examples": ids,
            "labels": encoded.one,
            "images": images,
            "label_sets": label_sets if label_sets is not None else encoded.sets,
            "classes": encoded.classes,
            "groups": None if groups is None else group_names(groups),
            "captions": None if captions is None else tuple(one or None for one in captions),
            "notes": tuple(notes),
            "citation": citation,
            "licence": licence,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        for what in ("images", "label_sets", "groups", "captions"):
            column = getattr(self, what)
            if column is not None and len(column) != len(ids):
                raise InputError(f"{where}: {len(column)} {what} for {len(ids)} examples")
        if len(set(ids)) < len(ids):
            twice = next(one for one, times in Counter(ids).items() if times > 1)
            raise InputError(f"{where}: two examples have the same id {twice!r}")

    @classmethod
    def open(cls, path: str | Path | Sequence[str | Path], **options: Any) -> "TestSet":
        """The test set at a path or ``NAME@DIR``; see ``open_test_set``, whose options it takes."""
        from shiftbed.evaluation.data.formats import open_test_set

        return open_test_set(path, **options)

    @classmethod
    def from_loader(
        cls,
        loader: Iterable[Any],
        name: str = "test-set",
        *,
        layout: str | None = None,
        **more: Any,
    ) -> "TestSet":
        """All images of a ``DataLoader``, or of any iterable of (images, labels) batches.

        Images are tensors or arrays, uint8 or floats in [0, 1], (N, C, H, W) or (N, H, W, C),
        before normalisation: that belongs to the model. One pass reads them all into memory.
        ``more`` are keywords of ``TestSet``.
        """
        pixels, labels, notes = read_loader(loader, f"test set {name!r}", layout)
        return cls(pixels, labels, name, notes=notes, **more)

    @classmethod
    def from_dataset(
        cls, dataset: Any, name: str = "test-set", *, layout: str | None = None, **more: Any
    ) -> "TestSet":
        """A map-style data set of (image, label), such as torch's, read by index when needed.

        Images are PIL images, or tensors or arrays as for ``from_loader``. Labels are taken from
        its ``targets`` if it has them, else by reading every item once; class names from its
        ``classes``. ``more`` are keywords of ``TestSet``.
        """
        images, labels, found = read_items(dataset, f"test set {name!r}", layout)
        return cls(images, labels, check_name(name), **{**found, **more})

    @classmethod
    def from_hf(
        cls,
        dataset: Any,
        name: str = "test-set",
        *,
        image_column: str | None = None,
        label_column: str | None = None,
        **options: Any,
    ) -> "TestSet":
        """A ``datasets.Dataset`` of Hugging Face; further options as of ``open_test_set``.

        Columns need not be named where there is one of images and one of labels.
        """
        from shiftbed.evaluation.data.formats import open_test_set

        return open_test_set(
            dataset, name=name, image_column=image_column, label_column=label_column, **options
        )

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def token(self) -> str:
        """Its name in caches: no other test set has it, also once this one is gone."""
        return secrets.token_hex(16)

    @cached_property
    def digests(self) -> NDArray[np.uint8]:
        """(N, 32): SHA-256 of each image's content. Reads everything once."""
        joined = b"".join(self.images.digests())
        return np.frombuffer(joined, dtype=np.uint8).reshape(len(self), 32)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of ids, labels, groups and contents; computed when first asked for."""
        return self.fingerprint_without(())

    @property
    def unread(self) -> tuple[int, ...]:
        """The images whose bytes could not be read for the fingerprint, now or ever."""
        return tuple(np.flatnonzero(~self.digests.any(axis=1)).tolist())

    def fingerprint_without(self, rows: Sequence[int]) -> str:
        """The fingerprint as it was made where these images could not be read."""
        own: Sequence[Sequence[int]] = [(int(label),) for label in self.labels]
        digests = self.digests.copy()
        digests[[row for row in rows if row < len(self)]] = 0
        return fingerprint_of(self.examples, self.label_sets or own, self.groups, digests)

    def load(self, row: int, draft: Draft | None = None) -> Image.Image:
        """The picture of one example in its own mode, or ``UnreadableImage``.

        ``draft``: the least size at which a JPEG may be decoded, by its own; see ``Preprocessing``.
        """
        try:
            return self.images.load(row, draft)
        except NoImage as error:
            raise UnreadableImage(self.examples[row], str(error)) from None

    def subset(self, rows: ArrayLike) -> "TestSet":
        """Only these rows, in this order; rows may be numbers or a mask."""
        chosen = checked_rows(rows, len(self))
        sets = self.label_sets
        part = replace(
            self,
            examples=tuple(self.examples[row] for row in chosen),
            labels=self.labels[chosen],
            label_sets=None if sets is None else tuple(sets[row] for row in chosen),
            groups=None if self.groups is None else self.groups[chosen],
            captions=None if self.captions is None else tuple(self.captions[row] for row in chosen),
            images=self.images.take(chosen),
        )
        if "digests" in self.__dict__:
            part.__dict__["digests"] = self.digests[chosen]
        return part


def checked_rows(rows: ArrayLike, size: int) -> NDArray[np.int64]:
    """Row numbers of a test set of that size, given as numbers or as a mask."""
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.shape == (size,):
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise InputError("rows must be a list of row numbers, or a mask with one value per row")
    if chosen.size and (chosen.min() < 0 or chosen.max() >= size):
        raise InputError(f"rows must lie between 0 and {size - 1}")
    return chosen.astype(np.int64)


def fingerprint_of(
    examples: Sequence[str],
    labels: Iterable[Sequence[int]],
    groups: NDArray[np.generic] | None,
    digests: NDArray[np.uint8],
) -> str:
    """Identity of a test set: SHA-256 of ids, labels, groups and contents, in order.

    Neither where the files are nor how they are packed matters: the same encoded images under the
    same ids have the same fingerprint in a folder and in a tar.
    """
    whole = hashlib.sha256(f"test set of {len(examples)}\n".encode())
    for at, (example, own) in enumerate(zip(examples, labels, strict=True)):
        group = "" if groups is None else str(groups[at])
        for text in (example, " ".join(map(str, own)), group):
            coded = text.encode()
            whole.update(len(coded).to_bytes(8, "little") + coded)
        whole.update(digests[at].tobytes())
    return f"sha256:{whole.hexdigest()}"
