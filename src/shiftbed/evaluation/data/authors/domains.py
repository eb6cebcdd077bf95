"""Tasks of domains: a folder per domain and class with official lists, and WILDS.

WILDS has a table of metadata with the splits in it, and images elsewhere. ID and OOD are the
official test splits; Camelyon17 has no ID test set, so we take its ID validation set. wenzel2022
does not say what it took.
"""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import polars as pl

from shiftbed.catalogue.entries import PARTS, DomainTask, TestSetEntry
from shiftbed.catalogue.lookup import find_task
from shiftbed.catalogue.maps import domain_classes
from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data.authors.common import (
    directories,
    file_in,
    listed,
    named_folders,
    needed_file,
    numbers_of,
    pick,
    seen_in,
    text_of,
    wrong_layout,
)
from shiftbed.evaluation.data.image_files import printable
from shiftbed.evaluation.data.parts import HELD_OUT, SHARES, VALIDATION, part_rows
from shiftbed.evaluation.data.raw_examples import RawExamples, shown, some

_LISTS = ("{domain}_{split}_kfold.txt", "{domain}_{split}.txt")
"""How PACS and DomainNet call the lists of their splits."""
_LISTS_IN = ("", "splits", "pacs_label", "image_list")


def read_domain(entry: TestSetEntry, path: Path) -> RawExamples:
    """One domain, an official split or a part of it; the group of every image is its domain.

    Parts are those that a recipe's task with ``held_out = 0.2`` and ``validation = 0.1`` has.
    """
    task = find_task(entry.base)
    root, folder = _place(task, entry, path)
    classes = domain_classes(task.name)
    numbers = {name: at for at, name in enumerate(classes)}
    numeric = {str(at): at for at in range(len(classes))}
    there = set(directories(folder))
    if all(name.isdecimal() for name in there):  # SVIRO; VLCS in its own release
        numbers = numeric
    part = entry.split if entry.split in PARTS else None
    if there & {"full", "train"} and not there & set(numbers):
        split = "full" if part else entry.split or "full"
        found = named_folders(entry, folder / split, numeric, classes)
    else:
        found = named_folders(entry, folder, numbers, classes)
        if entry.split is not None and part is None:
            found = _split(entry, root, folder, found)
    if part is not None:
        shares = SHARES[HELD_OUT], SHARES[VALIDATION]
        found = pick(found, part_rows(found.examples, numbers_of(found), part, *shares).tolist())
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


_ID = {"camelyon17": "id_val", "fmow": "id_test", "iwildcam": "id_test", "rxrx1": "id_test"}
_TABLE = {"fmow": "rgb_metadata.csv"}
_FMOW = ("2013-01-01", "2016-01-01")
"""OOD validation starts at the first, OOD test at the second (UTC)."""


class _Rows(NamedTuple):
    """What a table says of each image."""

    split: pl.Expr
    file: pl.Expr
    label: pl.Expr
    group: pl.Expr


def read_wilds(entry: TestSetEntry, path: Path) -> RawExamples:
    """One split of a WILDS data set; groups are slides, regions, locations or experiments."""
    task = find_task(entry.base)
    name = _TABLE.get(task.name, "metadata.csv")
    root = needed_file(entry, path, [name], ("", *task.containers)).parent
    split = {"id": _ID[task.name], "ood": "test"}.get(str(entry.part), str(entry.part))
    frame = _read(root / name)
    if task.name == "fmow":
        frame = _regions(root, frame.with_row_index("row"))
    rows = _ROWS[task.name](root / name, frame)
    chosen = frame.select(**rows._asdict()).filter(pl.col("split") == split)
    if chosen.is_empty():
        raise InputError(f"{root / name}: no image is in the split {split}")
    files = chosen["file"].to_list()
    images, missing = listed(entry, root, files)
    names = domain_classes(entry.base) or tuple(map(str, range(task.classes)))
    at = {str(number): number for number in range(task.classes)}
    at |= {name: number for number, name in enumerate(names)}
    labels = [at.get(one or "") for one in chosen["label"].to_list()]
    if None in labels:
        wrong = chosen["label"][labels.index(None)]
        raise InputError(f"{root}: label {shown(wrong)} is none of the {task.classes} classes")
    return RawExamples(
        where=str(root),
        examples=printable(files),
        images=images,
        labels=labels,
        classes=names,
        groups=chosen["group"].to_list(),
        missing=tuple(missing),
    )


def _read(path: Path) -> pl.DataFrame:
    """A table, every cell as text."""
    try:
        return pl.read_csv(BytesIO(text_of(path).encode()), infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: not a CSV table: {str(error).splitlines()[0]}") from None


def _columns(path: Path, frame: pl.DataFrame, *names: str) -> list[pl.Expr]:
    for name in names:
        if name not in frame.columns:
            raise unknown(f"column in {path}", name, frame.columns)
    return [pl.col(name) for name in names]


def _case(*cases: tuple[pl.Expr, str]) -> pl.Expr:
    """The text of the first condition that holds, null where none does."""
    return pl.coalesce([pl.when(one).then(pl.lit(text)) for one, text in cases])


def _camelyon(path: Path, frame: pl.DataFrame) -> _Rows:
    """Hospital 1 is OOD validation, hospital 2 OOD test; the table splits the others."""
    names = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split", "slide")
    patient, node, x, y, tumor, center, split, slide = _columns(path, frame, *names)
    where = pl.format("patient_{}_node_{}", patient.str.zfill(3), node)
    return _Rows(
        split=_case(
            (center == "1", "val"), (center == "2", "test"), (split == "0", "train")
        ).fill_null("id_val"),
        file=pl.format("patches/{}/patch_{}_x_{}_y_{}.png", where, where, x, y),
        label=tumor,
        group=pl.format("slide {}", slide),
    )


def _regions(root: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """FMoW's countries by region of the world, ``Other`` where the table has none."""
    path = root / "country_code_mapping.csv"
    if not path.is_file():
        raise InputError(f"{root}: there is no country_code_mapping.csv, which names the regions")
    codes = _read(path)
    code, region = _columns(path, codes, "alpha-3", "region")
    _columns(root / "rgb_metadata.csv", frame, "country_code")
    table = codes.select(code.alias("country_code"), region.alias("region")).unique("country_code")
    joined = frame.join(table, on="country_code", how="left", maintain_order="left")
    return joined.with_columns(pl.col("region").fill_null("Other"))


def _fmow(path: Path, frame: pl.DataFrame) -> _Rows:
    """Before 2013 ID, from 2013 OOD validation, from 2016 OOD test, each of its own split."""
    split, time, category = _columns(path, frame, "split", "timestamp", "category")
    day = time.str.slice(0, 10)
    late = (day >= _FMOW[1]) & (split == "test")
    middle = (day >= _FMOW[0]) & (day < _FMOW[1]) & (split == "val")
    early = day < _FMOW[0]
    return _Rows(
        split=_case(
            (late, "test"),
            (middle, "val"),
            (early & (split == "test"), "id_test"),
            (early & (split == "val"), "id_val"),
            (early & (split == "train"), "train"),
        ),
        file=pl.format("images/rgb_img_{}.png", pl.col("row")),
        label=category,
        group=pl.col("region"),
    )


def _iwildcam(path: Path, frame: pl.DataFrame) -> _Rows:
    """All images lie in ``train``, whatever their split."""
    names = ("split", "filename", "y", "location_remapped")
    split, file, label, place = _columns(path, frame, *names)
    return _Rows(split, pl.format("train/{}", file), label, pl.format("location {}", place))


def _rxrx1(path: Path, frame: pl.DataFrame) -> _Rows:
    """ID test is the second site of the training experiments."""
    names = ("dataset", "experiment", "plate", "well", "site", "sirna_id")
    split, experiment, plate, well, site, label = _columns(path, frame, *names)
    return _Rows(
        split=pl.when((split == "train") & (site == "2")).then(pl.lit("id_test")).otherwise(split),
        file=pl.format("images/{}/Plate{}/{}_s{}.png", experiment, plate, well, site),
        label=label,
        group=experiment,
    )


_ROWS: dict[str, Callable[[Path, pl.DataFrame], _Rows]] = {
    "camelyon17": _camelyon,
    "fmow": _fmow,
    "iwildcam": _iwildcam,
    "rxrx1": _rxrx1,
}
