"""ObjectNet: a folder per object, a red border around every picture."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.maps import groups, objectnet_folders
from shiftbed.evaluation.data.authors.common import (
    directories,
    named_folders,
    numbers_of,
    pick,
    seen_in,
    wrong_layout,
)
from shiftbed.evaluation.data.digests import DigestCache
from shiftbed.evaluation.data.images import Images, NoImage
from shiftbed.evaluation.data.raw_examples import RawExamples

BORDER = 2
"""Pixels cropped on each side in taori2020 (Appendix E.1); the border itself is 1 pixel wide."""


@dataclass(frozen=True)
class CroppedImages(Images):
    """Pictures without their outermost pixels."""

    inner: Images
    border: int

    def __len__(self) -> int:
        return len(self.inner)

    def data(self, row: int) -> bytes:
        """The encoded picture, with its border."""
        return self.inner.data(row)

    def load(self, row: int) -> Image.Image:
        """The picture without its border, or ``NoImage``."""
        image = self.inner.load(row)
        width, height = image.size
        if min(width, height) <= 2 * self.border:
            raise NoImage(f"{width} × {height} pixels: nothing left inside the border")
        return image.crop((self.border, self.border, width - self.border, height - self.border))

    def take(self, rows: NDArray[np.int64]) -> "CroppedImages":
        """Only these, in this order."""
        return replace(self, inner=self.inner.take(rows))

    def digests(self, cache: DigestCache | None) -> list[bytes]:
        """Of the whole picture and the width of the border: another crop is another set."""
        mark = f"border {self.border}".encode()
        return [hashlib.sha256(mark + own).digest() for own in self.inner.digests(cache)]


def read_objectnet(entry: TestSetEntry, path: Path) -> RawExamples:
    """The images of the 113 objects that are among ImageNet's classes."""
    folders = objectnet_folders()
    for inner in ("", "images", "objectnet-1.0/images"):
        if set(directories(path / inner)) & folders.keys():
            break
    else:
        raise wrong_layout(entry, path, seen_in(path))
    every = tuple(folders.values())
    numbers = {folder: at for at, folder in enumerate(folders)}
    whole = named_folders(entry, path / inner, numbers, every)
    classes = tuple(groups("objectnet"))
    label = {every.index(name): at for at, name in enumerate(classes)}
    own = numbers_of(whole).tolist()
    found = pick(whole, [row for row, one in enumerate(own) if one in label])
    if not found.examples:
        raise wrong_layout(entry, path, "none of its folders is one of the 113 objects")
    left = len(own) - len(found.examples)
    border = int(entry.part.removeprefix("border-")) if entry.part else BORDER
    return replace(
        found,
        images=CroppedImages(found.images, border) if border else found.images,
        labels=np.array([label[one] for one in numbers_of(found).tolist()], dtype=np.int64),
        classes=classes,
        notes=(
            *found.notes,
            *([f"{left} images of objects outside ImageNet's classes left out"] if left else []),
            f"border of {border} pixels cropped",
        ),
        missing=tuple(_missing(path / inner, classes)),
    )


def _missing(path: Path, classes: tuple[str, ...]) -> list[str]:
    there = {objectnet_folders()[name] for name in directories(path)}
    absent = [name for name in classes if name not in there]
    return [f"{len(absent)} of {len(classes)} objects have no folder"] if absent else []
