"""From matches to a balanced test set and its files.

Every image has a rank, a keyed hash of its identity; a class's test images are those of the
smallest ranks. Which file or line a row is on plays no part, so neither does the order of rows.
"""

import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.atomic import write_atomically
from shiftbed.captioning.classes import CaptionClass
from shiftbed.captioning.sources import is_tar
from shiftbed.display import csv_text
from shiftbed.errors import InputError

Ranks = NDArray[np.uint64]
Codes = NDArray[np.int32]
_STEPS = 64
_SHIFT = np.uint64(58)
_TEST = ("path", "label", "class_name", "id", "url", "source", "row")


def ranks(identities: Iterable[str], seed: int) -> Ranks:
    """(n,) 64-bit ranks: BLAKE2b of the identity, keyed with the seed.

    >>> ranks(["path:a.jpg"], 0)
    array([2340582878342727136], dtype=uint64)
    """
    key = str(seed).encode()[:64]
    data = b"".join(
        blake2b(one.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for one in identities
    )
    return np.frombuffer(data, dtype=">u8").astype(np.uint64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Which images are drawn, and what the rows came to."""

    ranks: Ranks
    """(kept classes · per class,), ascending."""
    labels: Codes
    """Their classes."""
    matches: NDArray[np.int64]
    """(classes,): images of which exactly this class matches."""
    kept: NDArray[np.bool_]
    """(classes,): whether there are enough of them."""
    duplicates: int
    """Matched rows beyond the first of an image."""
    conflicts: int
    """Images that several rows give different classes; they get none."""


def select(
    pieces: Iterable[tuple[Ranks, Codes]],
    classes: int,
    *,
    min_matches: int = 100,
    per_class: int = 50,
) -> Selection:
    """Draw ``per_class`` images of every class that has at least ``min_matches``.

    ``pieces``: ranks and codes of matched rows, a code being their class or a negative number for
    several. shi2023, Appendix B.2: at least 100 labelled images, 50 of them held out. Ranks are
    gone through from small to large, a 64th of them at a time, to need little memory.
    """
    check_sizes(min_matches, per_class)
    given = list(pieces)
    matches = np.zeros(classes, dtype=np.int64)
    drawn: list[Ranks] = []
    labels: list[Codes] = []
    rows = images = conflicts = 0
    for step in range(_STEPS):
        rank, code = _between(given, step)
        if not len(rank):
            continue
        first = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1])))
        low, high = np.minimum.reduceat(code, first), np.maximum.reduceat(code, first)
        sure = (low == high) & (low >= 0)
        image, label = rank[first][sure], low[sure]
        place = matches[label] + _earlier(label, classes)
        drawn.append(image[place < per_class])
        labels.append(label[place < per_class])
        matches += np.bincount(label, minlength=classes)
        rows, images = rows + len(rank), images + len(first)
        conflicts += int((low != high).sum())
    kept = matches >= min_matches
    rank = np.concatenate([np.zeros(0, dtype=np.uint64), *drawn])
    code = np.concatenate([np.zeros(0, dtype=np.int32), *labels])
    return Selection(
        ranks=rank[kept[code]],
        labels=code[kept[code]],
        matches=matches,
        kept=kept,
        duplicates=rows - images,
        conflicts=conflicts,
    )


def _between(pieces: Sequence[tuple[Ranks, Codes]], step: int) -> tuple[Ranks, Codes]:
    """The rows whose ranks are in one of the ``_STEPS`` stretches, sorted by rank."""
    inside = [(rank >> _SHIFT) == step for rank, _ in pieces]
    both = list(zip(pieces, inside, strict=True))
    rank = np.concatenate([np.zeros(0, dtype=np.uint64), *(p[0][i] for p, i in both)])
    code = np.concatenate([np.zeros(0, dtype=np.int32), *(p[1][i] for p, i in both)])
    order = np.argsort(rank)
    return rank[order], code[order]


def _earlier(labels: Codes, classes: int) -> NDArray[np.int64]:
    """How many of the same label stand before each."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=classes)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    earlier = np.empty(len(labels), dtype=np.int64)
    earlier[order] = np.arange(len(labels)) - starts[labels[order]]
    return earlier


def check_sizes(min_matches: int, per_class: int) -> None:
    """A class that is kept must have as many images as are drawn."""
    if per_class < 1:
        raise InputError(f"--per-class must be at least 1, got {per_class}")
    if min_matches < per_class:
        raise InputError(
            f"--min-matches must be at least --per-class ({per_class}), got {min_matches}"
        )


# --- files ---------------------------------------------------------------------------------------


def write_test_set(
    folder: Path,
    paths: Sequence[Path],
    classes: Sequence[CaptionClass],
    drawn: Selection,
    held: pl.DataFrame,
    counts: pl.DataFrame,
) -> dict[str, Any]:
    """Write test.csv, test.tar for tars, holdout.csv, classes.csv and kept.txt; how it is opened.

    test.csv has a row per image: ``path``, ``label`` (the class's number), ``class_name`` and
    where it came from. Where there are URLs only, ``path`` is where the download is expected.
    kept.txt lists the labels of the classes that are kept, for ``--subset``. holdout.csv lists what
    to keep out of training; its column ``example`` is what ``exclude`` of a recipe's data reads.
    """
    images = _one_per_image(drawn, held)
    tars = bool(paths) and is_tar(paths[0])
    rows = [_row(one, classes, paths) for one in images]
    _write_csv(folder / "test.csv", _TEST, rows)
    kept_out = held.sort("source", "row").iter_rows(named=True) if len(held) else ()
    out = (
        (str(paths[one["source"]]), one["row"], one["id"], _example(one, tars)) for one in kept_out
    )
    _write_csv(folder / "holdout.csv", ("source", "row", "id", "example"), out)
    _write_csv(folder / "classes.csv", counts.columns, counts.iter_rows())
    with write_atomically(folder / "kept.txt") as file:
        file.writelines(f"{label}\n".encode() for label in np.flatnonzero(drawn.kept))
    if tars:
        _write_tar(folder / "test.tar", images, paths)
        return {"opens": str(folder / "test.tar"), "root": "", "note": ""}
    _check_paths(rows)
    downloads = sum(one["path"] is None and one["url"] is not None for one in images)
    if downloads:
        note = f"{downloads} images are known by URL only: save each at its path below {folder}"
        return {"opens": str(folder / "test.csv"), "root": str(folder), "note": note}
    root = os.path.commonpath([path.absolute().parent for path in paths])
    return {"opens": str(folder / "test.csv"), "root": root, "note": ""}


def _example(one: dict[str, Any], tars: bool) -> str:
    """What a row is called where the sources are read as training data."""
    known = (one["id"],) if tars else (one["path"], one["id"], one["url"])
    return next((str(name) for name in known if name is not None), "")


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


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    frame = pl.DataFrame(list(rows), schema=list(header), orient="row", infer_schema_length=None)
    as_before = frame.with_columns(pl.col(pl.Boolean).cast(pl.String).str.to_titlecase())
    with write_atomically(path) as file:
        file.write(csv_text(as_before).encode())


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
