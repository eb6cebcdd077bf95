"""Images of one size, one after the other in a plain file: CIFAR-10's binary version, IDX files."""

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data.digests import DigestCache, cached
from shiftbed.evaluation.data.images import Images, NoImage


@dataclass(frozen=True, eq=False)
class RecordImages(Images):
    """Rows of a file: ``size`` bytes each after ``start``, of which the picture is the last part.

    ``shape`` is (H, W), or (C, H, W) with the channels one after the other.
    """

    path: str
    start: int
    size: int
    shape: tuple[int, ...]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def data(self, row: int) -> bytes:
        """The bytes of the picture."""
        length = int(np.prod(self.shape))
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start + (int(self.rows[row]) + 1) * self.size - length)
                read = file.read(length)
        except OSError as error:
            raise NoImage(f"cannot be read: {error.strerror}") from None
        if len(read) < length:
            raise NoImage("truncated: the file ends within the picture")
        return read

    def load(self, row: int) -> Image.Image:
        """The picture: mode L or RGB."""
        pixels = np.frombuffer(self.data(row), dtype=np.uint8).reshape(self.shape)
        if pixels.ndim == 3:
            pixels = pixels.transpose(1, 2, 0)
        return Image.fromarray(np.ascontiguousarray(pixels))

    def take(self, rows: NDArray[np.int64]) -> "RecordImages":
        """Only these, in this order."""
        return replace(self, rows=self.rows[rows])

    def digests(self, cache: DigestCache | None) -> list[bytes]:
        """SHA-256 of form and bytes of each picture."""
        form = f"{self.shape}".encode()
        part = f"{self.start} {self.size} {hashlib.sha256(self.rows.tobytes()).hexdigest()}"

        def compute(_: object) -> bytes:
            every = range(len(self))
            return b"".join(hashlib.sha256(form + self.data(row)).digest() for row in every)

        joined = cached([(Path(self.path), part)], compute, cache)[0]
        return [joined[at : at + 32] for at in range(0, len(joined), 32)]


@dataclass(frozen=True, eq=False)
class LibraryDigits(Images):
    """scikit-learn's digits, 8 × 8 with 17 greys, stretched to 8 bits."""

    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def data(self, row: int) -> bytes:
        """The bytes of the picture."""
        picture: NDArray[np.uint8] = sklearn_digits()[0][self.rows[row]]
        return picture.tobytes()

    def load(self, row: int) -> Image.Image:
        """The picture: mode L."""
        return Image.fromarray(sklearn_digits()[0][self.rows[row]])

    def take(self, rows: NDArray[np.int64]) -> "LibraryDigits":
        """Only these, in this order."""
        return replace(self, rows=self.rows[rows])

    def digests(self, cache: DigestCache | None) -> list[bytes]:
        """SHA-256 of each picture; too few to be kept."""
        return [hashlib.sha256(self.data(row)).digest() for row in range(len(self))]


@cache
def sklearn_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (1797, 8, 8) and labels."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise InputError("digits/sklearn needs scikit-learn: pip install scikit-learn") from None
    read: Any = load_digits()
    pixels = np.rint(read.images * (255 / 16)).astype(np.uint8)
    return pixels, np.asarray(read.target, dtype=np.int64)
