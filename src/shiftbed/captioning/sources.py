"""Sources of captions: CSV, TSV, Parquet and WebDataset tars, read in batches whatever is in them.

A row that is too long, has another number of fields than the header or a quote that never closes
is left out; bytes that are not UTF-8 become replacement characters. All are counted. In CSV a
quoted field may go over lines; in TSV a line is a row and quotes around a field fall away. A tar
holds ``0001.jpg`` with ``0001.txt`` or ``0001.json``: the text is the ``.txt`` member or a field of
the JSON object, tags are a field of it, and where the image lies is kept, so that the chosen ones
can be copied out later.
"""

import json
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.errors import InputError, unknown
from shiftbed.reading import streams
from shiftbed.reading.files import regular, whole_parquet
from shiftbed.reading.trial import try_rows

BATCH = 1 << 16
"""Rows held in memory at a time."""
LONGEST = 1 << 17
"""Bytes of a caption, or of a line of a CSV file; longer ones are counted and left out."""
UNSAFE = r"[\x00-\x1f]|(^|[/\\])\.\.([/\\]|$)"
"""Paths that no test set may name: control characters, and climbing out of a folder."""
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
_EXPECTED = "expected .csv, .tsv, .parquet or an uncompressed .tar"
_USUAL = {
    "text": ("caption", "text", "description", "title"),
    "tags": ("tags", "tag", "usertags", "keywords"),
    "id": ("id", "uid", "key", "image_id", "photoid", "photo_id", "identifier"),
    "path": ("path", "file", "filename", "file_name", "filepath", "image_path", "image"),
    "url": ("url", "image_url", "img_url", "download_url", "downloadurl"),
}
"""Usual names of columns, by what they are for."""
_NUMBERS = ("row", "offset", "size")
Sample = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Columns the user named; None where the usual names are to decide."""

    text: str | None = None
    tags: str | None = None
    id: str | None = None


class Problems(Counter[str]):
    """What was wrong with rows, counted; the rows are left out or read as far as possible."""

    def text(self, data: bytes) -> str:
        """Bytes as text, with replacement characters where they are not UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            self["invalid_utf8"] += 1
            return data.decode(errors="replace")


def expand(specs: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    """The files that paths, globs and ranges such as ``cc-{000..003}.tar`` stand for."""
    listed = [specs] if isinstance(specs, str | Path) else specs
    found = dict.fromkeys(path for spec in listed for path in streams.expand(str(spec)))
    for path in found:
        if path.suffix.lower() not in _READERS:
            raise InputError(f"{path}: {_EXPECTED}")
    if not found:
        raise InputError(f"no source of captions was given; {_EXPECTED}")
    if 0 < sum(map(is_tar, found)) < len(found):
        raise InputError("tars and tables cannot be mixed; make one test set of each")
    return tuple(found)


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
    empty = [pl.when(pl.col(n).str.strip_chars() != "").then(pl.col(n)).alias(n) for n in _USUAL]
    frame = frame.with_columns(empty)
    long = [pl.col(name).str.len_bytes().fill_null(0) > LONGEST for name in _USUAL]
    unsafe = pl.col("path").str.contains(UNSAFE).fill_null(False)
    bad = frame.select(pl.any_horizontal(long).alias("long"), unsafe.alias("unsafe"))
    if bad["long"].any() or bad["unsafe"].any():
        problems["too_long"] += int(bad["long"].sum())
        problems["unsafe_path"] += int((bad["unsafe"] & ~bad["long"]).sum())
        frame = frame.filter(~(bad["long"] | bad["unsafe"]))
    order = ["id", "path", "url"] if asked.id else ["path", "url", "id"]
    known = [pl.format(f"{name}:{{}}", pl.col(name)) for name in order]
    if frame["offset"].null_count() < len(frame):  # in a tar the key identifies, not the member
        known = [known[order.index("id")], *known]
    frame = frame.with_columns(
        pl.coalesce("tags", "text").alias("words"), pl.coalesce(*known).alias("identity")
    )
    problems["unidentified"] += frame["identity"].null_count()
    return frame.drop_nulls("identity")


def batch_frame(columns: dict[str, Sequence[object] | pl.Series]) -> pl.DataFrame:
    """A batch: row, id, text, tags, path, url, offset and size, null where a source has none.

    ``row`` is the line of a CSV file, or the place from 0 in others. ``offset`` and ``size`` say
    where the image lies in a tar.
    """
    nothing = [None] * len(columns["row"])
    return pl.DataFrame(
        {
            name: pl.Series(
                name, columns.get(name, nothing), pl.Int64 if name in _NUMBERS else pl.String
            )
            for name in ("row", "id", "text", "tags", "path", "url", "offset", "size")
        }
    )


def choose_columns(
    where: str, header: Sequence[str], asked: Asked, *, needed: bool = True
) -> dict[str, str]:
    """Purpose → column: those asked for, or else of the usual names, in upper or lower case.

    >>> choose_columns("f", ["URL", "TEXT"], Asked())
    {'text': 'TEXT', 'url': 'URL'}
    """
    found: dict[str, str] = {}
    options: dict[str, str | None] = vars(asked)
    for purpose, names in _USUAL.items():
        own = options.get(purpose)
        there = [name for name in header if name.lower() in names]
        if own is not None and own not in header:
            raise unknown(f"column in {where}", own, header)
        if own is None and len(there) > 1 and purpose in options:
            both = " and ".join(there)
            raise InputError(f"{where}: columns {both}; say which with --{purpose}-column")
        if own is not None or there:
            found[purpose] = own or there[0]
    seen = ", ".join(header)[:200] or "none"
    if needed and not found.keys() & {"text", "tags"}:
        raise InputError(
            f"{where}: expected a header with a column of captions ({', '.join(_USUAL['text'])}) "
            f"or tags ({', '.join(_USUAL['tags'])}), found {seen}; name it with --text-column"
        )
    if needed and not found.keys() & {"id", "path", "url"}:
        raise InputError(
            f"{where}: expected a column that says which image it is (path, url or id), found "
            f"{seen}; name it with --id-column"
        )
    return found


# --- text in columns -------------------------------------------------------------------------


def read_delimited(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """The rows of a file in batches; ``row`` is the line a row begins on, counted from 1."""
    tabs = path.suffix.lower() == ".tsv"
    rows = streams.delimited_rows(
        _lines(path, problems), "\t" if tabs else ",", spans=not tabs, longest=LONGEST
    )
    header = next((row for _, row in rows if row != [""]), "")
    if isinstance(header, str):
        raise InputError(f"{path}: {header or 'empty'}; expected a header such as id,url,caption")
    names = [name.strip().removeprefix("\ufeff") for name in header]
    used = choose_columns(str(path), names, asked)
    at = {purpose: names.index(column) for purpose, column in used.items()}

    def frame(kept: list[tuple[int, list[str]]]) -> pl.DataFrame:
        columns = {purpose: [row[i] for _, row in kept] for purpose, i in at.items()}
        return batch_frame({"row": [line for line, _ in kept], **columns})

    kept: list[tuple[int, list[str]]] = []
    for line, row in rows:
        if isinstance(row, str) or len(row) != len(names):
            problems["malformed"] += int(row != [""])  # blank lines do not count
            continue
        kept.append((line, row))
        if len(kept) == BATCH:
            yield frame(kept)
            kept = []
    if kept:
        yield frame(kept)


def _lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; too long ones are passed over without being held."""
    number = 0
    with regular(path).open("rb") as file:
        while line := file.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                problems["too_long"] += 1
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST)
            else:
                yield number, problems.text(line.removesuffix(b"\n"))


# --- Parquet ---------------------------------------------------------------------------------


def read_parquet(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """The rows of a file in batches; ``row`` counts from 0. Tags may be a list of strings."""
    try_rows(regular(path), str(path))
    with whole_parquet(str(path)):
        schema = pl.read_parquet_schema(path)
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    used = choose_columns(str(path), list(schema), asked)
    lazy = pl.scan_parquet(path).select([pl.col(c).alias(p) for p, c in used.items()])
    for start in range(0, rows, BATCH):
        with whole_parquet(str(path)):
            frame = lazy.slice(start, BATCH).collect()
        places = pl.Series(range(start, start + len(frame)), dtype=pl.Int64)
        texts = {p: _strings(path, used[p], frame[p], problems) for p in used}
        yield batch_frame({"row": places, **texts})


def _strings(path: Path, name: str, column: pl.Series, problems: Problems) -> pl.Series:
    """A column as text: numbers written out, lists joined with stops between, bytes decoded."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        inner = pl.DataFrame({"all": column}).explode("all")["all"].dtype
        if inner not in (pl.String, pl.Categorical, pl.Null):
            raise InputError(
                f"{path}, column {name!r}: is {kind}, expected text or a list of texts"
            )
        return column.cast(pl.List(pl.String)).list.join(" | ", ignore_nulls=True)
    if kind == pl.Binary:
        texts = [None if value is None else problems.text(value) for value in column]
        return pl.Series(texts, dtype=pl.String)
    if kind.is_nested() or kind == pl.Object:
        raise InputError(f"{path}, column {name!r}: is {kind}, expected text")
    return column.cast(pl.String)


# --- tars ------------------------------------------------------------------------------------


def read_tar(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """The samples of a tar in batches; ``row`` counts them from 0.

    ``id`` is SHARD/KEY unless a field is named, for keys may start again in every shard.
    A sample without an image is counted and left out.
    """
    samples: list[Sample] = []
    first = 0
    for sample in _samples(path, asked, problems):
        if "offset" not in sample:
            problems["no_image"] += 1
            continue
        samples.append(sample)
        if len(samples) == BATCH:
            yield _frame(first, samples)
            first, samples = first + len(samples), []
    if samples:
        yield _frame(first, samples)


def _frame(first: int, samples: list[Sample]) -> pl.DataFrame:
    names = (*_USUAL, "offset", "size")
    columns: dict[str, Any] = {name: [one.get(name) for one in samples] for name in names}
    return batch_frame({"row": range(first, first + len(samples)), **columns})


def _samples(path: Path, asked: Asked, problems: Problems) -> Iterator[Sample]:
    """Members that follow each other and share a key."""
    key, sample = "", Sample()
    for member, read in streams.tar_members(path):
        if not member.isreg() or member.issparse():
            continue
        folder, base = posixpath.split(member.name)
        stem, _, ending = base.partition(".")
        own, ending = posixpath.join(folder, stem), f".{ending.lower()}"
        if own != key:
            if key and sample:
                yield {"id": f"{path.stem}/{key}", **sample}
            key, sample = own, Sample()
        if ending in IMAGES:
            sample |= {"offset": member.offset_data, "size": member.size, "path": member.name}
        elif ending in (".txt", ".json") and member.size > LONGEST:
            problems["too_long"] += 1
        elif ending == ".txt":
            sample.setdefault("text", problems.text(read()))
        elif ending == ".json":
            where = f"{path}: {member.name}"
            sample |= _fields(where, problems.text(read()), asked, problems, "text" in sample)
    if key and sample:
        yield {"id": f"{path.stem}/{key}", **sample}


def _fields(where: str, text: str, asked: Asked, problems: Problems, has_text: bool) -> Sample:
    """Text, tags, id and URL of a JSON object; named columns come before the ``.txt`` member."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        problems["malformed"] += 1
        return {}
    used = choose_columns(where, list(read), asked, needed=False)
    left_out = {"path"} if asked.id else {"path", "id"}
    found = {p: read[c] for p, c in used.items() if p not in left_out}
    if has_text and asked.text is None:
        found.pop("text", None)
    tags = found.get("tags")
    if isinstance(tags, list):
        found["tags"] = " | ".join(str(one) for one in tags)
    return {p: v if isinstance(v, str) else str(v) for p, v in found.items() if v is not None}


_READERS = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".parquet": read_parquet,
    ".tar": read_tar,
}
