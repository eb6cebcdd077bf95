"""Image folders: a sub-directory per class, as ImageNet's and torchvision's.

Classes are the sub-directories, sorted; where all are called by numbers, in the order of the
numbers (ImageNetV2's 0 … 999 sorted as text would be the wrong labels). An empty sub-directory
stays a class, so that no label shifts. Hidden files are passed over; other files that are no
images are noted.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from shiftbed.errors import InputError
from shiftbed.evaluation.data.files import FileImages, printable
from shiftbed.evaluation.data.images import EXTENSIONS
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, some

_NOTED = 20


def read_folder(path: Path, options: Options) -> RawExamples:
    """The images of a folder in the order of classes' and files' names."""
    directories, loose = _children(path)
    if not directories and not options.unlabelled:
        seen = "images but no sub-directories" if _pictures(loose) else "no sub-directories"
        raise InputError(
            f"{path}: has {seen}; expected one sub-directory of images per class "
            "(or unlabelled=True, or a CSV manifest with path and label)"
        )
    notes, names = [], []
    classes = tuple(sorted(directories, key=_class_order(directories)))
    for name in sorted(directories):
        inside = [os.path.join(name, one) for one in _walk(path / name)]
        names += _pictures(inside)
        loose += [one for one in inside if not _is_picture(one)]
        if not _pictures(inside):
            notes.append(f"class {name!r} has no images")
    if options.unlabelled:
        names += _pictures(loose)
        loose = [one for one in loose if not _is_picture(one)]
    if loose:
        notes.append(f"not used, no images of a class: {some(sorted(loose), _NOTED)}")
    if not names:
        raise InputError(
            f"{path}: no images in its {len(directories)} sub-directories; expected files ending "
            f"in {', '.join(sorted(EXTENSIONS))}"
        )
    names.sort(key=lambda name: name.split(os.sep))
    examples = printable(names)
    same = tuple(names) == examples
    return RawExamples(
        where=str(path),
        examples=examples,
        images=FileImages(str(path.absolute()), examples if same else tuple(names)),
        labels=None if options.unlabelled else [name.split(os.sep)[0] for name in names],
        classes=None if options.unlabelled else classes,
        notes=tuple(notes),
        by_name=True,
    )


def _class_order(names: list[str]) -> "type[str] | type[int]":
    """Numbers are sorted as numbers."""
    return int if all(name.isascii() and name.isdecimal() for name in names) else str


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def _pictures(names: list[str]) -> list[str]:
    return [name for name in names if _is_picture(name)]


def _children(path: Path) -> tuple[list[str], list[str]]:
    """Names of sub-directories and of files that are not hidden."""
    directories: list[str] = []
    rest: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (directories if entry.is_dir() else rest).append(entry.name)
    except OSError as error:
        raise InputError(f"{path}: cannot be listed: {error.strerror}") from None
    return directories, rest


def _walk(path: Path, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    """Files below a directory, relative to it; links are followed, but never in a circle."""
    stat = path.stat()
    here = (stat.st_dev, stat.st_ino)
    if here in above:
        return
    directories, names = _children(path)
    yield from names
    for name in directories:
        for one in _walk(path / name, above | {here}):
            yield os.path.join(name, one)
