"""JSON Lines, and JSON with one object or a list of objects (as timm's validate.py writes)."""

import json
from collections.abc import Iterable

import numpy as np
import polars as pl

from shiftbed.errors import InputError
from shiftbed.importing.table import Table, empty, shown, tabulate

# Objects become tuples of their pairs, so that repeated keys are seen; numbers stay text, so that
# what a message shows is what the file says.
_decoder = json.JSONDecoder(
    object_pairs_hook=tuple, parse_float=str, parse_int=str, parse_constant=str
)


def read_json_lines(path: str, text: str) -> Table:
    """One object per line; blank lines do not count."""
    return _columns(path, _lines(path, text), "line")


def read_json(path: str, text: str) -> Table:
    """JSON Lines if the first line is an object by itself, else one object or a list of them."""
    if not text.strip():
        raise empty(path)
    line, _, rest = text.lstrip().partition("\n")
    if rest.strip() and line.startswith("{") and line.rstrip().endswith("}"):
        return read_json_lines(path, text)
    whole = _parse(path, text, 0)
    items = [whole] if isinstance(whole, tuple) else whole
    if not isinstance(items, list):
        raise InputError(f"{path}: expected an object or a list of objects")
    return _columns(path, enumerate(items, 1), "item")


def _lines(path: str, text: str) -> Iterable[tuple[int, object]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line and not line.isspace():
            yield number, _parse(path, line, number)


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


def _columns(path: str, rows: Iterable[tuple[int, object]], word: str) -> Table:
    """Columns in order of appearance; a key that a row lacks is empty there."""
    columns: dict[str, list[str | None]] = {}
    places: list[int] = []
    for count, (place, row) in enumerate(rows):
        if not isinstance(row, tuple):
            raise InputError(f"{path}, {word} {place}: expected an object with keys and values")
        for key, value in row:
            column = columns.get(key)
            if column is None:
                column = columns[key] = [None] * count
            if len(column) > count:
                raise InputError(f"{path}, {word} {place}: key {shown(key)} appears twice")
            if len(column) < count:
                column += [None] * (count - len(column))
            column.append(value if type(value) is str else _text(path, word, place, key, value))
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
    return tabulate(path, list(columns), series, np.array(places, dtype=np.int64), word=word)


def _text(path: str, word: str, place: int, key: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    raise InputError(
        f"{path}, {word} {place}, column {shown(key)}: expected a number or text, got a list "
        "or an object"
    )
