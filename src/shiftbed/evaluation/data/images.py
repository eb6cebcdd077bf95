"""Pictures: where they come from, and encoded bytes to a picture, or the reason why not.

The mode is kept (CMYK, 16 bits, palette, …): turning it into what a model wants belongs to
preprocessing. The EXIF orientation is not applied, as in timm and torchvision. Of an animation the
first frame is taken. Only plain raster formats are decoded, whatever a file is called: PIL would
hand an EPS file to another program.

A JPEG may be decoded at a half, a quarter or an eighth of its size where that is asked for
(``draft``); everything else is always decoded whole.

A truncated file is refused, and so is a PNG whose checksums are wrong. Damage in the middle of a
JPEG cannot be seen by any decoder; the fingerprint of the test set shows that a file changed.
"""

import hashlib
import math
import os
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from struct import error as StructError
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from shiftbed.errors import InputError, brief
from shiftbed.reading.files import regular

EXTENSIONS = frozenset(
    [".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".avif"]
)
"""How the names of image files end."""
Draft = Callable[[int, int], tuple[int, int]]
"""From a picture's (width, height) to the least size at which it may be decoded."""
NOTHING = bytes(32)
"""The digest of an image that is not there."""
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "AVIF")
_FRAMES_FROM_FILE = ("GIF", "TIFF")
"""Formats that go back to the file after loading, if there are more frames."""
_CANNOT = (
    *(OSError, SyntaxError, ValueError, TypeError, IndexError, KeyError, AttributeError),
    *(EOFError, ArithmeticError, StructError, zlib.error, MemoryError, RuntimeError, Warning),
)
"""What PIL's decoders raise on damaged files; warnings too, where they are made errors."""


def cores() -> int:
    """The processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class NoImage(Exception):
    """There is no picture here; the message is the reason, one line."""


class Images(ABC):
    """Where pictures come from. Those in files are small to pickle: places, not pixels."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def data(self, row: int) -> bytes:
        """The picture's bytes, encoded or (with their form) plain, or ``NoImage``."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> "Images":
        """Only these, in this order."""

    def digests(self) -> list[bytes]:
        """SHA-256 of each picture's bytes, ``NOTHING`` where there are none."""

        def digest(row: int) -> bytes:
            try:
                return hashlib.sha256(self.data(row)).digest()
            except NoImage:
                return NOTHING

        with ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 1)) as pool:
            return list(pool.map(digest, range(len(self))))

    def load(self, row: int, draft: Draft | None = None) -> Image.Image:
        """The picture, loaded, or ``NoImage``; a JPEG perhaps smaller, down to what is said."""
        return decode(BytesIO(self.data(row)), draft)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowImages(Images):
    """Pictures that lie under row numbers."""

    rows: NDArray[np.int64]
    """(N,), or (N, more) where a place is several numbers."""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: NDArray[np.int64]) -> Self:
        return replace(self, rows=self.rows[rows])


def decode_file(path: Path | str, draft: Draft | None = None) -> Image.Image:
    """The picture in a file, loaded."""
    try:
        with open(regular(path), "rb") as file:
            return decode(file, draft)
    except InputError as error:
        raise NoImage(str(error).removeprefix(f"{path}: ")) from None
    except FileNotFoundError:
        raise NoImage("no such file") from None
    except IsADirectoryError:
        raise NoImage("a directory, not a file") from None
    except (OSError, ValueError) as error:
        raise NoImage(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def decode(file: BinaryIO, draft: Draft | None = None) -> Image.Image:
    """The picture in an open file, loaded; the file may be closed afterwards."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InputError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on: truncated images would pass as whole ones; "
            "switch it off"
        )
    try:
        image = Image.open(file, formats=_formats())
        width, height = image.size
        most = Image.MAX_IMAGE_PIXELS or math.inf
        if width * height > most:  # PIL only warns up to twice its limit
            raise NoImage(f"too large: {width} × {height} pixels, at most {most} are decoded")
        if image.format == "PNG":
            _check_png(file)
        if draft is not None and image.format == "JPEG":
            image.draft(None, draft(width, height))
        image.load()
        return image.copy() if image.format in _FRAMES_FROM_FILE else image
    except UnidentifiedImageError:
        file.seek(0)
        what = "not an image of a known format" if file.read(1) else "an empty file"
        raise NoImage(what) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise NoImage(f"too large: {brief(error)}") from None
    except _CANNOT as error:
        raise NoImage(f"damaged: {brief(error)}") from None


@cache
def _formats() -> tuple[str, ...]:
    """The formats that this PIL was built with."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _check_png(file: BinaryIO) -> None:
    """PIL does not compare the checksums of the pixels' chunks."""
    here = file.tell()
    file.seek(8)
    while len(head := file.read(8)) == 8:
        size, kind = int.from_bytes(head[:4], "big"), head[4:]
        data = file.read(size)
        checksum = file.read(4)
        if len(checksum) < 4:
            break  # truncated: left to PIL, which may have all the pixels
        if kind == b"IDAT" and zlib.crc32(data, zlib.crc32(kind)) != int.from_bytes(
            checksum, "big"
        ):
            raise NoImage("damaged: a checksum of the PNG file is wrong")
    file.seek(here)
