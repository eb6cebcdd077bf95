"""ImageNet and the sets with its classes: folders of synsets, folders of numbers, the flat set.

The validation images come flat, as ``ILSVRC2012_val_00000001.JPEG`` …; their labels are then in
``LOC_val_solution.csv`` (Kaggle), ``val.txt`` (Caffe: name and index) or in the development kit,
whose own class numbers ``meta.mat`` translates to synsets. ObjectNet has a folder per object and a
red border around every picture.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.maps import groups, imagenet_synsets, indices, objectnet_folders
from shiftbed.catalogue.test_sets import CORRUPTIONS
from shiftbed.errors import InputError
from shiftbed.evaluation.data.authors.common import (
    directories,
    file_in,
    inner_folder,
    named_folders,
    numbers_of,
    pick,
    seen_in,
    text_of,
    wrong_layout,
)
from shiftbed.evaluation.data.image_files import FileImages, printable
from shiftbed.evaluation.data.images import Draft, Images, NoImage
from shiftbed.evaluation.data.raw_examples import RawExamples, some

_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})\.jpe?g", re.IGNORECASE)
_SYNSET = re.compile(r"n\d{8}")
_DEVKIT = ("", "data", "ILSVRC2012_devkit_t12/data")
_GROUPS = ("", "noise", "blur", "weather", "digital", "extra")
"""ImageNet-C's archives, if each was unpacked to a folder of its own."""


def read_synsets(entry: TestSetEntry, path: Path) -> RawExamples:
    """A folder per synset."""
    within = ("", entry.base, entry.base.removeprefix("imagenet-"), "val")
    folder = inner_folder(path, within, _SYNSET.fullmatch)
    if folder is None:
        raise wrong_layout(entry, path)
    return _synsets(entry, folder)


def _synsets(entry: TestSetEntry, path: Path) -> RawExamples:
    synsets = imagenet_synsets()
    own = indices(entry.base)
    # the 125 classes lie among the whole of ImageNet
    used = range(len(synsets)) if entry.layout == "imagenet" else own
    return named_folders(entry, path, {synsets[at]: at for at in used}, synsets, wanted=own)


def read_numbers(entry: TestSetEntry, path: Path) -> RawExamples:
    """A folder per class number, as ImageNetV2 has them; ``10`` is class 10, not the third."""
    synsets = imagenet_synsets()
    numbers = {str(index): index for index in range(len(synsets))}
    return named_folders(entry, path, numbers, synsets)


def read_corruption(entry: TestSetEntry, path: Path) -> RawExamples:
    """One corruption of one severity: ``NAME/SEVERITY/SYNSET``."""
    name, _, severity = str(entry.part).rpartition("-")
    for group in _GROUPS:
        if (path / group / name / severity).is_dir():
            return _synsets(entry, path / group / name / severity)
    there = [one for group in _GROUPS for one in directories(path / group) if one in CORRUPTIONS]
    seen = f"it has {some(sorted(set(there)), 3)}" if there else seen_in(path)
    raise wrong_layout(entry, path, f"there is no {name}/{severity}, {seen}")


def read_validation(entry: TestSetEntry, path: Path) -> RawExamples:
    """The validation set: folders of synsets, or flat with a list of labels."""
    folder = inner_folder(path, ("", "val"), _SYNSET.fullmatch)
    found = _labelled(entry, path) if folder is None else _synsets(entry, folder)
    if entry.labels != "subset":
        return found
    return pick(found, np.flatnonzero(np.isin(numbers_of(found), indices(entry.base))))


def _labelled(entry: TestSetEntry, path: Path) -> RawExamples:
    """The flat set with the labels of a list in it or beside it."""
    found = _flat(path)
    if found is None:
        raise wrong_layout(entry, path)
    names = found.examples
    labels = _labels(path) or _labels(path / "val") or _labels(path.parent)
    if labels is None:
        raise wrong_layout(entry, path, f"{len(names)} images but no list of their labels")
    without = [name for name in names if _number(name) not in labels]
    if without:
        raise InputError(f"{path}: the list of labels has none for {some(without, 2)}")
    return replace(found, labels=np.array([labels[_number(name)] for name in names], np.int64))


def _flat(path: Path) -> RawExamples | None:
    """The images without folders, if there are any, and without labels."""
    for folder in (path, path / "val"):
        there = folder.iterdir() if folder.is_dir() else ()
        names = sorted(one.name for one in there if _VALIDATION.fullmatch(one.name))
        if names:
            return RawExamples(
                where=str(path),
                examples=printable(names),
                images=FileImages(str(folder.absolute()), tuple(names)),
                labels=None,
                classes=imagenet_synsets(),
            )
    return None


def _number(name: str) -> int:
    """1 for ILSVRC2012_val_00000001.JPEG, 0 for another name."""
    found = _VALIDATION.fullmatch(Path(name).name)
    return int(found[1]) if found else 0


def _labels(path: Path) -> Mapping[int, int] | None:
    """ImageNet index by the number of the image, from the list that is there."""
    for name, within, read in (
        ("LOC_val_solution.csv", ("",), _kaggle),
        ("val.txt", ("",), _caffe),
        ("ILSVRC2012_validation_ground_truth.txt", _DEVKIT, _devkit),
    ):
        file = file_in(path, [name], within)
        if file is not None:
            return read(file)
    return None


@cache
def _indices() -> dict[str, int]:
    return {synset: index for index, synset in enumerate(imagenet_synsets())}


def _kaggle(path: Path) -> dict[int, int]:
    """``ImageId,PredictionString``: a name, then a synset and boxes."""
    at, labels = _indices(), {}
    for line, text in enumerate(text_of(path).splitlines()[1:], 2):
        name, _, rest = text.partition(",")
        synset = rest.split()[0] if rest.split() else ""
        if synset not in at:
            raise InputError(f"{path}, line {line}: expected NAME,SYNSET …, got {text[:60]!r}")
        labels[_number(f"{name}.JPEG")] = at[synset]
    return labels


def _caffe(path: Path) -> dict[int, int]:
    """``ILSVRC2012_val_00000001.JPEG 65``: indices of sorted synsets."""
    labels = {}
    for line, text in enumerate(text_of(path).splitlines(), 1):
        name, _, label = text.strip().rpartition(" ")
        if not name:
            continue
        if not label.isdecimal() or int(label) >= len(imagenet_synsets()):
            raise InputError(f"{path}, line {line}: expected NAME INDEX, got {text[:60]!r}")
        labels[_number(name)] = int(label)
    return labels


def _devkit(path: Path) -> dict[int, int]:
    """The development kit's class numbers, by meta.mat's list of synsets."""
    from scipy.io import loadmat

    meta = path.parent / "meta.mat"
    try:
        read: Any = loadmat(meta, squeeze_me=True)["synsets"]
        own = zip(read["ILSVRC2012_ID"], read["WNID"], strict=True)
        synsets = {int(number): str(synset) for number, synset in own}
    except (OSError, KeyError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        raise InputError(f"{meta}: cannot be read as the kit's list of synsets: {error}") from None
    labels = {}
    for line, text in enumerate(text_of(path).split(), 1):
        index = _indices().get(synsets.get(int(text), "")) if text.isdecimal() else None
        if index is None:
            raise InputError(f"{path}, line {line}: {text!r} is none of ImageNet's class numbers")
        labels[line] = index
    return labels


def read_real(entry: TestSetEntry, path: Path) -> RawExamples:
    """The validation images with ReaL's label sets, by the number in a file's name."""
    beside = file_in(path, ["real.json"]) or file_in(path.parent, ["real.json"])
    if beside is None:
        raise wrong_layout(entry, path, "there is no real.json in it or beside it")
    try:
        sets = json.loads(text_of(beside))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{beside}: not valid JSON: {error}") from None
    if not isinstance(sets, list) or not all(isinstance(one, list) for one in sets):
        raise InputError(f"{beside}: expected a list with a list of labels per image")
    found = _flat(path) or read_validation(replace(entry, layout="imagenet"), path)
    numbers = [_number(name) for name in found.examples]
    odd = [n for n, at in zip(found.examples, numbers, strict=True) if not 0 < at <= len(sets)]
    if odd:
        raise InputError(
            f"{path}: {beside.name} has {len(sets)} entries, none for {some(odd, 2)}; expected "
            "names such as ILSVRC2012_val_00000001.JPEG"
        )
    return replace(found, labels=[sets[at - 1] for at in numbers])


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
        return self.inner.data(row)

    def load(self, row: int, draft: Draft | None = None) -> Image.Image:
        image = self.inner.load(row)  # whole: the border is as wide as it is
        width, height = image.size
        if min(width, height) <= 2 * self.border:
            raise NoImage(f"{width} × {height} pixels: nothing left inside the border")
        return image.crop((self.border, self.border, width - self.border, height - self.border))

    def take(self, rows: NDArray[np.int64]) -> "CroppedImages":
        return replace(self, inner=self.inner.take(rows))

    def digests(self) -> list[bytes]:
        """Of the whole picture and the width of the border: another crop is another set."""
        mark = f"border {self.border}".encode()
        return [hashlib.sha256(mark + own).digest() for own in self.inner.digests()]


def read_objectnet(entry: TestSetEntry, path: Path) -> RawExamples:
    """The images of the 113 objects that are among ImageNet's classes."""
    folders = objectnet_folders()
    place = inner_folder(path, ("", "images", "objectnet-1.0/images"), folders.__contains__)
    if place is None:
        raise wrong_layout(entry, path)
    every = tuple(folders.values())
    whole = named_folders(entry, place, {name: at for at, name in enumerate(folders)}, every)
    classes = tuple(groups("objectnet"))
    label = {every.index(name): at for at, name in enumerate(classes)}
    own = numbers_of(whole).tolist()
    found = pick(whole, [row for row, one in enumerate(own) if one in label])
    if not found.examples:
        raise wrong_layout(entry, path, "none of its folders is one of the 113 objects")
    left = len(own) - len(found.examples)
    there = {folders[name] for name in directories(place)}
    absent = len([name for name in classes if name not in there])
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
        missing=(f"{absent} of {len(classes)} objects have no folder",) if absent else (),
    )
