"""Finished tables to files: Parquet, CSV or JSON, whole or not at all; options for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbed.errors import InputError

if TYPE_CHECKING:
    import polars as pl


TABLE_SUFFIXES = (".parquet", ".csv", ".json")
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the table: .parquet, .csv or .json.")
]
Figure = Annotated[Path | None, typer.Option(help="Draw it: .png, .svg, .pdf or .html.")]


def check_files(output: Path | None, figure: Path | None) -> None:
    """Refuse a file of the wrong kind before anything is computed."""
    from shiftbed.page import SUFFIXES

    if output is not None:
        check_table_path(output)
    if figure is not None and figure.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{figure}: a figure is written to {', '.join(SUFFIXES)}, not {figure.suffix!r}"
        )


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

    NaN becomes null in all three: an empty cell in CSV. JSON is a list of rows. Lists are refused
    by CSV, which has no place for them.
    """
    import polars as pl
    import polars.selectors as cs

    from shiftbed.atomic import write_atomically

    suffix = check_table_path(path)
    plain = frame.with_columns(cs.float().fill_nan(None))
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    if suffix == ".csv" and nested:
        raise InputError(f"{path}: column {nested[0]!r} holds lists; write .parquet or .json")
    with write_atomically(path) as file:
        if suffix == ".parquet":
            plain.write_parquet(file, compression="zstd")
        elif suffix == ".csv":
            plain.with_columns(cs.by_dtype(pl.Null).cast(pl.String)).write_csv(file)
        else:
            file.write(plain.write_json().encode())
