"""How results leave: rich tables for people, JSON for programs; numbers formatted in one place."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.display import (
    Result,
    Table,
    clean,
    interval,
    number,
    p_value,
    percent,
    points,
    records,
    terminal,
)
from shiftbed.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from shiftbed.results.charts import Charted

__all__ = ["interval", "number", "p_value", "percent", "points", "records"]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Level = Annotated[float, typer.Option(help="Confidence level of intervals.")]
TestbedName = Annotated[
    str, typer.Option("--testbed", "-t", help="A published testbed's name, or a testbed file.")
]

TABLE_SUFFIXES = (".parquet", ".csv", ".json")
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the table: .parquet, .csv or .json.")
]
Figure = Annotated[Path | None, typer.Option(help="Draw it: .png, .svg, .pdf or .html.")]


def as_json(value: Any) -> None:
    print(json.dumps(clean(value), indent=2, ensure_ascii=False))


def show(result: Result, json: bool) -> None:
    """A result as a command prints it."""
    if json:
        print(result.to_json())
    else:
        result.print()


def call(function: Callable[..., "Charted"], given: Mapping[str, Any], **chart: Any) -> None:
    """Call a function with the options of its command; write what is asked for, and show it.

    ``given`` are the command's own arguments, under the names that the function has for them;
    ``output``, ``figure`` and ``json`` stay here. ``chart`` are options of the result's chart.
    """
    output, figure, json = given["output"], given["figure"], given["json"]
    check_files(output, figure)
    names = signature(function).parameters
    result = function(**{name: value for name, value in given.items() if name in names})
    if figure is not None:
        from shiftbed.page import save

        save(result.chart(**chart), figure)
    if output is not None:
        write_table(result.frame, output)
    show(result, json)
    for path in () if json else filter(None, (output, figure)):
        print(f"wrote {path}")


def check_files(output: Path | None, *figures: Path | None) -> None:
    """Refuse a file of the wrong kind before anything is computed."""
    if output is not None:
        check_table_path(output)
    for figure in filter(None, figures):
        from shiftbed.page import SUFFIXES

        if figure.suffix.lower() not in SUFFIXES:
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


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar per thing that is done, hearing (what, how much is done, of how much).

    Nothing is drawn where it is ``quiet`` or nobody watches.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield report


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    notes: Iterable[str] = (),
    left: int = 1,
) -> None:
    """A table with the first ``left`` columns aligned left, then notes, one a line."""
    texts = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)
    Table(title=title, columns=tuple(columns), rows=texts, notes=tuple(notes), left=left).print(
        terminal()
    )


def pairs(texts: Iterable[str], option: str, form: str) -> dict[str, str]:
    """``NAME=VALUE`` options as a dictionary; a name given twice is refused."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name.strip() or not value.strip():
            raise InputError(f"{option}: expected {form}, got {text!r}")
        if name.strip() in found:
            raise InputError(f"{option}: {name.strip()!r} is given twice")
        found[name.strip()] = value.strip()
    return found
