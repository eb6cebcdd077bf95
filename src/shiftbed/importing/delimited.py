"""Text in columns: CSV, TSV and their cousins."""

import csv
from io import StringIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.importing.table import Table, empty, tabulate

DELIMITERS = (",", ";", "\t")
_SAMPLE = 2**16
Raw = tuple[list[str], list[pl.Series], NDArray[np.int64]]


def read_delimited(path: str, text: str) -> Table:
    """A table from text with a header line; commas, semicolons or tabs separate the columns.

    Blank lines do not count, but line numbers count them. Every row must have as many fields as
    the header.
    """
    if not text.strip():
        raise empty(path)
    delimiter = find_delimiter(text)
    split = split_quoted if '"' in text else split_plain
    names, columns, lines = split(path, text, delimiter)
    return tabulate(path, names, columns, lines, decimal_comma=delimiter != ",")


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
    reader = csv.reader(StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
    header: list[str] = []
    fields: list[list[str]] = []
    lines: list[int] = []
    line = 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                if not header:
                    header, fields = row, [[] for _ in row]
                elif len(row) != len(header):
                    raise _ragged(path, line, len(row), len(header), delimiter)
                else:
                    lines.append(line)
                    for column, field in zip(fields, row, strict=True):
                        column.append(field)
            line = reader.line_num + 1
    except csv.Error as error:
        reason = "a quote is never closed" if "end of data" in str(error) else str(error)
        raise InputError(f"{path}, line {line}: {reason}") from None
    if not header:
        raise InputError(f"{path}: no column of the header has a name")
    columns = [pl.Series(column, dtype=pl.String) for column in fields]
    return header, columns, np.array(lines, dtype=np.int64)


def _ragged(path: str, line: int, got: int, wanted: int, delimiter: str) -> InputError:
    hint = ""
    if got > wanted and delimiter == ",":
        hint = "; if these are decimal commas, separate the columns by semicolons or tabs"
    plural = "" if got == 1 else "s"
    return InputError(f"{path}, line {line}: {got} field{plural}, the header has {wanted}{hint}")
