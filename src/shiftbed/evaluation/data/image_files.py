"""Images that are files of their own: folders, and CSV manifests.

A folder has a sub-directory per class, as ImageNet's and torchvision's. Classes are the
sub-directories, sorted; where all are called by numbers, in the order of the numbers (ImageNetV2's
0 … 999 sorted as text would be the wrong labels). An empty sub-directory stays a class, so that no
label shifts. Hidden files are passed over; other files that are no images are noted.

A manifest has a row per image with ``path`` and ``label``. Paths are relative to it, or to ``root``
if that is given, and must stay below it. The label is a class number or name, empty for none; a
column ``labels`` holds sets, separated by blanks. Files that are missing count as unreadable
images, not as errors of the manifest.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data.images import EXTENSIONS, Draft, Images, NoImage, decode_file
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, shown, some
from shiftbed.reading.files import read_file
from shiftbed.reading.tables import decode, read_bytes, read_delimited

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
    numbers = all(name.isascii() and name.isdecimal() for name in directories)
    classes = tuple(sorted(directories, key=int if numbers else str))
    for name in sorted(directories):
        inside = [os.path.join(name, one) for one in _walk(path / name)]
        pictures = _pictures(inside)
        names += pictures
        loose += set(inside).difference(pictures)
        if not pictures:
            notes.append(f"class {name!r} has no images")
    if options.unlabelled:
        names += (pictures := _pictures(loose))
        loose = list(set(loose).difference(pictures))
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


def _pictures(names: list[str]) -> list[str]:
    return [name for name in names if os.path.splitext(name)[1].lower() in EXTENSIONS]


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


@dataclass(frozen=True)
class FileImages(Images):
    """Files below ``root``; decoded straight from disk, without a copy of their bytes."""

    root: str
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def load(self, row: int, draft: Draft | None = None) -> Image.Image:
        return decode_file(os.path.join(self.root, self.names[row]), draft)

    def data(self, row: int) -> bytes:
        try:
            return read_file(Path(self.root, self.names[row]))
        except InputError as error:
            raise NoImage(f"cannot be read: {error}") from None

    def take(self, rows: NDArray[np.int64]) -> "FileImages":
        return replace(self, names=tuple(self.names[row] for row in rows))


def printable(names: Sequence[str]) -> tuple[str, ...]:
    """Names as ids: text that any file can hold, with forward slashes.

    >>> printable(["a/b.jpg", os.fsdecode(b"caf\\xe9.jpg")])
    ('a/b.jpg', 'caf\\\\xe9.jpg')
    """
    if os.sep != "/":
        names = [name.replace(os.sep, "/") for name in names]
    return tuple(
        name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
        for name in names
    )


_PATHS = ("path", "file", "filename", "file_name", "image")
_LABELS = ("label", "labels", "class", "target")
_TRIED = 100


def read_manifest(path: Path, options: Options) -> RawExamples:
    """The images of a manifest in its order."""
    table = read_delimited(str(path), decode(str(path), read_bytes(path)))
    header = table.frame.columns
    at_path = _column(path, header, options.image_column, _PATHS, "paths of images")
    at_label = None
    if not options.unlabelled:
        at_label = _column(path, header, options.label_column, _LABELS, "labels")
    at_group = _optional(path, header, options.group_column, "group")
    at_id = _optional(path, header, options.id_column, None)
    at_caption = _optional(path, header, options.caption_column, None)
    root = Path(options.root if options.root is not None else path.parent).absolute()
    paths = table.frame[at_path]
    names = [_inside(table.where(row), text, root) for row, text in enumerate(paths)]
    examples = printable(names if at_id is None else table.frame[at_id].fill_null("").to_list())
    first: dict[str, int] = {}
    for row, example in enumerate(examples):
        if first.setdefault(example, row) != row:
            before = table.lines[first[example]]
            raise InputError(f"{table.where(row)}: {shown(example)} was already on line {before}")
    if not any(os.path.exists(root / name) for name in names[:_TRIED]):
        raise InputError(
            f"{path}: none of {some(names[:_TRIED], 2)} exists; paths must be relative to {root}"
        )
    labels = None if at_label is None else table.frame[at_label].to_list()
    if labels is not None and at_label == "labels":
        labels = [(one or "").split() for one in labels]
    return RawExamples(
        where=str(path),
        examples=examples,
        images=FileImages(str(root), tuple(names)),
        labels=labels,
        groups=None if at_group is None else table.frame[at_group].fill_null("").to_list(),
        captions=None if at_caption is None else table.frame[at_caption].to_list(),
    )


def _column(
    path: Path, header: list[str], asked: str | None, usual: Sequence[str], what: str
) -> str:
    if asked is not None:
        if asked not in header:
            raise unknown(f"column in {path}", asked, header)
        return asked
    there = [name for name in usual if name in header]
    if len(there) == 1:
        return there[0]
    found = "several" if there else "none"
    raise InputError(
        f"{path}, line 1: expected one column of {what} ({', '.join(usual)}), found {found} in "
        f"{some(header, 8)}"
    )


def _optional(path: Path, header: list[str], asked: str | None, usual: str | None) -> str | None:
    if asked is not None:
        return _column(path, header, asked, (), "")
    return usual if usual in header else None


def _inside(where: str, name: str | None, root: Path) -> str:
    """A path relative to the root, refused if it leaves it."""
    if not name:
        raise InputError(f"{where}: no path of an image")
    relative = os.path.relpath(name, root) if os.path.isabs(name) else os.path.normpath(name)
    if relative == os.pardir or relative.startswith(os.pardir + os.sep):
        raise InputError(f"{where}: {shown(name)} is not below {root}; give root if that is meant")
    return relative
