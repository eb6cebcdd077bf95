"""The files of a test set made from captions."""

import csv
import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shiftbed.atomic import write_atomically
from shiftbed.captioning.classes import CaptionClass
from shiftbed.captioning.select import Selection
from shiftbed.captioning.sources import is_tar
from shiftbed.errors import InputError

_TEST = ("path", "label", "class_name", "id", "url", "source", "row")


@dataclass(frozen=True, kw_only=True)
class Written:
    """How the test set is opened."""

    opens: str
    root: str
    note: str


def write_test_set(
    folder: Path,
    paths: Sequence[Path],
    classes: Sequence[CaptionClass],
    drawn: Selection,
    held: pl.DataFrame,
    counts: pl.DataFrame,
) -> Written:
    """Write test.csv, test.tar for tars, holdout.csv, classes.csv and kept.txt.

    test.csv has a row per image: ``path``, ``label`` (the class's number), ``class_name`` and
    where it came from. Where there are URLs only, ``path`` is where the download is expected.
    kept.txt lists the labels of the classes that are kept, for ``--subset``.
    """
    images = _one_per_image(drawn, held)
    tars = bool(paths) and is_tar(paths[0])
    rows = [_row(one, classes, paths) for one in images]
    _write_csv(folder / "test.csv", _TEST, rows)
    _write_csv(folder / "holdout.csv", ("source", "row", "id"), _held_rows(paths, held))
    _write_csv(folder / "classes.csv", counts.columns, counts.iter_rows())
    with write_atomically(folder / "kept.txt") as file:
        file.writelines(f"{label}\n".encode() for label in np.flatnonzero(drawn.kept))
    if tars:
        _write_tar(folder / "test.tar", images, paths)
        return Written(opens=str(folder / "test.tar"), root="", note="")
    _check_paths(rows)
    downloads = sum(one["path"] is None and one["url"] is not None for one in images)
    if downloads:
        note = f"{downloads} images are known by URL only: save each at its path below {folder}"
        return Written(opens=str(folder / "test.csv"), root=str(folder), note=note)
    root = os.path.commonpath([path.absolute().parent for path in paths])
    return Written(opens=str(folder / "test.csv"), root=root, note="")


def class_counts(classes: Sequence[CaptionClass], drawn: Selection) -> pl.DataFrame:
    """A row per class: label, class_name, matches, kept and test_examples."""
    per_class = len(drawn.ranks) // max(1, int(drawn.kept.sum()))
    return pl.DataFrame(
        {
            "label": range(len(classes)),
            "class_name": [one.name for one in classes],
            "matches": drawn.matches,
            "kept": drawn.kept,
            "test_examples": per_class * drawn.kept.astype(np.int64),
        }
    )


def _one_per_image(drawn: Selection, held: pl.DataFrame) -> list[dict[str, Any]]:
    """For each drawn image one of its rows, the same whatever the order of the rows was."""
    if not len(held):
        return []
    drawn_as = pl.DataFrame({"rank": drawn.ranks, "label": drawn.labels})
    order = ["path", "url", "id", "text", "tags", "source", "row"]
    found = (
        held.join(drawn_as, on="rank")
        .filter(pl.col("code") == pl.col("label"))
        .sort("label", "rank", *order, nulls_last=True)
        .unique("rank", keep="first", maintain_order=True)
    )
    if len(found) != len(drawn.ranks):
        raise InputError("the sources changed while they were read; run again")
    return list(found.iter_rows(named=True))


def _row(
    one: dict[str, Any], classes: Sequence[CaptionClass], paths: Sequence[Path]
) -> tuple[Any, ...]:
    path = one["path"]
    if path is None:
        path = f"images/{one['rank']:016x}.jpg" if one["url"] is not None else one["id"]
    name = classes[one["label"]].name
    where = str(paths[one["source"]])
    return path, one["label"], name, one["id"], one["url"], where, one["row"]


def _check_paths(rows: Sequence[tuple[Any, ...]]) -> None:
    seen: dict[str, Any] = {}
    for row in rows:
        if row[0] is not None and seen.setdefault(row[0], row[3]) != row[3]:
            raise InputError(
                f"{row[5]}, row {row[6]}: {row[0]!r} is the path of two ids; leave out --id-column"
            )


def _held_rows(paths: Sequence[Path], held: pl.DataFrame) -> Iterable[tuple[Any, ...]]:
    if not len(held):
        return
    for one in held.sort("source", "row").iter_rows(named=True):
        yield str(paths[one["source"]]), one["row"], one["id"]


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    with write_atomically(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        text.flush()
        text.detach()


def _write_tar(path: Path, images: Sequence[dict[str, Any]], paths: Sequence[Path]) -> None:
    """The drawn images with their labels, as a WebDataset tar; equal input gives equal bytes."""
    with (
        write_atomically(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for one in images:
            with paths[one["source"]].open("rb") as source:
                source.seek(one["offset"])
                data = source.read(one["size"])
            key = f"{one['rank']:016x}"
            ending = Path(one["path"]).suffix.lower()
            for name, content in ((key + ending, data), (f"{key}.cls", str(one["label"]).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
