"""How results leave: rich tables for people, JSON for programs; numbers formatted in one place."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from shiftbed.errors import InputError

__all__ = [
    "AsJson",
    "Level",
    "TestbedName",
    "as_json",
    "interval",
    "measured",
    "number",
    "p_value",
    "pairs",
    "percent",
    "points",
    "records",
    "table",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Level = Annotated[float, typer.Option(help="Confidence level of intervals.")]
TestbedName = Annotated[
    str, typer.Option("--testbed", "-t", help="A published testbed's name, or a testbed file.")
]


def clean(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean(one) for one in value]
    return value


def as_json(value: Any) -> None:
    print(json.dumps(clean(value), indent=2, ensure_ascii=False))


def records(frame: Any, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Rows of a polars frame as dictionaries."""
    return list((frame.select(columns) if columns else frame).iter_rows(named=True))


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    notes: Iterable[str] = (),
    left: int = 1,
) -> None:
    """A table with the first ``left`` columns aligned left, then notes, one a line."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:  # a pipe or a file has no width to fit into
        console = Console(highlight=False, width=200)
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        grid.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console.print(grid)
    for note in notes:
        console.print(Text(note), soft_wrap=True)


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def percent(value: float | None, digits: int = 2) -> str:
    """An accuracy as a percentage.

    >>> percent(0.7613)
    '76.13'
    """
    return "" if _missing(value) else f"{100 * value:.{digits}f}"  # type: ignore[operator]


def points(value: float | None, digits: int = 2) -> str:
    """A difference of accuracies in points, with its sign.

    >>> points(0.0111)
    '+1.11'
    """
    return "" if _missing(value) else f"{100 * value:+.{digits}f}"  # type: ignore[operator]


def interval(low: float | None, high: float | None) -> str:
    return "" if _missing(low) or _missing(high) else f"{points(low)} … {points(high)}"


def number(value: float | None, digits: int = 4) -> str:
    return "" if _missing(value) else f"{value:.{digits}f}"


def p_value(value: float | None) -> str:
    """A p-value that never prints as zero.

    >>> p_value(1e-7), p_value(0.0312)
    ('<0.0001', '0.0312')
    """
    if _missing(value):
        return ""
    return "<0.0001" if value < 1e-4 else f"{value:.4f}"  # type: ignore[operator]


_FRACTION = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


def measured(text: str, option: str) -> tuple[float, int]:
    """An accuracy such as 0.7613, or a count such as 38210/50000, as (fraction, n or 0)."""
    found = _FRACTION.fullmatch(text)
    if found:
        right, n = int(found[1]), int(found[2])
        if n == 0 or right > n:
            raise InputError(f"{option}: {text!r} is not a count of right answers out of a total")
        return right / n, n
    try:
        value = float(text)
    except ValueError:
        raise InputError(
            f"{option}: expected an accuracy such as 0.7613 or a count such as 38065/50000, "
            f"got {text!r}"
        ) from None
    if math.isnan(value):
        raise InputError(f"{option}: an accuracy cannot be NaN")
    return value, 0


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
