"""How results leave: rich tables for people, JSON for programs; numbers formatted in one place."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

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

__all__ = ["interval", "number", "p_value", "percent", "points", "records"]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Level = Annotated[float, typer.Option(help="Confidence level of intervals.")]
TestbedName = Annotated[
    str, typer.Option("--testbed", "-t", help="A published testbed's name, or a testbed file.")
]


def as_json(value: Any) -> None:
    print(json.dumps(clean(value), indent=2, ensure_ascii=False))


def show(result: Result, json: bool) -> None:
    """A result as a command prints it."""
    if json:
        print(result.to_json())
    else:
        result.print()


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
