"""Cells to numbers, with complaints that name the cell."""

import re
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from shiftbed.errors import InputError
from shiftbed.importing.parts import NUMBER
from shiftbed.importing.units import Unit, Units
from shiftbed.reading.tables import TextTable

MOST = 2**31 - 1
"""The largest test-set size a testbed file can hold."""
_COMMA = r"^([+-]?[0-9]*),([0-9]+)$"
_NOT_FINITE = r"^(?i:[+-]?(?:nan|inf|infinity))$"
_PERCENT = r"^[+-]?[0-9.,]*[0-9] *%$"
_MISSING = r"^(?i:[+-]?nan|na|n/a|null|none|-+|\?|[+-]?inf|[+-]?infinity)$"
_WHOLE = r"^\+?[0-9]+(?:\.0)?$"
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SIGN = r" *%$"
_NUMERIC = "|".join((NUMBER, _COMMA, _NOT_FINITE, _PERCENT))
_NOTHING = r"^(?i:[+-]?nan|na|n/a|null|none|-+|–|—|\?)$"
_NAN = ("nan", "NaN", "NAN")
_DECIMAL = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"


def required(table: TextTable, column: str, what: str) -> pl.Series:
    """A column that every row must fill."""
    cells = table.frame[column]
    row = first(cells.is_null())
    if row is not None:
        raise InputError(f"{table.where(row, column)}: the {what} is missing")
    return cells


def mostly_numeric(table: TextTable, column: str) -> bool:
    """Whether half of the cells that are filled are numbers or mean to be."""
    cells = table.frame[column].drop_nulls()
    return bool(len(cells)) and 2 * int(cells.str.contains(_NUMERIC).sum()) >= len(cells)


def numbers(table: TextTable, column: str, signed: bool = True) -> pl.Series:
    """The numbers of a column, null where a cell is none; with or without those that have %."""
    cells = pointed(table, column)
    cells = cells.str.replace(_SIGN, "") if signed else cells
    return cells.cast(pl.Float64, strict=False).fill_nan(None)


def unevaluated(table: TextTable) -> tuple[TextTable, int]:
    """The table with empty cells where columns of numbers say nan, n/a or the like; how many."""
    count, frame = 0, table.frame
    for column in frame.columns:
        cells = frame[column]
        words = cells.str.contains(_NOTHING).fill_null(False)
        if not words.any():
            continue
        others = cells.filter(~words).drop_nulls()
        if others.str.contains(_NUMERIC).all() if len(others) else cells.is_in(_NAN).any():
            count += int(words.sum())
            frame = frame.with_columns(cells.set(words, None))
    return replace(table, frame=frame), count


def bounds_of(
    table: TextTable,
    setting: str | pl.Series,
    value: pl.Series,
    n: pl.Series | None,
    column: str,
    low: str | None,
    high: str | None,
    interval: str | None,
) -> list[pl.DataFrame]:
    """The intervals printed beside accuracies without n, as fractions: two columns of ends, or one
    column with both ends or with half of the width."""
    if low is not None and high is not None:
        ends, cells = (numbers(table, low), numbers(table, high)), [low, high]
    elif interval is not None:
        text = table.frame[interval].str.extract_all(_DECIMAL)
        one, two = (text.list.get(i, null_on_oob=True).cast(pl.Float64) for i in (0, 1))
        raw, single = numbers(table, column), text.list.len() == 1
        ends = (raw - one).zip_with(single, one), (raw + one).zip_with(single, two)
        cells = [interval]
    else:
        return []
    scale = 100.0 if (ends[1] > 1.0).any() else 1.0
    digits = {"resolution": _digits(table, cells), "coarser": _digits(table, [column])}
    scales = {"resolution": scale, "coarser": _scale(table, column, value)}
    frame = {"value": value, "low": ends[0] / scale, "high": ends[1] / scale}
    named = {"setting": setting, **frame, **digits}
    found = pl.DataFrame(named, schema_overrides={"setting": pl.String})
    found = (found if n is None else found.filter(n.fill_null(0) == 0)).drop_nulls()
    return [
        found.with_columns(
            (10.0 ** -pl.col(one).max().over("setting").cast(pl.Float64) / scales[one]).alias(one)
            for one in digits
        )
    ]


def _digits(table: TextTable, columns: Sequence[str]) -> pl.Series:
    """The most digits after the point that each row has in these columns."""
    text = table.frame.select(pl.concat_str(columns, separator=" ", ignore_nulls=True))
    found = text.to_series().str.extract_all(r"[.,][0-9]+").list.eval(pl.element().str.len_chars())
    return found.list.max().cast(pl.Int64).fill_null(1) - 1


def _scale(table: TextTable, column: str, value: pl.Series) -> float:
    raw = numbers(table, column)
    return 100.0 if (raw > 10 * value).any() else 1.0


def looks_numeric(table: TextTable, column: str) -> bool:
    """Whether any cell is a number or means to be one (0,5 or 76 % or NaN)."""
    cells = table.frame[column]
    return bool(cells.str.contains(_NUMERIC).any())


def reals(table: TextTable, column: str, hint: str = "") -> pl.Series:
    """Numbers of a column, null where a cell is empty; anything else is refused."""
    cells, text = table.frame[column], pointed(table, column)
    row = first(~text.str.contains(NUMBER))
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a number{_why(cells[row], hint)}")
    return text.cast(pl.Float64) + 0.0  # −0 becomes 0


def pointed(table: TextTable, column: str) -> pl.Series:
    """The cells of a column, decimal commas turned into points where they are allowed."""
    cells = table.frame[column]
    return cells.str.replace(_COMMA, "${1}.${2}") if table.decimal_comma else cells


def _why(value: str, hint: str) -> str:
    if re.match(_MISSING, value):
        return "; leave the cell empty where a model was not evaluated"
    if value.endswith("%"):
        return "; write % in every cell of the column, or nowhere and pass --unit percent"
    if re.match(_COMMA, value):
        return "; a decimal comma is read only where semicolons or tabs separate the columns"
    return hint


def accuracies(
    table: TextTable,
    column: str,
    units: Units,
    models: pl.Series,
    setting: str | pl.Series,
    hint: str = "",
    accuracy: pl.Series | None = None,
) -> tuple[pl.Series, pl.Series]:
    """Accuracies as fractions, and which of them were divided by 100 by nothing but the rule.

    A column in which every cell has a percent sign says itself what it is in.
    """
    cells = table.frame[column]
    signed = cells.str.contains(_SIGN)
    if signed.any() and signed.all():
        table = replace(table, frame=table.frame.with_columns(cells.str.replace(_SIGN, "")))
        return fractions(table, column, "percent", hint, accuracy), ~signed
    if isinstance(setting, str):
        setting = pl.Series([setting]).new_from_index(0, len(cells))
    said = units.of(table.path, models, setting)
    unit = said if units.rule is None else said.fill_null(units.rule)
    divided = said.is_null() & (unit == "percent").fill_null(False)
    if accuracy is not None:
        divided &= accuracy
    return fractions(table, column, unit, hint, accuracy), divided


def fractions(
    table: TextTable,
    column: str,
    unit: Unit | pl.Series | None,
    hint: str = "",
    accuracy: pl.Series | None = None,
) -> pl.Series:
    """Accuracies as fractions, null where a cell is empty; a value out of range is refused.

    ``unit`` may differ from row to row. Where ``accuracy`` is false the value is of another kind
    and only has to be finite.
    """
    values = reals(table, column, hint)
    row = first(values.is_infinite())
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is too large a number")
    if not isinstance(unit, pl.Series):
        unit = pl.Series([unit], dtype=pl.String).new_from_index(0, len(values))
    top = unit.replace_strict({"percent": 100.0}, default=1.0, return_dtype=pl.Float64)
    wrong = (values < 0.0) | (values > top)
    row = first(wrong if accuracy is None else wrong & accuracy)
    if row is None:
        scaled = values / top  # by a scalar it would round twice
        return scaled if accuracy is None else scaled.zip_with(accuracy, values)
    where, value = table.cell(row, column), values[row]
    if unit[row] == "percent":
        raise InputError(f"{where} is not a percentage between 0 and 100{hint}")
    if unit[row] is None and 1.0 < value <= 100.0:
        hint = "; if the file is in percent, pass unit='percent' (--unit percent)" + hint
    raise InputError(f"{where} is not a fraction between 0 and 1{hint}")


def wholes(table: TextTable, column: str, least: int = 0) -> pl.Series:
    """Whole numbers of a column, null where a cell is empty. 50,000 and 50.000 are refused."""
    cells = table.frame[column]
    numbers = cells.str.replace(r"\.0$", "").str.strip_prefix("+").cast(pl.Int64, strict=False)
    good = cells.str.contains(_WHOLE) & numbers.is_between(least, MOST).fill_null(False)
    row = first(cells.is_not_null() & ~good)
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a whole number from {least} to {MOST}")
    return numbers


def truths(table: TextTable, column: str) -> pl.Series:
    """Booleans of a column; every cell must be true or false (or yes, no, 1, 0)."""
    cells = table.frame[column]
    values = cells.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Boolean)
    row = first(values.is_null())
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is neither true nor false")
    return values


def first(mask: pl.Series) -> int | None:
    """Row of the first true value."""
    found = mask.fill_null(False).arg_true()
    return int(found[0]) if len(found) else None
