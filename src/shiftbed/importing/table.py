"""A table as it was read: strings, and where in the file each row stands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Strings only, stripped, null where empty; numbers are made where the meaning is known."""

    path: str
    frame: pl.DataFrame
    lines: NDArray[np.int64]
    """(rows,): where each row stands in the file."""
    word: str = "line"
    """What ``lines`` counts: lines of a text (the header's is 1), or rows or items from 1."""
    decimal_comma: bool = False
    """Whether 0,5 is a number here, as it may be where semicolons or tabs separate columns."""

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

    def drop(self, columns: Iterable[str]) -> "Table":
        """Without these columns, as far as it has them."""
        frame = self.frame.drop([c for c in columns if c in self.frame.columns])
        return Table(
            path=self.path,
            frame=frame,
            lines=self.lines,
            word=self.word,
            decimal_comma=self.decimal_comma,
        )


def tabulate(
    path: str,
    names: Sequence[str],
    columns: Sequence[pl.Series],
    lines: NDArray[np.int64],
    *,
    word: str = "line",
    decimal_comma: bool = False,
) -> Table:
    """A table from string columns: cells stripped, nameless empty columns left out."""
    if not len(lines):
        raise InputError(f"{path}: there is a header but no row below it")
    kept: dict[str, pl.Series] = {}
    for number, (name, column) in enumerate(zip(names, columns, strict=True), 1):
        name = name.strip()
        cells = column.cast(pl.String).str.strip_chars()
        cells = cells.set((cells == "").fill_null(False), None)
        if not name and cells.null_count() < len(cells):
            raise InputError(f"{path}: column {number} holds values but has no name")
        if name in kept:
            raise InputError(f"{path}: two columns are called {shown(name)}")
        if name:
            kept[name] = cells.alias(name)
    frame = pl.DataFrame(list(kept.values()))
    return Table(path=path, frame=frame, lines=lines, word=word, decimal_comma=decimal_comma)


def empty(path: str) -> InputError:
    """The complaint about a file with nothing in it."""
    return InputError(f"{path}: the file is empty")


def shown(text: str) -> str:
    """A name or a value for a message: quoted, on one line, not too long.

    >>> shown("resnet50"), shown("a\\nb")
    ("'resnet50'", "'a\\\\nb'")
    """
    return repr(text if len(text) <= 60 else text[:57] + "...")


def first(mask: pl.Series) -> int | None:
    """Row of the first true value."""
    found = mask.fill_null(False).arg_true()
    return int(found[0]) if len(found) else None
