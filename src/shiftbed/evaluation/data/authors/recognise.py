"""What is in a directory: which test sets of the catalogue, whether they are whole.

Every directory down to a few levels is looked at by the names in it alone. What is recognised is
then opened by its reader, so that what is called complete does load.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shiftbed.catalogue import TestSetEntry, entries, find, look_up, tasks
from shiftbed.catalogue.maps import imagenet_synsets, indices, objectnet_folders
from shiftbed.catalogue.test_sets import CIFAR_CLASSES, CORRUPTIONS
from shiftbed.errors import InputError
from shiftbed.evaluation.data.authors import examine
from shiftbed.evaluation.data.authors.common import directories
from shiftbed.reading.files import regular

DEPTH = 4
MOST = 20_000
"""Directories that are looked at."""
_SYNSET = re.compile(r"n\d{8}")
_WILDS = {
    "camelyon17": ("metadata.csv", "tumor"),
    "fmow": ("rgb_metadata.csv", "country_code"),
    "iwildcam": ("metadata.csv", "location_remapped"),
    "rxrx1": ("metadata.csv", "sirna_id"),
}
"""The table of a WILDS set, and a column that only it has."""
_FILES = (
    ({"real.json"}, ("imagenet-real",)),
    ({"labels.json", "pmsets.json"}, ("imagenet-vid-robust", "imagenet-vid-robust/frames")),
    ({"anchor_labels.json"}, ("ytbb-robust",)),
    ({"anchor_labels.json", "pmk_labels.json"}, ("ytbb-robust/frames",)),
    ({"test_batch.bin"}, ("cifar-10",)),
    ({"test_batch", "batches.meta"}, ("cifar-10",)),
    ({"cifar10.1_v4_data.npy"}, ("cifar-10.1-v4",)),
    ({"cifar10.1_v6_data.npy"}, ("cifar-10.1",)),
    ({"cifar102_test.npz"}, ("cifar-10.2",)),
    ({"t10k-images-idx3-ubyte"}, ("digits/mnist",)),
    ({"t10k-images.idx3-ubyte"}, ("digits/mnist",)),
    ({"digits.npz"}, ("digits/usps", "digits/mnist")),
    *(
        ({f"{name}.npy", "labels.npy"}, tuple(f"cifar-10-c/{name}-{at}" for at in range(1, 6)))
        for name in CORRUPTIONS
    ),
)
"""Files by whose names sets are known, and these sets."""


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """A test set of the catalogue that is in a directory, or part of it."""

    name: str
    where: str
    """The directory to write after ``NAME@``."""
    complete: bool
    images: int
    expected: int | None
    """How many are published; None if that is not known."""
    missing: tuple[str, ...] = ()
    """What is not there or differs, in words."""

    @property
    def spec(self) -> str:
        """As it is written for ``eval`` or a testbed.toml."""
        return f"{self.name}@{self.where}"


def recognise(root: Path) -> list[Recognised]:
    """Every test set of the catalogue in a directory."""
    if not root.is_dir():
        raise InputError(f"{root}: no such directory")
    found: dict[str, Recognised] = {}
    for name, where in _candidates(root):
        one = _examined(name, where)
        old = found.get(name)
        if old is None or (one.images, one.complete) > (old.images, old.complete):
            found[name] = one
    order = [entry.name for entry in entries()]
    return sorted(
        found.values(),
        key=lambda one: (order.index(one.name) if one.name in order else len(order), one.name),
    )


def gaps(found: Sequence[Recognised]) -> list[str]:
    """Parts of a set that are not there though others are: domains, corruptions."""
    there = {one.name for one in found}
    words = []
    for task in tasks():
        own = [f"{task.name}/{domain.name}" for domain in task.domains]
        absent = [name for name in own if name not in there and name != "digits/sklearn"]
        if absent and len(absent) < len(own) and there & set(own):
            words.append(f"{task.title}: not there {', '.join(absent)}; expected {task.tree}")
    for name in ("imagenet-c", "cifar-10-c"):
        entry = look_up(name)
        assert isinstance(entry, TestSetEntry)
        parts = [part for part in entry.parts if f"{name}/{part}" not in there]
        if parts and len(parts) < len(entry.parts):
            listed = ", ".join(parts[:5]) + (", …" if len(parts) > 5 else "")
            words.append(
                f"{entry.title}: {len(parts)} of {len(entry.parts)} parts not there ({listed}); "
                f"expected {entry.tree}"
            )
    return words


def _examined(name: str, where: Path) -> Recognised:
    images, missing = 0, tuple[str, ...]()
    try:
        seen = examine(name, str(where))
        images, missing = len(seen.test_set), (*seen.missing, *seen.differs)
    except InputError as error:
        missing = (str(error).removeprefix(f"{where}: "),)
    return Recognised(
        name=name,
        where=str(where),
        complete=not missing,
        images=images,
        expected=find(name).images,
        missing=missing,
    )


def _candidates(root: Path) -> Iterator[tuple[str, Path]]:
    """(name in the catalogue, directory) by names alone; classes' own folders are not entered."""
    waiting = [(root, 0)]
    looked = 0
    while waiting and looked < MOST:
        path, depth = waiting.pop()
        looked += 1
        folders = directories(path)
        try:
            files = {one.name for one in os.scandir(path) if one.is_file()}
        except OSError:
            continue
        whole = list(_here(path, folders, files))
        yield from whole
        if depth < DEPTH and not any(_SYNSET.fullmatch(name) for name in folders):
            done = {"val"} if any(name.startswith("imagenet-vid") for name, _ in whole) else set()
            done |= _classes(path, folders)
            waiting += [(path / name, depth + 1) for name in folders if name not in done]


def _classes(path: Path, folders: list[str]) -> set[str]:
    """Folders that hold images of one class, of ObjectNet or of a numbered set."""
    numbered = {name for name in folders if name.isdecimal()}
    corrupted = path.name in CORRUPTIONS
    objects = {name for name in folders if name in objectnet_folders()}
    return (set() if corrupted else numbered) | (objects if len(objects) > 2 else set())


def _here(path: Path, folders: list[str], files: set[str]) -> Iterator[tuple[str, Path]]:
    """What a directory with these names is."""
    synsets = set(folders) & set(imagenet_synsets())
    if synsets:
        yield from _with_synsets(path, synsets)
    elif any(name.startswith("ILSVRC2012_val_") for name in files):
        yield "imagenet", path
    numbers = {name for name in folders if name.isdecimal() and int(name) < 1000}
    if len(numbers) > 20 or (numbers and "imagenetv2" in path.name):
        yield _v2(path.name), path
    if len(set(folders) & objectnet_folders().keys()) > 2:
        yield "objectnet", path
    outer = path.parent if "metadata" in path.name else path
    for needed, names in _FILES:
        if needed <= files:
            yield from ((name, outer if "robust" in name else path) for name in names)
    if len(set(folders) & set(CIFAR_CLASSES)) > 5 and path.name not in ("train", "valid"):
        first = sorted(one.name for one in os.scandir(path / CIFAR_CLASSES[0]))[:1]
        cinic = first and (first[0].startswith("cifar10") or _SYNSET.match(first[0]))
        yield ("cinic-10" if cinic else "cifar-10"), path
    for task in tasks():
        there = [d for d in task.domains if set(d.folders) & set(folders)]
        if task.layout == "domains" and 2 * len(there) >= len(task.domains):
            yield from ((f"{task.name}/{domain.name}", path) for domain in there)
    for name, (file, column) in _WILDS.items():
        if file in files and column in _header(path / file):
            yield from ((f"{name}/{part}", path) for part in ("id", "ood"))


def _with_synsets(path: Path, synsets: set[str]) -> Iterator[tuple[str, Path]]:
    """Which of the sets with a folder per synset: by its name, its files, its classes."""
    if path.name.isdecimal() and path.parent.name in CORRUPTIONS:
        yield f"imagenet-c/{path.parent.name}-{path.name}", path.parent.parent
        return
    named = f"{path.parent.name}/{path.name}".lower()
    first = sorted(one.name for one in os.scandir(path / min(synsets)))[:1]
    if "styl" in named:
        yield "stylized-imagenet", path
    elif first and first[0].startswith("ILSVRC2012_val_"):
        yield "imagenet", path
    elif first and re.fullmatch(r"sketch_\d+\.JPEG", first[0]):
        yield "imagenet-sketch", path
    else:
        likely = {}
        for name in ("imagenet-a", "imagenet-r"):
            own = {imagenet_synsets()[index] for index in indices(name)}
            shared = len(own & synsets) / len(own | synsets)
            likely[name] = shared + (path.name.lower() == name)
        best = max(likely, key=lambda name: likely[name])
        if likely[best] > 0.5:
            yield best, path


def _v2(name: str) -> str:
    """ImageNetV2's variant by the name of its directory; the usual one if that does not tell."""
    variant = "imagenet-v2"
    if "threshold" in name:
        variant += "-threshold-0.7"
    elif "top" in name:
        variant += "-top-images"
    original = "imagenetv2" in name and "format-val" not in name
    return variant + ("-original" if original else "")


def _header(path: Path) -> list[str]:
    """The columns of a table."""
    with regular(path).open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline(100_000).strip().split(",")
