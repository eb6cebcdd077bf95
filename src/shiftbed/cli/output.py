"""How results leave: rich tables for people, JSON for programs; numbers formatted in one place."""

import json
from collections.abc import Iterable, Sequence
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
