"""What the readers of authors' layouts share: finding directories, and saying what was expected."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.errors import InputError
from shiftbed.evaluation.data.image_files import FileImages, read_folder
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, shown, some
from shiftbed.reading.files import read_text, regular

TEXT_LIMIT = 2**30
"""The most bytes of a list or table of labels that are read."""


def directories(path: Path) -> list[str]:
    """Names of the sub-directories that are not hidden, sorted."""
    try:
        with os.scandir(path) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError:
        return []


def wrong_layout(entry: TestSetEntry, path: Path, seen: str | None = None) -> InputError:
    """What was found where, and what was expected."""
    what = seen_in(path) if seen is None else seen
    return InputError(f"{path}: not {entry.title} ({entry.name}): {what}; expected {entry.tree}")


def seen_in(path: Path) -> str:
    """What a directory has, in a few words."""
    if not path.exists():
        return "there is no such directory"
    if not path.is_dir():
        return "it is a file"
    folders = directories(path)
    files = sorted(one.name for one in path.iterdir() if one.is_file())
    parts = [f"{len(folders)} folders such as {some(folders, 3)}"] if folders else []
    parts += [f"{len(files)} files such as {some(files, 3)}"] if files else []
    return "it has " + " and ".join(parts) if parts else "it is empty"


def file_in(path: Path, names: Sequence[str], within: Sequence[str] = ("",)) -> Path | None:
    """The first of these files that is there, in ``path`` or in one of its folders ``within``."""
    for folder in within:
        for name in names:
            if (path / folder / name).is_file():
                return path / folder / name
    return None


def needed_file(
    entry: TestSetEntry, path: Path, names: Sequence[str], within: Sequence[str] = ("",)
) -> Path:
    """``file_in``, or the error that says that there is none of them."""
    found = file_in(path, names, within)
    if found is None:
        raise wrong_layout(entry, path, f"there is no {' or '.join(names)}, {seen_in(path)}")
    return found


def inner_folder(path: Path, within: Sequence[str], fits: Callable[[str], object]) -> Path | None:
    """The first of the folders ``within`` with a sub-directory whose name fits."""
    every = (path / inner for inner in within)
    return next((one for one in every if any(map(fits, directories(one)))), None)


def text_of(path: Path) -> str:
    """A text file, within limits."""
    if regular(path).stat().st_size > TEXT_LIMIT:
        raise InputError(f"{path}: larger than {TEXT_LIMIT // 2**20} MiB")
    return read_text(path)


def listed(entry: TestSetEntry, root: Path, names: Sequence[Any]) -> tuple[FileImages, list[str]]:
    """Images that a list names, and in words how many of them are not there."""
    for one in names:
        if one is None or one.startswith("/") or ".." in one.split("/"):
            raise InputError(f"{root}: image {shown(one)} of its list is not below the directory")
    missing = [one for one in names if not (root / one).is_file()]
    if len(missing) == len(names):
        raise wrong_layout(entry, root, f"none of {some(names, 2)} is there, {seen_in(root)}")
    words = f"{len(missing)} of {len(names)} images are not there: {some(missing)}"
    return FileImages(str(root.absolute()), tuple(names)), [words] if missing else []


def named_folders(
    entry: TestSetEntry,
    path: Path,
    numbers: dict[str, int],
    classes: tuple[str, ...],
    wanted: Collection[int] | None = None,
) -> RawExamples:
    """Images in a folder per class; ``numbers`` has the label of each folder that may be there.

    Folders that are missing (of the classes ``wanted``, or of all) are noted, not numbered around:
    labels never shift.
    """
    there = directories(path)
    strange = [name for name in there if name not in numbers]
    if not there or strange:
        what = f"folder {some(strange, 2)} is none of its classes" if strange else seen_in(path)
        raise wrong_layout(entry, path, what)
    found = read_folder(path, Options())
    needed = set(numbers.values() if wanted is None else wanted)
    missing = sorted(needed - {numbers[name] for name in there})
    absent = some([classes[label] for label in missing])
    words = f"{len(missing)} of {len(needed)} classes have no folder: {absent}"
    folder = [] if found.labels is None else found.labels
    labels = np.array([numbers[str(name)] for name in folder], dtype=np.int64)
    return replace(found, labels=labels, classes=classes, missing=(words,) if missing else ())


def numbers_of(found: RawExamples) -> NDArray[np.int64]:
    """The labels of a set whose labels are numbers."""
    return np.asarray([] if found.labels is None else found.labels, dtype=np.int64)


def pick(found: RawExamples, rows: Sequence[int] | NDArray[np.int64]) -> RawExamples:
    """Only these rows."""
    chosen = np.asarray(rows, dtype=np.int64)
    labels, groups = found.labels, found.groups
    return replace(
        found,
        examples=tuple(found.examples[row] for row in chosen),
        images=found.images.take(chosen),
        labels=None if labels is None else [labels[row] for row in chosen],
        groups=None if groups is None else [groups[row] for row in chosen],
    )
