"""Whole tables as strings: CSV, TSV, Parquet, JSON and JSON Lines.

Anything that is not a table is refused in one line that says where it is wrong.
"""

import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import FORMULA, InputError, shown
from shiftbed.reading.files import read_file, read_frame, whole_parquet
from shiftbed.reading.streams import delimited_rows
from shiftbed.reading.trial import try_table

DELIMITERS = (",", ";", "\t")
_DELIMITED = (".csv", ".tsv", ".txt", ".tab")
_JSON_LINES = (".jsonl", ".ndjson")
_SAMPLE = 2**16
GUARDED = f"^'({FORMULA[1:]})"
"""A cell that ``display.csv_text`` put an apostrophe before."""
_NO_TEXT = (pl.Binary, pl.Object)


@dataclass(frozen=True, kw_only=True, eq=False)
class TextTable:
    """Strings only, stripped, null where empty; numbers are made where the meaning is known."""

    path: str
    frame: pl.DataFrame
    lines: NDArray[np.int64]
    """(rows,): where each row stands in the file."""
    word: str = "line"
    """What ``lines`` counts: lines of a text (the header's is 1), or rows or items from 1."""
    decimal_comma: bool = False
    """Whether 0,5 is a number here, as it may be where semicolons or tabs separate columns."""
    nested: frozenset[str] = frozenset()
    """Columns from inside an object, called by their path: ``metadata.lr``."""
    lists: tuple[str, ...] = ()
    """Columns that are not in ``frame``, because they hold lists or bytes."""

    def where(self, row: int, column: str | None = None) -> str:
        """Such as ``results.csv, line 7, column 'val'``."""
        place = f"{self.path}, {self.word} {self.lines[row]}"
        return place if column is None else f"{place}, column {shown(column)}"

    def cell(self, row: int, column: str) -> str:
        """Place and content, the start of every complaint about one cell."""
        return f"{self.where(row, column)}: {shown(self.frame[column][row] or '')}"

    def find(self, *names: str) -> str | None:
        """The column of the first of these names that is there, upper or lower case."""
        for name in names:
            same = [c for c in self.frame.columns if c.lower() == name]
            if len(same) > 1:
                both = " and ".join(shown(c) for c in same[:2])
                raise InputError(f"{self.path}: columns {both} could both be the {name}")
            if same:
                return same[0]
        return None

    def need(self, *names: str) -> str:
        """The same, refused where there is none."""
        found = self.find(*names)
        if found is None:
            columns = ", ".join(shown(c) for c in self.frame.columns[:8])
            more = ", …" if self.frame.width > 8 else ""
            wanted = " or ".join(repr(name) for name in names)
            raise InputError(f"{self.path}: there is no column {wanted}, only {columns}{more}")
        return found

    def drop(self, columns: Iterable[str]) -> "TextTable":
        """Without these columns, as far as it has them."""
        return replace(self, frame=self.frame.drop(list(columns), strict=False))


# --- whole files -----------------------------------------------------------------------------


def read_bytes(path: str | Path) -> bytes:
    """The whole file, refused if it is missing, no file at all, empty or absurdly large."""
    data = read_file(path)
    if not data:
        raise _empty(str(path))
    return data


def is_archive(data: bytes) -> bool:
    """Whether it is a zip file, as .npz files are."""
    return data.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def read_table(path: str, data: bytes) -> TextTable:
    """A table from Parquet, JSON, JSON Lines or delimited text."""
    suffix = Path(path).suffix.lower()
    if data.startswith(b"PAR1") or suffix == ".parquet":
        return _read_parquet(path, data)
    if data.startswith(b"\x1f\x8b"):
        raise InputError(f"{path}: compressed with gzip; unpack it first")
    text = decode(path, data)
    start = text.lstrip()[:1]
    if suffix in _JSON_LINES:
        return read_json_lines(path, text)
    if suffix == ".json" or (start in ("{", "[") and suffix not in _DELIMITED):
        return read_json(path, text)
    return read_delimited(path, text)


def decode(path: str, data: bytes) -> str:
    """Text of a file: UTF-8, or UTF-16 with a byte-order mark; every line end becomes \\n."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        coding = "utf-16"
    else:
        coding = "utf-8-sig"
        if b"\0" in data:
            line = _line(data, data.index(b"\0"))
            raise InputError(f"{path}, line {line}: a NUL byte; this is not a text file")
    try:
        text = data.decode(coding)
    except UnicodeDecodeError as error:
        if coding == "utf-16":
            raise InputError(f"{path}: not a text file (damaged UTF-16)") from None
        offset = len(data) - len(error.object) + error.start  # the codec may cut off the mark
        line, byte = _line(data, offset), data[offset]
        raise InputError(
            f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8; save the table as UTF-8 text"
        ) from None
    if "\0" in text:
        raise InputError(f"{path}: a NUL character; this is not a text file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line(data: bytes, offset: int) -> int:
    before = data[:offset].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return before.count(b"\n") + 1


def _empty(path: str) -> InputError:
    return InputError(f"{path}: the file is empty")


def _tabulate(
    path: str,
    names: Sequence[str],
    columns: Sequence[pl.Series],
    lines: NDArray[np.int64],
    *,
    word: str = "line",
    decimal_comma: bool = False,
    nested: Iterable[str] = (),
    lists: Iterable[str] = (),
) -> TextTable:
    """A table from columns: cells stripped, nameless empty columns left out; a first column without
    a name, as pandas writes it, numbers the rows or says what they are: the models."""
    if not len(lines):
        raise InputError(f"{path}: there is a header but no row below it")
    kept: dict[str, pl.Series] = {}
    for number, (name, column) in enumerate(zip(names, columns, strict=True), 1):
        name = name.strip()
        cells = column.cast(pl.String).str.strip_chars()
        cells = cells.set((cells == "").fill_null(False), None)
        if not name and number == 1 and not cells.null_count():
            if cells.to_list() == list(map(str, range(len(cells)))):
                continue  # the index that pandas writes
            name = "model" if "model" not in {one.strip().lower() for one in names} else ""
        if not name and cells.null_count() < len(cells):
            raise InputError(f"{path}: column {number} holds values but has no name")
        if name in kept:
            raise InputError(f"{path}: two columns are called {shown(name)}")
        if name:
            kept[name] = cells.alias(name)
    return TextTable(
        path=path,
        frame=pl.DataFrame(list(kept.values())),
        lines=lines,
        word=word,
        decimal_comma=decimal_comma,
        nested=frozenset(kept) & {one.strip() for one in nested},
        lists=tuple(lists),
    )


def _read_parquet(path: str, data: bytes) -> TextTable:
    try_table(data, path)
    with whole_parquet(path):
        metadata = pl.read_parquet_metadata(BytesIO(data))
    frame = read_frame(data, path)
    if "shiftbed" in metadata:
        raise InputError(f"{path}: already a testbed, there is nothing to import")
    return table_of(path, frame)


def table_of(name: str, frame: pl.DataFrame) -> TextTable:
    """A frame as a table, which messages call by this name; structs become columns.

    >>> table_of("mine", pl.DataFrame({"model": ["a"], "val": [0.75]})).frame.row(0)
    ('a', '0.75')
    """
    nested: set[str] = set()
    while inner := [c for c, kind in frame.schema.items() if isinstance(kind, pl.Struct)]:
        for column in inner:
            fields = frame[column].struct.unnest()
            fields = fields.rename({one: f"{column}.{one}" for one in fields.columns})
            for one in set(fields.columns) & set(frame.columns):
                raise InputError(f"{name}: two columns are called {shown(one)}")
            nested.update(fields.columns)
            frame = frame.drop(column).hstack(fields)
    lists = [c for c, kind in frame.schema.items() if kind.is_nested() or kind in _NO_TEXT]
    frame = frame.drop(lists)
    lines = np.arange(1, len(frame) + 1)
    columns = frame.get_columns()
    return _tabulate(name, frame.columns, columns, lines, word="row", nested=nested, lists=lists)


# --- JSON Lines, and JSON with one object or a list of objects (as timm's validate.py writes) ----


# Objects become tuples of their pairs, so that repeated keys are seen; numbers stay text, so that
# what a message shows is what the file says.
_decoder = json.JSONDecoder(
    object_pairs_hook=tuple, parse_float=str, parse_int=str, parse_constant=str
)


def read_json_lines(path: str, text: str) -> TextTable:
    """One object per line; blank lines do not count."""
    lines = enumerate(text.split("\n"), 1)
    filled = ((number, line) for number, line in lines if line and not line.isspace())
    return _objects(path, ((number, _parse(path, line, number)) for number, line in filled), "line")


def read_json(path: str, text: str) -> TextTable:
    """JSON Lines if the first line is an object by itself, else objects as ``_items`` finds them.

    >>> read_json("a.json", '{"a": {"val": 0.5}, "b": {"val": 0.6}}').frame.rows()
    [('a', '0.5'), ('b', '0.6')]
    """
    if not text.strip():
        raise _empty(path)
    line, _, rest = text.lstrip().partition("\n")
    if rest.strip() and line.startswith("{") and line.rstrip().endswith("}"):
        return read_json_lines(path, text)
    return _objects(path, enumerate(_items(path, _parse(path, text, 0)), 1), "item")


def _items(path: str, whole: object) -> list[object]:
    """The rows of a document: a list of objects, one object, an object of lists (its columns), an
    object with one list of objects in it, or an object of objects, each a row named by its key."""
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, tuple):
        raise InputError(f"{path}: expected an object or a list of objects")
    inside = [value for _, value in whole]
    rows = [v for v in inside if isinstance(v, list) and v and all(type(o) is tuple for o in v)]
    if len(rows) == 1:
        return rows[0]
    if len(inside) > 1 and all(isinstance(v, list) for v in inside):
        lengths = {len(v) for v in inside}
        if len(lengths) > 1:
            raise InputError(f"{path}: the lists have different lengths, {sorted(lengths)}")
        names = [key for key, _ in whole]
        return [tuple(zip(names, row, strict=True)) for row in zip(*inside, strict=True)]
    if inside and all(isinstance(v, tuple) and v for v in inside):
        return [(("model", key), *(p for p in value if p[0] != "model")) for key, value in whole]
    return [whole]


def _parse(path: str, text: str, line: int) -> object:
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        at = line or error.lineno
        raise InputError(
            f"{path}, line {at}: not JSON at character {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise InputError(f"{path}, line {line or 1}: nested too deeply") from None


def _objects(path: str, rows: Iterable[tuple[int, object]], word: str) -> TextTable:
    """Columns in order of appearance; a key that a row lacks is empty there.

    Objects in objects become columns called by their path; lists are left out.
    """
    columns: dict[str, list[str | None]] = {}
    places: list[int] = []
    nested: set[str] = set()
    lists: dict[str, None] = {}
    for count, (place, row) in enumerate(rows):
        if not isinstance(row, tuple):
            raise InputError(f"{path}, {word} {place}: expected an object with keys and values")
        stack = list(reversed(row))
        while stack:
            key, value = stack.pop()
            if type(value) is tuple:
                inner = [(f"{key}.{name}", one) for name, one in value]
                nested.update(name for name, _ in inner)
                stack += reversed(inner)
                continue
            if type(value) is list:
                lists[key] = None
                continue
            column = columns.get(key)
            if column is None:
                column = columns[key] = [None] * count
            if len(column) > count:
                raise InputError(f"{path}, {word} {place}: key {shown(key)} appears twice")
            if len(column) < count:
                column += [None] * (count - len(column))
            if value is not None and type(value) is not str:
                value = "true" if value else "false"
            column.append(value)
        places.append(place)
    if not places:
        raise InputError(f"{path}: no rows")
    series = []
    for key, column in columns.items():
        column += [None] * (len(places) - len(column))
        try:
            series.append(pl.Series("", column, dtype=pl.String))
        except UnicodeError:
            raise InputError(f"{path}, column {key!a}: text that is not Unicode") from None
    lines = np.array(places, dtype=np.int64)
    left = [one for one in lists if one not in columns]
    return _tabulate(path, list(columns), series, lines, word=word, nested=nested, lists=left)


# --- text in columns: CSV, TSV and their cousins -------------------------------------------------


Raw = tuple[list[str], list[pl.Series], NDArray[np.int64]]


def read_delimited(path: str, text: str) -> TextTable:
    """A table from text with a header line; commas, semicolons or tabs separate the columns.

    Blank lines do not count, but line numbers count them. Every row must have as many fields as
    the header.
    """
    if not text.strip():
        raise _empty(path)
    delimiter = find_delimiter(text)
    split = split_quoted if '"' in text else split_plain
    names, columns, lines = split(path, text, delimiter)
    if "'" in text:  # before what would be a formula: see display.csv_text
        names = [re.sub(GUARDED, r"\1", name) for name in names]
        columns = [column.str.replace(GUARDED, "${1}") for column in columns]
    return _tabulate(path, names, columns, lines, decimal_comma=delimiter != ",")


def find_delimiter(text: str) -> str:
    """The delimiter that splits the header, best into the same number of fields as every row.

    >>> find_delimiter("model;val\\nresnet50;0,761")
    ';'
    """
    sample = text.lstrip("\n")[:_SAMPLE]
    if len(sample) == _SAMPLE and "\n" in sample:
        sample = sample[: sample.rindex("\n")]

    def merit(delimiter: str) -> tuple[bool, bool, int]:
        rows = csv.reader(StringIO(sample), delimiter=delimiter, skipinitialspace=True)
        some = [row for _, row in zip(range(50), rows, strict=False)]
        widths = [len(row) for row in some if len(row) > 1 or "".join(row).strip()]
        header = widths[0] if widths else 0
        return header > 1, len(set(widths)) == 1, header

    return max(DELIMITERS, key=merit)


def split_plain(path: str, text: str, delimiter: str) -> Raw:
    """Fields of text without quotes: fast, as a million rows are no rarity."""
    every = pl.Series(text.split("\n"), dtype=pl.String)
    filled = every.str.replace_all(delimiter, "", literal=True).str.strip_chars() != ""
    kept = filled.arg_true().to_numpy()
    lines = kept.astype(np.int64) + 1
    rows = every.gather(kept)
    if not len(rows):
        raise InputError(f"{path}: no column of the header has a name")
    header = rows[0].split(delimiter)
    widths = rows.str.count_matches(delimiter, literal=True).to_numpy() + 1
    ragged = np.flatnonzero(widths != len(header))
    if len(ragged):
        at = int(ragged[0])
        raise _ragged(path, int(lines[at]), int(widths[at]), len(header), delimiter)
    fields = rows[1:].str.split_exact(delimiter, len(header) - 1).struct.unnest()
    return header, fields.get_columns(), lines[1:]


def split_quoted(path: str, text: str, delimiter: str) -> Raw:
    """Fields of text with quotes, which may hold delimiters and line ends."""
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    numbered = enumerate(text.split("\n"), 1)
    for line, row in delimited_rows(numbered, delimiter, skip_spaces=True):
        if isinstance(row, str):
            raise InputError(f"{path}, line {line}: {row}")
        if not any(field.strip() for field in row):
            continue
        if not header:
            header = row
        elif len(row) != len(header):
            raise _ragged(path, line, len(row), len(header), delimiter)
        else:
            lines.append(line)
            rows.append(row)
    if not header:
        raise InputError(f"{path}: no column of the header has a name")
    columns = [pl.Series([r[i] for r in rows], dtype=pl.String) for i in range(len(header))]
    return header, columns, np.array(lines, dtype=np.int64)


def _ragged(path: str, line: int, got: int, wanted: int, delimiter: str) -> InputError:
    hint = ""
    if got > wanted and delimiter == ",":
        hint = "; if these are decimal commas, separate the columns by semicolons or tabs"
    plural = "" if got == 1 else "s"
    return InputError(f"{path}, line {line}: {got} field{plural}, the header has {wanted}{hint}")
