"""Handwritten digits from three places: USPS, MNIST, and the UCI digits of scikit-learn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.maps import domain_classes
from shiftbed.errors import InputError
from shiftbed.evaluation.data.arrays import array_names, read_arrays
from shiftbed.evaluation.data.authors.common import file_in, seen_in, wrong_layout
from shiftbed.evaluation.data.authors.records import LibraryDigits, RecordImages, sklearn_digits
from shiftbed.evaluation.data.raw_examples import Options, RawExamples

_IDX = {"train": "train", "test": "t10k"}
_IN = ("", "raw", "MNIST/raw")


def read_digits(entry: TestSetEntry, path: Path | None) -> RawExamples:
    """One of the three; the test split of USPS and MNIST unless another is asked for."""
    if entry.part == "sklearn":
        return _sklearn(entry, path)
    if path is None:
        raise InputError(f"{entry.name}@: a file or directory must follow the @; {entry.tree}")
    split = entry.split or "test"
    file = path if path.suffix == ".npz" else file_in(path, ["digits.npz", f"{entry.part}.npz"])
    if file is not None and file.is_file():
        return _arrays(entry, file, split)
    if entry.part == "mnist":
        images = file_in(path, _named(split, "images-idx3-ubyte", "images.idx3-ubyte"), _IN)
        labels = file_in(path, _named(split, "labels-idx1-ubyte", "labels.idx1-ubyte"), _IN)
        if images is not None and labels is not None:
            return _idx(images, labels)
    raise wrong_layout(entry, path, seen_in(path))


def _named(split: str, *ends: str) -> list[str]:
    return [f"{_IDX[split]}-{end}" for end in ends]


def _sklearn(entry: TestSetEntry, path: Path | None) -> RawExamples:
    if path is not None or entry.split is not None:
        raise InputError(
            f"{entry.name}: comes whole with scikit-learn; write digits/sklearn@ and nothing more"
        )
    pixels, labels = sklearn_digits()
    return RawExamples(
        where="scikit-learn's digits",
        examples=tuple(f"{row:04d}" for row in range(len(pixels))),
        images=LibraryDigits(np.arange(len(pixels))),
        labels=labels,
        classes=domain_classes("digits"),
    )


def _arrays(entry: TestSetEntry, path: Path, split: str) -> RawExamples:
    names = array_names(path)
    for prefix in (f"{entry.part}_{split}", str(entry.part)):
        if f"{prefix}_images" in names:
            return replace(read_arrays(path, prefix, Options()), classes=domain_classes("digits"))
    raise wrong_layout(entry, path, f"there is no array {entry.part}_{split}_images")


def _idx(images: Path, labels: Path) -> RawExamples:
    """IDX files: a magic number, the sizes, then bytes."""
    count, height, width = _header(images, 3)
    if _header(labels, 1) != [count]:
        raise InputError(f"{labels}: expected a label for each of the {count} images")
    own: NDArray[np.uint8] = np.fromfile(labels, dtype=np.uint8, offset=8)
    return RawExamples(
        where=str(images),
        examples=tuple(f"{row:0{len(str(count - 1))}d}" for row in range(count)),
        images=RecordImages(
            str(images.absolute()), 16, height * width, (height, width), np.arange(count)
        ),
        labels=own.astype(np.int64),
        classes=domain_classes("digits"),
    )


def _header(path: Path, dimensions: int) -> list[int]:
    length = 4 * (dimensions + 1)
    with path.open("rb") as file:
        head = file.read(length)
    if len(head) < length or head[:4] != bytes([0, 0, 8, dimensions]):
        raise InputError(f"{path}: not an IDX file of bytes with {dimensions} dimensions")
    sizes = [int.from_bytes(head[4 * at : 4 * at + 4], "big") for at in range(1, dimensions + 1)]
    if path.stat().st_size != length + int(np.prod(sizes, dtype=object)) or 0 in sizes:
        raise InputError(f"{path}: {path.stat().st_size} bytes do not fit its sizes {sizes}")
    return sizes
