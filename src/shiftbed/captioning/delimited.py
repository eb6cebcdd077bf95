"""CSV and TSV files of captions, line by line, whatever is in them.

A line of bytes that is not UTF-8 is read with replacement characters; a line that is too long, has
another number of fields than the header or a quote that never closes is left out. All are counted.
In CSV a quoted field may go over lines; in TSV a line is a row and quotes around a field fall away.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl

from shiftbed.captioning.columns import (
    BATCH,
    LONGEST,
    Asked,
    Columns,
    Problems,
    batch_frame,
    choose_columns,
)
from shiftbed.errors import InputError

Line = tuple[int, bytes]


def read_delimited(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """The rows of a file in batches; ``row`` is the line a row begins on, counted from 1."""
    with path.open("rb") as file:
        rows = _rows(_Lines(file, problems), path.suffix.lower() == ".tsv", problems)
        header = next(rows, None)
        if header is None:
            raise InputError(f"{path}: empty; expected a header such as id,url,caption")
        names = [name.strip().removeprefix("\ufeff") for name in header[1]]
        columns = choose_columns(str(path), names, asked)
        yield from _batches(rows, names, columns, problems)


def _batches(
    rows: Iterator[tuple[int, list[str]]], header: list[str], columns: Columns, problems: Problems
) -> Iterator[pl.DataFrame]:
    width, at = len(header), {p: header.index(c) for p, c in columns.used().items()}
    lines: list[int] = []
    kept: list[list[str]] = []
    for line, row in rows:
        if len(row) != width:
            problems.add("malformed")
            continue
        lines.append(line)
        kept.append(row)
        if len(kept) == BATCH:
            yield batch_frame({"row": lines, **{p: [r[i] for r in kept] for p, i in at.items()}})
            lines, kept = [], []
    if kept:
        yield batch_frame({"row": lines, **{p: [r[i] for r in kept] for p, i in at.items()}})


class _Lines:
    """Lines with their numbers; too long ones are passed over without being held."""

    def __init__(self, file: BinaryIO, problems: Problems) -> None:
        self.file, self.problems = file, problems
        self.number = 0
        self.again: list[Line] = []

    def next(self) -> Line | None:
        """The next line, or None at the end."""
        if self.again:
            return self.again.pop()
        while True:
            line = self.file.readline(LONGEST + 1)
            if not line:
                return None
            self.number += 1
            if len(line) <= LONGEST:
                return self.number, line
            self.problems.add("too_long")
            while line and not line.endswith(b"\n"):
                line = self.file.readline(LONGEST)

    def give_back(self, lines: list[Line]) -> None:
        """To be read again."""
        self.again += reversed(lines)


def _rows(lines: _Lines, tabs: bool, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Rows of fields with the line each begins on."""
    while (line := lines.next()) is not None:
        number, data = line
        plain = data.rstrip(b"\r\n")
        if not plain:
            continue
        if b'"' not in plain:
            yield number, _text(plain, problems).split("\t" if tabs else ",")
        elif tabs:
            yield number, [_unquoted(one) for one in _text(plain, problems).split("\t")]
        else:
            row = _quoted(line, lines, problems)
            if row is None:
                problems.add("malformed")
            else:
                yield number, row


def _quoted(line: Line, lines: _Lines, problems: Problems) -> list[str] | None:
    """The fields of a row with quotes, which may go over lines; None if that cannot be made out."""
    data = line[1]
    opens = data.startswith(b'"') or b',"' in data
    if not opens or data.count(b'"') % 2 == 0:
        return _parse(_text(data.rstrip(b"\r\n"), problems))
    taken, size, odd = [line], len(data), True
    while odd and size <= LONGEST and (more := lines.next()) is not None:
        taken.append(more)
        size += len(more[1])
        odd ^= more[1].count(b'"') % 2 == 1
    whole = b"".join(one for _, one in taken)
    row = None if odd else _parse(_text(whole.rstrip(b"\r\n"), problems))
    if row is None:
        lines.give_back(taken[1:])
    return row


def _parse(text: str) -> list[str] | None:
    try:
        found = list(csv.reader([text], strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


def _unquoted(field: str) -> str:
    if len(field) > 1 and field[0] == field[-1] == '"':
        return field[1:-1].replace('""', '"')
    return field


def _text(data: bytes, problems: Problems) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        problems.add("invalid_utf8")
        return data.decode(errors="replace")
