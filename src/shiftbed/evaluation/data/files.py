"""Images that are files of their own, under one root."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.evaluation.data.digests import DigestCache, cached, hash_file
from shiftbed.evaluation.data.images import Images, NoImage, decode_file


@dataclass(frozen=True)
class FileImages(Images):
    """Files below ``root``; decoded straight from disk, without a copy of their bytes."""

    root: str
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def path(self, row: int) -> Path:
        """Where one is."""
        return Path(self.root, self.names[row])

    def load(self, row: int) -> Image.Image:
        """The picture, loaded, or ``NoImage``."""
        return decode_file(os.path.join(self.root, self.names[row]))

    def data(self, row: int) -> bytes:
        """The encoded picture, or ``NoImage``."""
        try:
            return self.path(row).read_bytes()
        except OSError as error:
            raise NoImage(f"cannot be read: {error.strerror}") from None

    def take(self, rows: NDArray[np.int64]) -> "FileImages":
        """Only these, in this order."""
        return replace(self, names=tuple(self.names[row] for row in rows))

    def digests(self, cache: DigestCache | None) -> list[bytes]:
        """SHA-256 of each file."""
        parts = [(self.path(row), "") for row in range(len(self))]
        return cached(parts, lambda part: hash_file(part[0]), cache)


def printable(names: Sequence[str]) -> tuple[str, ...]:
    """Names as ids: text that any file can hold, with forward slashes.

    >>> printable(["a/b.jpg", os.fsdecode(b"caf\\xe9.jpg")])
    ('a/b.jpg', 'caf\\\\xe9.jpg')
    """
    if os.sep != "/":
        names = [name.replace(os.sep, "/") for name in names]
    return tuple(
        name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
        for name in names
    )
