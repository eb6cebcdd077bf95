"""Cells to numbers, with complaints that name the cell."""

import re
from typing import Literal

import polars as pl

from shiftbed.errors import InputError
from shiftbed.importing.table import Table, first

Unit = Literal["fraction", "percent"]
MOST = 2**31 - 1
"""The largest test-set size a testbed file can hold."""
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_COMMA = r"^([+-]?[0-9]*),([0-9]+)$"
_NOT_FINITE = r"^(?i:[+-]?(?:nan|inf|infinity))$"
_PERCENT = r"^[+-]?[0-9.,]*[0-9] *%$"
_MISSING = r"^(?i:[+-]?nan|na|n/a|null|none|-+|\?|[+-]?inf|[+-]?infinity)$"
_WHOLE = r"^\+?[0-9]+(?:\.0)?$"
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def looks_numeric(table: Table, column: str) -> bool:
    """Whether any cell is a number or means to be one (0,5 or 76 % or NaN)."""
    cells = table.frame[column]
    pattern = "|".join((_NUMBER, _COMMA, _NOT_FINITE, _PERCENT))
    return bool(cells.str.contains(pattern).any())


def reals(table: Table, column: str, hint: str = "") -> pl.Series:
    """Numbers of a column, null where a cell is empty; anything else is refused."""
    cells, text = table.frame[column], pointed(table, column)
    row = first(~text.str.contains(_NUMBER))
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a number{_why(cells[row], hint)}")
    return text.cast(pl.Float64) + 0.0  # −0 becomes 0


def pointed(table: Table, column: str) -> pl.Series:
    """The cells of a column, decimal commas turned into points where they are allowed."""
    cells = table.frame[column]
    return cells.str.replace(_COMMA, "${1}.${2}") if table.decimal_comma else cells


def _why(value: str, hint: str) -> str:
    if re.match(_MISSING, value):
        return "; leave the cell empty where a model was not evaluated"
    if value.endswith("%"):
        return "; write the number alone and pass unit='percent' (--unit percent)"
    if re.match(_COMMA, value):
        return "; a decimal comma is read only where semicolons or tabs separate the columns"
    return hint


def fractions(
    table: Table,
    column: str,
    unit: Unit | None,
    hint: str = "",
    accuracy: pl.Series | None = None,
) -> pl.Series:
    """Accuracies as fractions, null where a cell is empty; a value out of range is refused.

    Where ``accuracy`` is false the value is of another kind and only has to be finite.
    """
    values = reals(table, column, hint)
    row = first(values.is_infinite())
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is too large a number")
    top = 100.0 if unit == "percent" else 1.0
    wrong = (values < 0.0) | (values > top)
    row = first(wrong if accuracy is None else wrong & accuracy)
    if row is None:
        scaled = values / pl.Series([top]).new_from_index(0, len(values))  # a scalar rounds twice
        return scaled if accuracy is None else scaled.zip_with(accuracy, values)
    where, value = table.cell(row, column), values[row]
    if unit == "percent":
        raise InputError(f"{where} is not a percentage between 0 and 100{hint}")
    if unit is None and 1.0 < value <= 100.0:
        hint = "; if the file is in percent, pass unit='percent' (--unit percent)" + hint
    raise InputError(f"{where} is not a fraction between 0 and 1{hint}")


def wholes(table: Table, column: str, least: int = 0) -> pl.Series:
    """Whole numbers of a column, null where a cell is empty. 50,000 and 50.000 are refused."""
    cells = table.frame[column]
    numbers = cells.str.replace(r"\.0$", "").str.strip_prefix("+").cast(pl.Int64, strict=False)
    good = cells.str.contains(_WHOLE) & numbers.is_between(least, MOST).fill_null(False)
    row = first(cells.is_not_null() & ~good)
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a whole number from {least} to {MOST}")
    return numbers


def truths(table: Table, column: str) -> pl.Series:
    """Booleans of a column; every cell must be true or false (or yes, no, 1, 0)."""
    cells = table.frame[column]
    values = cells.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Boolean)
    row = first(values.is_null())
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is neither true nor false")
    return values


def typed(cells: pl.Series) -> pl.Series:
    """Text as whole numbers if all are, else as numbers if all are, else as it was."""
    plain = cells.str.replace_all(r"^([0-9]{1,3}),([0-9]{3}\.[0-9]+)$", "$1$2")
    if plain.str.contains(r"^[+-]?[0-9]{1,18}$").all():
        return plain.cast(pl.Int64)
    return plain.cast(pl.Float64) if plain.str.contains(_NUMBER).all() else cells
