"""One part of a tree of corrupted images: a few source images, corrupted in every way."""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.corrupted_trees import MANIFEST
from shiftbed.evaluation.data import TestSet, UnreadableImage
from shiftbed.evaluation.image_batches import eight_bits
from shiftbed.evaluation.perturbations import Corrupting, parse_perturbation
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.preprocessing import Preprocessing, as_picture

FORMATS = ("jpeg", "png")


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """How a tree is made; everything here is in its manifest and must stay the same in it."""

    size: int | None = 224
    """Side of the images; None: pictures keep their own size."""
    resize: int | None = None
    """Shorter side before the crop; None: ⌊256/224 · size⌋."""
    format: str = "jpeg"
    quality: int = 85
    seed: int = 0
    frost: str | None = None
    """A folder of frost pictures, instead of synthesized frost."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise unknown("image format", self.format, FORMATS)
        if not 1 <= self.quality <= 100:
            raise InputError(f"JPEG quality must be 1 to 100, got {self.quality}")
        if self.size is None and self.resize is not None:
            raise InputError("pictures that keep their size are not resized")
        if self.size is not None and self.resize is None:
            object.__setattr__(self, "resize", self.size * 256 // 224)

    def describe(self) -> dict[str, Any]:
        """What the bytes depend on; the frost folder by its contents."""
        about = asdict(self) | {"interpolation": "bilinear", "mode": "RGB"}
        if self.format == "png":
            del about["quality"]
        about["frost"] = parse_perturbation("frost:1", frost=self.frost).record.details["frost"]
        return about


@dataclass(frozen=True, kw_only=True)
class Made:
    """What came of it."""

    written: int = 0
    """Files made in this run."""
    kept: int = 0
    """Files that were there, as their manifest says."""
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A few source images, to be corrupted in every way."""

    root: str
    start: int
    test_set: TestSet
    paths: tuple[str, ...]
    names: tuple[str, ...]
    options: TreeOptions

    @property
    def manifest(self) -> Path:
        stop = self.start + len(self.paths)
        return Path(self.root, MANIFEST, f"part-{self.start:010d}-{stop:010d}.json")


def make(part: Part) -> Made:
    """Make the files of a part that are not there as its manifest says, then its manifest."""
    known = _known(part)
    todo: dict[str, list[int]] = {}
    kept = 0
    for name in part.names:
        for row, path in enumerate(part.paths):
            file = f"{folder_of(name)}/{path}"
            if _verified(part.root, file, known.get(file)):
                kept += 1
            else:
                todo.setdefault(name, []).append(row)
    rows = sorted({row for wanted in todo.values() for row in wanted})
    pictures, unreadable = _pictures(part, rows)
    made = {}
    for name, wanted in todo.items():
        for row, data in _corrupted(
            part, name, [row for row in wanted if row in pictures], pictures
        ):
            file = f"{folder_of(name)}/{part.paths[row]}"
            with write_atomically(Path(part.root, file)) as handle:
                handle.write(data)
            made[file] = {
                "source": part.test_set.examples[row],
                "sha256": hashlib.sha256(data).hexdigest(),
                "bytes": len(data),
            }
    if made:
        write_json(part.manifest, known | made)
    return Made(written=len(made), kept=kept, unreadable=unreadable)


def _known(part: Part) -> dict[str, Any]:
    try:
        found = json.loads(part.manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or damaged: then nothing is verified
        return {}
    return found if isinstance(found, dict) else {}


def _verified(root: str, file: str, entry: Mapping[str, Any] | None) -> bool:
    """Whether a file is there, byte for byte as the manifest says."""
    if not isinstance(entry, dict):
        return False
    path = os.path.join(root, file)
    try:
        if os.path.getsize(path) != entry.get("bytes"):
            return False
        with open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == entry.get("sha256")
    except OSError:
        return False


def _pictures(part: Part, rows: list[int]) -> tuple[dict[int, NDArray[np.uint8]], tuple[str, ...]]:
    """(H, W, 3) of every row that can be read, and the others with their reason."""
    size, resize = part.options.size, part.options.resize
    pixels: dict[int, NDArray[np.uint8]] = {}
    unreadable = []
    for row in rows:
        try:
            picture = part.test_set.load(row)
        except UnreadableImage as error:
            unreadable.append(f"{error.example}: {error.reason}")
            continue
        if size is None:
            pixels[row] = np.asarray(as_picture(picture, "RGB"))
        else:
            pixels[row] = Preprocessing(size=(size, size), resize=resize).pixels(picture)
    return pixels, tuple(unreadable)


def _corrupted(
    part: Part, name: str, rows: list[int], pictures: Mapping[int, NDArray[np.uint8]]
) -> Iterator[tuple[int, bytes]]:
    """The encoded images of some rows; those of one shape go together."""
    corrupt = parsed(name, part.options).corrupt
    shapes: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        shapes.setdefault(pictures[row].shape, []).append(row)
    for some in shapes.values():
        levels = np.stack([pictures[row] for row in some])
        ids = [part.test_set.examples[row] for row in some]
        for row, image in zip(some, eight_bits(corrupt(pixels_to_float(levels), ids)), strict=True):
            yield row, _encoded(image, part.options)


def parsed(name: str, options: TreeOptions) -> Corrupting:
    """The corruption of that name under the tree's seed and frost."""
    frost = {"frost": options.frost} if name.partition(":")[0] == "frost" else {}
    found = parse_perturbation(name, seed=options.seed, **frost)
    if not isinstance(found, Corrupting):
        raise InputError(f"{name!r} is no corruption, and cannot be written to disk")
    return found


def _encoded(image: NDArray[np.uint8], options: TreeOptions) -> bytes:
    buffer = io.BytesIO()
    picture = Image.fromarray(image)
    if options.format == "png":
        picture.save(buffer, format="PNG")
    else:
        picture.save(buffer, format="JPEG", quality=options.quality, optimize=True)
    return buffer.getvalue()


def safe(piece: str) -> str:
    """A name that is no path: nothing but letters, digits, and a few signs inside."""
    plain = re.sub(r"[^\w.,=@+\- ]", "_", piece)
    return plain if plain.strip(". ") else plain.replace(".", "_").replace(" ", "_") or "_"


def folder_of(name: str) -> str:
    """NAME/SEVERITY of ``NAME:SEVERITY``."""
    head, _, severity = name.rpartition(":")
    return f"{safe(head)}/{severity}"


def write_json(path: Path, value: Any) -> None:
    with write_atomically(path) as file:
        file.write(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).encode())
