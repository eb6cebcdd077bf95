"""Tasks of domains whose images lie in a folder per domain and class, and their official lists."""

from dataclasses import replace
from pathlib import Path

from shiftbed.catalogue.entries import DomainTask, TestSetEntry
from shiftbed.catalogue.lookup import find_task
from shiftbed.catalogue.maps import domain_classes
from shiftbed.errors import InputError
from shiftbed.evaluation.data.authors.common import (
    directories,
    file_in,
    named_folders,
    numbers_of,
    pick,
    seen_in,
    text_of,
    wrong_layout,
)
from shiftbed.evaluation.data.raw_examples import RawExamples, some

_LISTS = ("{domain}_{split}_kfold.txt", "{domain}_{split}.txt")
"""How PACS and DomainNet call the lists of their splits."""
_LISTS_IN = ("", "splits", "pacs_label", "image_list")


def read_domain(entry: TestSetEntry, path: Path) -> RawExamples:
    """One domain, or one official split of it; the group of every image is its domain."""
    task = find_task(entry.base)
    root, folder = _place(task, entry, path)
    classes = domain_classes(task.name)
    numbers = {name: at for at, name in enumerate(classes)}
    if all(name.isdecimal() for name in directories(folder)):  # SVIRO; VLCS in its own release
        numbers = {str(at): at for at in range(len(classes))}
    if set(directories(folder)) & {"full", "train"} and not set(directories(folder)) & set(numbers):
        inner = entry.split or "full"
        numbers = {str(at): at for at in range(len(classes))}
        found = named_folders(entry, folder / inner, numbers, classes)
    else:
        found = named_folders(entry, folder, numbers, classes)
        if entry.split is not None:
            found = _split(entry, root, folder, found)
    return replace(found, groups=[str(entry.part)] * len(found.examples))


def _place(task: DomainTask, entry: TestSetEntry, path: Path) -> tuple[Path, Path]:
    """The directory of the task, and the one of the domain in it."""
    names = task.domain(str(entry.part)).folders
    for inner in ("", *task.containers):
        for name in names:
            if (path / inner / name).is_dir():
                return path / inner, path / inner / name
    raise wrong_layout(entry, path, f"there is no folder {' or '.join(names)}, {seen_in(path)}")


def _split(entry: TestSetEntry, root: Path, folder: Path, found: RawExamples) -> RawExamples:
    """The images of an official list: ``DOMAIN/CLASS/FILE NUMBER`` per line."""
    names = [one.format(domain=entry.part, split=entry.split) for one in _LISTS]
    file = file_in(root, names, _LISTS_IN) or file_in(root.parent, names, _LISTS_IN)
    if file is None:
        raise wrong_layout(entry, root, f"there is no list {' or '.join(names)}")
    labels = numbers_of(found)
    at = {example: row for row, example in enumerate(found.examples)}
    rows, missing, offsets = [], [], set()
    for line, text in enumerate(text_of(file).splitlines(), 1):
        if not text.strip():
            continue
        listed, _, number = text.strip().rpartition(" ")
        if not listed or not number.isdecimal():
            raise InputError(f"{file}, line {line}: expected PATH NUMBER, got {text[:60]!r}")
        row = at.get("/".join(listed.split("/")[-2:]))
        if row is None:
            missing.append(listed)
            continue
        rows.append(row)
        offsets.add(int(number) - int(labels[row]))
    if not rows:
        raise InputError(f"{file}: none of {some(missing, 2)} is in {folder}")
    if len(offsets) > 1 or not offsets <= {0, 1}:
        raise InputError(f"{file}: its class numbers are not those of the folders' classes")
    words = f"{len(missing)} of {len(rows) + len(missing)} images of {file.name} are not there"
    words += f": {some(missing)}"
    return replace(pick(found, rows), missing=(*found.missing, *([words] if missing else [])))
