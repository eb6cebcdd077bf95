"""CSV manifests: a row per image with ``path`` and ``label``.

Paths are relative to the manifest, or to ``root`` if that is given, and must stay below it. The
label is a class number or name, empty for none; a column ``labels`` holds sets, separated by
blanks. Files that are missing count as unreadable images, not as errors of the manifest.
"""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data.files import FileImages, printable
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, shown, some

_PATHS = ("path", "file", "filename", "file_name", "image")
_LABELS = ("label", "labels", "class", "target")
_TRIED = 100


def read_manifest(path: Path, options: Options) -> RawExamples:
    """The images of a manifest in its order."""
    header, rows = _rows(path)
    at_path = _column(path, header, options.image_column, _PATHS, "paths of images")
    at_label = None
    if not options.unlabelled:
        at_label = _column(path, header, options.label_column, _LABELS, "labels")
    at_group = _optional(path, header, options.group_column, "group")
    at_id = _optional(path, header, options.id_column, None)
    root = Path(options.root if options.root is not None else path.parent).absolute()
    names = [_inside(path, line, row[at_path], root) for line, row in rows]
    examples = printable(names if at_id is None else [row[at_id].strip() for _, row in rows])
    first: dict[str, int] = {}
    for (line, _), example in zip(rows, examples, strict=True):
        if first.setdefault(example, line) != line:
            raise InputError(
                f"{path}, line {line}: {shown(example)} was already on line {first[example]}"
            )
    if not any((root / name).exists() for name in names[:_TRIED]):
        raise InputError(
            f"{path}: none of {some(names[:_TRIED], 2)} exists; paths must be relative to {root}"
        )
    return RawExamples(
        where=str(path),
        examples=examples,
        images=FileImages(str(root), tuple(names)),
        labels=None if at_label is None else _labels(header[at_label], at_label, rows),
        groups=None if at_group is None else [row[at_group].strip() for _, row in rows],
    )


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and the rows that are not empty with the numbers of their lines."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            top = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=top.count), strict=True)
            lines = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as a CSV manifest: {error}") from None
    if len(lines) < 2:
        raise InputError(f"{path}: expected a header such as path,label and a row per image")
    (_, header), rows = lines[0], lines[1:]
    for line, row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{path}, line {line}: {len(row)} values, the header has {len(header)}"
            )
    return [name.strip() for name in header], rows


def _column(
    path: Path, header: list[str], asked: str | None, usual: Sequence[str], what: str
) -> int:
    if asked is not None:
        if asked not in header:
            raise unknown(f"column in {path}", asked, header)
        return header.index(asked)
    there = [name for name in usual if name in header]
    if len(there) == 1:
        return header.index(there[0])
    found = "several" if there else "none"
    raise InputError(
        f"{path}, line 1: expected one column of {what} ({', '.join(usual)}), found {found} in "
        f"{some(header, 8)}"
    )


def _optional(path: Path, header: list[str], asked: str | None, usual: str | None) -> int | None:
    if asked is not None:
        return _column(path, header, asked, (), "")
    return header.index(usual) if usual in header else None


def _inside(path: Path, line: int, text: str, root: Path) -> str:
    """A path relative to the root, refused if it leaves it."""
    name = text.strip()
    if not name or "\0" in name:
        raise InputError(f"{path}, line {line}: no path of an image")
    relative = os.path.relpath(name, root) if os.path.isabs(name) else os.path.normpath(name)
    if relative == os.pardir or relative.startswith(os.pardir + os.sep):
        raise InputError(
            f"{path}, line {line}: {shown(name)} is not below {root}; give root if that is meant"
        )
    return relative


def _labels(
    name: str, column: int, rows: list[tuple[int, list[str]]]
) -> list[str] | list[list[str]]:
    if name == "labels":
        return [row[column].split() for _, row in rows]
    return [row[column] for _, row in rows]
