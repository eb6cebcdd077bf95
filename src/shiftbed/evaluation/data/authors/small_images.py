"""CIFAR-10 and the sets with its classes; digits of USPS, MNIST and scikit-learn (UCI).

CIFAR-10's Python version is pickled, and reading a pickle can run code that is in it; the binary
version of the same images is read instead.
"""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.maps import cinic_synsets, domain_classes
from shiftbed.catalogue.test_sets import CIFAR_CLASSES, SEVERITIES
from shiftbed.errors import InputError
from shiftbed.evaluation.data.arrays import ArrayImages, array_names, read_arrays
from shiftbed.evaluation.data.authors.common import (
    directories,
    file_in,
    named_folders,
    pick,
    seen_in,
    wrong_layout,
)
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, numbered, some

_RECORD = np.dtype([("label", "u1"), ("pixels", "u1", (3, 32, 32))])
"""A label and the red, green and blue pixels."""
_NUMBERS = {name: at for at, name in enumerate(CIFAR_CLASSES)}


def read_cifar(entry: TestSetEntry, path: Path) -> RawExamples:
    """The test set: the binary version, or a folder per class."""
    binary = file_in(path, ["test_batch.bin"], ("", "cifar-10-batches-bin"))
    if binary is not None:
        return _binary(binary)
    for inner in ("", "test"):
        if set(directories(path / inner)) & set(CIFAR_CLASSES):
            return named_folders(entry, path / inner, _NUMBERS, CIFAR_CLASSES)
    if file_in(path, ["test_batch"], ("", "cifar-10-batches-py")) is not None:
        raise wrong_layout(
            entry, path, "only the Python version, whose pickles are not read: they can run code"
        )
    raise wrong_layout(entry, path, seen_in(path))


def _binary(path: Path) -> RawExamples:
    size = path.stat().st_size
    count, rest = divmod(size, _RECORD.itemsize)
    if rest or not count:
        each = _RECORD.itemsize
        raise InputError(f"{path}: {size} bytes, expected a multiple of {each} per image")
    records = np.memmap(path, dtype=_RECORD, mode="r")
    return RawExamples(
        where=str(path),
        examples=numbered(count),
        images=ArrayImages(
            source=records["pixels"],
            layout="NCHW",
            rows=np.arange(count),
            form="(3, 32, 32)",
        ),
        labels=records["label"].astype(np.int64),
        classes=CIFAR_CLASSES,
    )


def read_cifar_1(entry: TestSetEntry, path: Path) -> RawExamples:
    """CIFAR-10.1: two arrays per version."""
    version = "v4" if entry.base.endswith("v4") else "v6"
    name = f"cifar10.1_{version}"
    data = file_in(path, [f"{name}_data.npy"], ("", "datasets"))
    labels = file_in(path, [f"{name}_labels.npy"], ("", "datasets"))
    if data is None or labels is None:
        absent = f"{name}_{'data' if data is None else 'labels'}.npy"
        raise wrong_layout(entry, path, f"there is no {absent}, {seen_in(path)}")
    return replace(read_arrays(data, None, Options(labels=labels)), classes=CIFAR_CLASSES)


def read_cifar_2(entry: TestSetEntry, path: Path) -> RawExamples:
    """CIFAR-10.2: one file of arrays, some of which are Python objects and left alone."""
    file = path if path.suffix == ".npz" else file_in(path, ["cifar102_test.npz"])
    if file is None or not file.is_file():
        raise wrong_layout(entry, path, seen_in(path))
    options = Options(image_column="images", label_column="labels")
    return replace(read_arrays(file, None, options), classes=CIFAR_CLASSES)


def read_cifar_c(entry: TestSetEntry, path: Path) -> RawExamples:
    """One severity of one corruption: a fifth of an array, the first for severity 1."""
    name, _, severity = str(entry.part).rpartition("-")
    within = ("", "CIFAR-10-C")
    data = file_in(path, [f"{name}.npy"], within)
    labels = file_in(path, ["labels.npy"], within)
    if data is None or labels is None:
        absent = f"{name}.npy" if data is None else "labels.npy"
        raise wrong_layout(entry, path, f"there is no {absent}, {seen_in(path)}")
    found = read_arrays(data, None, Options(labels=labels))
    count, rest = divmod(len(found.examples), SEVERITIES)
    if rest:
        raise InputError(
            f"{data}: {len(found.examples)} images, expected five severities of as many each"
        )
    start = (int(severity) - 1) * count
    part = pick(found, range(start, start + count))
    return replace(part, classes=CIFAR_CLASSES)


def read_cinic(entry: TestSetEntry, path: Path) -> RawExamples:
    """A folder per class; groups are ``cifar10`` and ``imagenet``, where the image is from."""
    for inner in ("", "test"):
        if set(directories(path / inner)) & set(CIFAR_CLASSES):
            break
    else:
        raise wrong_layout(entry, path, seen_in(path))
    found = named_folders(entry, path / inner, _NUMBERS, CIFAR_CLASSES)
    origins, strange = [], []
    for example in found.examples:
        name, _, file = example.partition("/")
        ours = file.rpartition("/")[2].startswith("cifar10")
        origins.append("cifar10" if ours else "imagenet")
        synset = file.rpartition("/")[2].partition("_")[0]
        if not ours and synset not in cinic_synsets()[name]:
            strange.append(f"{name}/{synset}")
    notes = list(found.notes)
    if strange:
        counted = [f"{one} ({n})" for one, n in Counter(strange).most_common()]
        notes.append(f"not of the synsets CINIC-10 lists for the class: {some(counted, 3)}")
    return replace(found, groups=origins, notes=tuple(notes))


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
        examples=numbered(len(pixels)),
        images=ArrayImages(source=pixels, layout="NHW", rows=np.arange(len(pixels)), form=""),
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
        examples=numbered(count),
        images=ArrayImages(
            source=np.memmap(images, np.uint8, "r", offset=16, shape=(count, height, width)),
            layout="NHW",
            rows=np.arange(count),
            form=f"({height}, {width})",
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
