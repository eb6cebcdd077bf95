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
    file_in,
    inner_folder,
    named_folders,
    needed_file,
    pick,
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
    seen = None
    if file_in(path, ["test_batch"], ("", "cifar-10-batches-py")) is not None:
        seen = "only the Python version, whose pickles are not read: they can run code"
    return _folders(entry, path, seen)


def _folders(entry: TestSetEntry, path: Path, seen: str | None = None) -> RawExamples:
    """A folder per class."""
    folder = inner_folder(path, ("", "test"), _NUMBERS.__contains__)
    if folder is None:
        raise wrong_layout(entry, path, seen)
    return named_folders(entry, folder, _NUMBERS, CIFAR_CLASSES)


def _binary(path: Path) -> RawExamples:
    size = path.stat().st_size
    count, rest = divmod(size, _RECORD.itemsize)
    if rest or not count:
        each = _RECORD.itemsize
        raise InputError(f"{path}: {size} bytes, expected a multiple of {each} per image")
    records = np.memmap(path, dtype=_RECORD, mode="r")
    pixels, labels = records["pixels"], records["label"]
    return _in_array(str(path), pixels, "NCHW", "(3, 32, 32)", labels, CIFAR_CLASSES)


def _in_array(
    where: str,
    pixels: NDArray[np.uint8],
    layout: str,
    form: str,
    labels: NDArray[Any],
    classes: tuple[str, ...],
) -> RawExamples:
    rows = np.arange(len(pixels))
    return RawExamples(
        where=where,
        examples=numbered(len(pixels)),
        images=ArrayImages(source=pixels, layout=layout, rows=rows, form=form),
        labels=labels.astype(np.int64),
        classes=classes,
    )


def read_cifar_1(entry: TestSetEntry, path: Path) -> RawExamples:
    """CIFAR-10.1: two arrays per version."""
    version = "v4" if entry.base.endswith("v4") else "v6"
    names = [f"cifar10.1_{version}_{what}.npy" for what in ("data", "labels")]
    return _data_and_labels(entry, path, names, ("", "datasets"))


def _data_and_labels(
    entry: TestSetEntry, path: Path, names: list[str], within: tuple[str, ...]
) -> RawExamples:
    data, labels = (needed_file(entry, path, [name], within) for name in names)
    return replace(read_arrays(data, None, Options(labels=labels)), classes=CIFAR_CLASSES)


def read_cifar_2(entry: TestSetEntry, path: Path) -> RawExamples:
    """CIFAR-10.2: one file of arrays, some of which are Python objects and left alone."""
    file = path if path.suffix == ".npz" else file_in(path, ["cifar102_test.npz"])
    if file is None or not file.is_file():
        raise wrong_layout(entry, path)
    options = Options(image_column="images", label_column="labels")
    return replace(read_arrays(file, None, options), classes=CIFAR_CLASSES)


def read_cifar_c(entry: TestSetEntry, path: Path) -> RawExamples:
    """One severity of one corruption: a fifth of an array, the first for severity 1."""
    name, _, severity = str(entry.part).rpartition("-")
    found = _data_and_labels(entry, path, [f"{name}.npy", "labels.npy"], ("", "CIFAR-10-C"))
    images = len(found.examples)
    count, rest = divmod(images, SEVERITIES)
    if rest:
        raise InputError(f"{found.where}: {images} images, expected five severities of as many")
    start = (int(severity) - 1) * count
    return pick(found, range(start, start + count))


def read_cinic(entry: TestSetEntry, path: Path) -> RawExamples:
    """A folder per class; groups are ``cifar10`` and ``imagenet``, where the image is from."""
    found = _folders(entry, path)
    origins, strange = [], []
    for example in found.examples:
        name, file = example.partition("/")[0], example.rpartition("/")[2]
        ours, synset = file.startswith("cifar10"), file.partition("_")[0]
        origins.append("cifar10" if ours else "imagenet")
        if not ours and synset not in cinic_synsets()[name]:
            strange.append(f"{name}/{synset}")
    notes = list(found.notes)
    if strange:
        counted = [f"{one} ({n})" for one, n in Counter(strange).most_common()]
        notes.append(f"not of the synsets CINIC-10 lists for the class: {some(counted, 3)}")
    return replace(found, groups=origins, notes=tuple(notes))


_IDX = {
    "train": ("train-{}-idx{}-ubyte", "train-{}.idx{}-ubyte"),
    "test": ("t10k-{}-idx{}-ubyte", "t10k-{}.idx{}-ubyte"),
}
_IN = ("", "raw", "MNIST/raw")


def read_digits(entry: TestSetEntry, path: Path | None) -> RawExamples:
    """One of the three; the test split of USPS and MNIST unless another is asked for."""
    if entry.part == "sklearn":
        if path is not None or entry.split is not None:
            raise InputError(
                f"{entry.name}: comes whole with scikit-learn; write digits/sklearn@, nothing more"
            )
        where, (pixels, own) = "scikit-learn's digits", sklearn_digits()
        return _in_array(where, pixels, "NHW", "", own, domain_classes("digits"))
    if path is None:
        raise InputError(f"{entry.name}@: a file or directory must follow the @; {entry.tree}")
    split = entry.split or "test"
    file = path if path.suffix == ".npz" else file_in(path, ["digits.npz", f"{entry.part}.npz"])
    if file is not None and file.is_file():
        return _arrays(entry, file, split)
    if entry.part == "mnist":
        images = file_in(path, [one.format("images", 3) for one in _IDX[split]], _IN)
        labels = file_in(path, [one.format("labels", 1) for one in _IDX[split]], _IN)
        if images is not None and labels is not None:
            return _idx(images, labels)
    raise wrong_layout(entry, path)


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
    pixels = np.memmap(images, np.uint8, "r", offset=16, shape=(count, height, width))
    form, classes = f"({height}, {width})", domain_classes("digits")
    return _in_array(str(images), pixels, "NHW", form, own, classes)


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
