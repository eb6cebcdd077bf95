"""How results leave: rich tables for people, JSON for programs, tables and figures to files."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from shiftbed.display import Result, csv_text
from shiftbed.errors import InputError
from shiftbed.places import shown_place, url_of

if TYPE_CHECKING:
    import polars as pl
T = TypeVar("T")
TABLE_SUFFIXES = (".parquet", ".csv", ".json")


def show(result: Result, json: bool, *, failed: object = False) -> None:
    """A result as a command prints it; exit code 1 if something ``failed``."""
    if json:
        print(result.to_json())
    else:
        result.print()
    if failed:
        raise typer.Exit(1)


def call(function: Callable[..., T], given: Mapping[str, Any], **changed: Any) -> T:
    """What a public function returns for the options of its command.

    ``given`` are the command's own arguments, ``changed`` those that the function takes in another
    form, or (None) does not take. What was not given is left to the function, ``json`` to ``show``.

    >>> call(round, {"number": 2.25, "ndigits": None, "json": False}, number=2.75)
    3
    """
    options = {**given, **changed, "json": None}
    return function(**{k: _given(v) for k, v in options.items() if v is not None and v != []})


def _given(value: Any) -> Any:
    """An option's value; a URL that was read as a path has its two slashes again."""
    if isinstance(value, list):
        return [_given(one) for one in value]
    return shown_place(value) if isinstance(value, Path) and url_of(value) else value


def check_files(output: Path | None, *figures: Path | None) -> None:
    """Refuse a file of the wrong kind before anything is computed."""
    if output is not None:
        check_table_path(output)
    for figure in filter(None, figures):
        from shiftbed.page.document import check_suffix

        check_suffix(figure)


def check_table_path(path: str | Path) -> str:
    """The suffix of a table's file, refused if it is none of ``TABLE_SUFFIXES``.

    >>> check_table_path("found.CSV")
    '.csv'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise InputError(
            f"{path}: a table is written to {', '.join(TABLE_SUFFIXES)}, not {suffix!r}"
        )
    return suffix


def write_table(frame: "pl.DataFrame", path: str | Path) -> None:
    """Write a polars table to the kind of file its name ends in, atomically.

    NaN becomes null in all three: an empty cell in CSV. JSON is a list of rows. CSV has lists of
    texts with semicolons between them, and refuses other lists; see ``display.csv_text``.
    """
    import polars as pl
    import polars.selectors as cs

    from shiftbed.atomic import write_atomically

    suffix = check_table_path(path)
    plain = frame.with_columns(cs.float().fill_nan(None))
    if suffix == ".csv":
        plain = plain.with_columns(cs.by_dtype(pl.List(pl.String)).list.join("; "))
    nested = [name for name, kind in plain.schema.items() if kind.is_nested()]
    if suffix == ".csv" and nested:
        raise InputError(f"{path}: column {nested[0]!r} holds lists; write .parquet or .json")
    with write_atomically(path) as file:
        if suffix == ".parquet":
            plain.write_parquet(file, compression="zstd")
        elif suffix == ".csv":
            file.write(csv_text(plain).encode())
        else:
            file.write(plain.write_json().encode())


def pairs(texts: Iterable[str] | None, option: str, form: str) -> dict[str, str]:
    """``NAME=VALUE`` options as a dictionary; a name given twice is refused.

    >>> pairs(["val=0.7", "a=b=c"], "--id", "SETTING=ACCURACY")
    {'val': '0.7', 'a=b': 'c'}
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name.strip() or not value.strip():
            raise InputError(f"{option}: expected {form}, got {text!r}")
        if name.strip() in found:
            raise InputError(f"{option}: {name.strip()!r} is given twice")
        found[name.strip()] = value.strip()
    return found


def values(texts: Iterable[str] | None, option: str) -> dict[str, Any]:
    """KEY=VALUE pairs, values as JSON where they are, as text otherwise.

    >>> values(["steps=20", "mode=RGB"], "--attack-option")
    {'steps': 20, 'mode': 'RGB'}
    """
    from json import JSONDecodeError, loads

    found: dict[str, Any] = {}
    for key, value in pairs(texts, option, "KEY=VALUE").items():
        try:
            found[key] = loads(value)
        except JSONDecodeError:
            found[key] = value
    return found


def whole_numbers(texts: Iterable[str] | None, option: str, form: str) -> dict[str, int]:
    """NAME=N pairs."""
    return {name: whole_number(text, option) for name, text in pairs(texts, option, form).items()}


def whole_number(text: str, option: str) -> int:
    if not text.isdigit():
        raise InputError(f"{option}: expected a whole number, got {text!r}")
    return int(text)
