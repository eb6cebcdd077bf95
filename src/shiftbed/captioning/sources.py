"""Sources of captions: files and patterns, each read in batches by the reader of its format."""

import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from shiftbed.captioning.columns import LONGEST, Asked, Problems
from shiftbed.captioning.delimited import read_delimited
from shiftbed.captioning.tabular import read_parquet
from shiftbed.captioning.tars import read_tar
from shiftbed.errors import InputError

_READERS = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".parquet": read_parquet,
    ".tar": read_tar,
}
_SPAN = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MOST = 1_000_000
UNSAFE = r"[\x00-\x1f]|(^|[/\\])\.\.([/\\]|$)"
"""Paths that no test set may name: control characters, and climbing out of a folder."""


def expand(specs: Iterable[str | Path]) -> tuple[Path, ...]:
    """The files that paths, globs and ranges such as ``cc-{000..003}.tar`` stand for."""
    found: list[Path] = []
    for spec in specs:
        for name in _ranges(str(spec)):
            if Path(name).is_file():
                found.append(Path(name))
                continue
            some = sorted(glob.glob(name)) if glob.has_magic(name) else []
            if not some:
                raise InputError(f"{name}: no such file; expected .csv, .tsv, .parquet or .tar")
            found += map(Path, some)
    for path in found:
        if path.suffix.lower() not in _READERS:
            raise InputError(f"{path}: expected .csv, .tsv, .parquet or an uncompressed .tar")
    unique = tuple(dict.fromkeys(found))
    if not unique:
        raise InputError("no source of captions was given")
    if 0 < sum(map(is_tar, unique)) < len(unique):
        raise InputError("tars and tables cannot be mixed; make one test set of each")
    return unique


def _ranges(spec: str) -> list[str]:
    span = _SPAN.search(spec)
    if span is None or Path(spec).exists():
        return [spec]
    low, high, width = int(span[1]), int(span[2]), len(span[1])
    if not 0 <= high - low < _MOST:
        raise InputError(f"{spec}: {span[0]} must go upwards, by less than {_MOST}")
    head, tail = spec[: span.start()], _ranges(spec[span.end() :])
    return [f"{head}{n:0{width}d}{rest}" for n in range(low, high + 1) for rest in tail]


def is_tar(path: Path) -> bool:
    """Whether a source is a WebDataset tar."""
    return path.suffix.lower() == ".tar"


def batches(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """A source's rows in batches, with the words to match in ``words`` and ``identity``.

    ``words``: a row's tags if it has any, else its text; null if it has neither. ``identity`` says
    which rows are the same image: the id if its column was named, else the path, the URL or the
    id. A row that has none of them is counted and left out.
    """
    try:
        for frame in _READERS[path.suffix.lower()](path, asked, problems):
            yield _ready(frame, asked, problems)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or type(error).__name__}") from None


def _ready(frame: pl.DataFrame, asked: Asked, problems: Problems) -> pl.DataFrame:
    names = ("id", "text", "tags", "path", "url")
    empty = [pl.when(pl.col(n).str.strip_chars() != "").then(pl.col(n)).alias(n) for n in names]
    frame = frame.with_columns(empty)
    long = [pl.col(name).str.len_bytes().fill_null(0) > LONGEST for name in names]
    unsafe = pl.col("path").str.contains(UNSAFE).fill_null(False)
    bad = frame.select(pl.any_horizontal(long).alias("long"), unsafe.alias("unsafe"))
    if bad["long"].any() or bad["unsafe"].any():
        problems.add("too_long", int(bad["long"].sum()))
        problems.add("unsafe_path", int((bad["unsafe"] & ~bad["long"]).sum()))
        frame = frame.filter(~(bad["long"] | bad["unsafe"]))
    order = ["id", "path", "url"] if asked.id else ["path", "url", "id"]
    known = [pl.format(f"{name}:{{}}", pl.col(name)) for name in order]
    if frame["offset"].null_count() < len(frame):  # in a tar the key identifies, not the member
        known = [known[order.index("id")], *known]
    frame = frame.with_columns(
        pl.coalesce("tags", "text").alias("words"), pl.coalesce(*known).alias("identity")
    )
    problems.add("unidentified", frame["identity"].null_count())
    return frame.drop_nulls("identity")
