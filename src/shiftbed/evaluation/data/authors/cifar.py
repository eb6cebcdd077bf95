"""CIFAR-10 and the sets with its classes.

CIFAR-10's Python version is pickled, and reading a pickle can run code that is in it; the binary
version of the same images is read instead.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.maps import cinic_synsets
from shiftbed.catalogue.test_sets import CIFAR_CLASSES, SEVERITIES
from shiftbed.errors import InputError
from shiftbed.evaluation.data.arrays import read_arrays
from shiftbed.evaluation.data.authors.common import (
    directories,
    file_in,
    named_folders,
    pick,
    seen_in,
    wrong_layout,
)
from shiftbed.evaluation.data.authors.records import RecordImages
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, some

_RECORD = 1 + 3 * 32 * 32
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
    count, rest = divmod(size, _RECORD)
    if rest or not count:
        raise InputError(f"{path}: {size} bytes, expected a multiple of {_RECORD} per image")
    labels = np.memmap(path, dtype=np.uint8, mode="r", shape=(count, _RECORD))[:, 0]
    digits = len(str(count - 1))
    return RawExamples(
        where=str(path),
        examples=tuple(f"{row:0{digits}d}" for row in range(count)),
        images=RecordImages(str(path.absolute()), 0, _RECORD, (3, 32, 32), np.arange(count)),
        labels=labels.astype(np.int64),
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
