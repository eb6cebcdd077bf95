"""Test sets: examples, labels and pictures that are read when they are asked for."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data.decode import NoImage, decode
from shiftbed.evaluation.data.digests import DigestCache, fingerprint_of


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


class Images(ABC):
    """Where pictures come from. Small to pickle: it knows places, not pixels."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def data(self, row: int) -> bytes:
        """The encoded picture, or ``NoImage``."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> "Images":
        """Only these, in this order."""

    @abstractmethod
    def digests(self, cache: DigestCache | None) -> list[bytes]:
        """SHA-256 of each picture's bytes, ``NOTHING`` where there are none."""

    def load(self, row: int) -> Image.Image:
        """The picture, loaded, or ``NoImage``."""
        return decode(BytesIO(self.data(row)))


@dataclass(frozen=True, kw_only=True, eq=False)
class TestSet:
    """A test set: immutable, cheap to pickle, and read lazily.

    ``labels`` are class numbers, −1 for none; where an image has a set of labels, ``label_sets``
    holds them and ``labels`` is −1 throughout. The order is that of the files' names in a folder
    and otherwise that of the source itself.
    """

    __test__ = False  # not a test, whatever pytest makes of its name

    name: str
    examples: tuple[str, ...]
    labels: NDArray[np.int64]
    images: Images = field(repr=False)
    label_sets: tuple[tuple[int, ...], ...] | None = field(default=None, repr=False)
    classes: tuple[str, ...] | None = field(default=None, repr=False)
    groups: NDArray[Any] | None = field(default=None, repr=False)
    """Domain, video or other group of each example."""
    notes: tuple[str, ...] = ()
    """What was seen and not used, one line each: files that are no images, empty classes."""
    citation: str = ""
    licence: str = ""
    cache: DigestCache | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes = {"labels": self.labels, "label_sets": self.label_sets, "groups": self.groups}
        for what, column in sizes.items():
            if column is not None and len(column) != len(self.examples):
                raise InputError(
                    f"test set {self.name!r}: {len(column)} {what} for {len(self.examples)} images"
                )
        if len(set(self.examples)) < len(self.examples):
            twice = next(one for one, times in Counter(self.examples).items() if times > 1)
            raise InputError(f"test set {self.name!r}: two examples have the same id {twice!r}")

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def digests(self) -> NDArray[np.uint8]:
        """(N, 32): SHA-256 of each image's content. Reads everything once."""
        joined = b"".join(self.images.digests(self.cache))
        return np.frombuffer(joined, dtype=np.uint8).reshape(len(self), 32)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of ids, labels, groups and contents; computed when first asked for."""
        own: Sequence[Sequence[int]] = [(int(label),) for label in self.labels]
        return fingerprint_of(self.examples, self.label_sets or own, self.groups, self.digests)

    def load(self, row: int) -> Image.Image:
        """The picture of one example in its own mode, or ``UnreadableImage``."""
        try:
            return self.images.load(row)
        except NoImage as error:
            raise UnreadableImage(self.examples[row], str(error)) from None

    def subset(self, rows: ArrayLike) -> "TestSet":
        """Only these rows, in this order; rows may be numbers or a mask."""
        chosen = np.asarray(rows)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise InputError("rows must be a list of row numbers, or a mask with one value per row")
        chosen = chosen.astype(np.int64)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= len(self)):
            raise InputError(f"rows must lie between 0 and {len(self) - 1}")
        sets = self.label_sets
        part = replace(
            self,
            examples=tuple(self.examples[row] for row in chosen),
            labels=self.labels[chosen],
            label_sets=None if sets is None else tuple(sets[row] for row in chosen),
            groups=None if self.groups is None else self.groups[chosen],
            images=self.images.take(chosen),
        )
        if "digests" in self.__dict__:
            part.__dict__["digests"] = self.digests[chosen]
        return part


def check(test_set: TestSet, sample: int | None = None, workers: int = 4) -> list[Unreadable]:
    """Try to read every image, or ``sample`` evenly spaced ones, and list those that fail."""
    if sample is not None and sample < 1:
        raise InputError(f"sample must be at least 1, is {sample}")
    size = len(test_set)
    count = size if sample is None else min(sample, size)
    rows = [at * size // count for at in range(count)]

    def attempt(row: int) -> Unreadable | None:
        try:
            test_set.load(row)
        except UnreadableImage as error:
            return Unreadable(row, error.example, error.reason)
        return None

    with ThreadPoolExecutor(workers) as pool:
        return [found for found in pool.map(attempt, rows) if found is not None]
