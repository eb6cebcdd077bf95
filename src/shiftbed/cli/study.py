"""What commands on a study of (ID, OOD) pairs share: their options, reading it, printing it."""

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import number, p_value, records, table
from shiftbed.errors import unknown

if TYPE_CHECKING:
    import polars as pl

    from shiftbed.analysis.pairs import PairTable


Source = Annotated[
    str,
    typer.Argument(
        help="A published testbed's name, a testbed file, a prediction store, or a plain file "
        "(CSV, Parquet, JSON) with the columns task, id, ood, model, where, metric and value."
    ),
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only these types of shift.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only these tasks.")]
Draws = Annotated[int, typer.Option(help="Resamples for intervals.")]
Seed = Annotated[int, typer.Option(help="Seed of the resampling.")]


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "pair"), counted(2, "pair")
    ('1 pair', '2 pairs')
    """
    return f"{n} {what}" + ("" if n == 1 else "s")


def open_study(
    source: str, kinds: list[str] | None, tasks: list[str] | None, also: list[str] | None = None
) -> tuple["PairTable", ...]:
    from shiftbed.results.pairs import open_pairs

    pairs = open_pairs(source, kinds=kinds or None, also=also or ())
    known = list(dict.fromkeys(pair.task for pair in pairs))
    for name in tasks or ():
        if name not in known:
            raise unknown("task", name, known)
    return tuple(pair for pair in pairs if not tasks or pair.task in tasks)


def study_notes(pairs: tuple["PairTable", ...], *, held_out: bool = True) -> list[str]:
    from shiftbed.results.pairs import notes_of

    return notes_of(pairs, held_out=held_out)


def write(frame: "pl.DataFrame", output: Path | None) -> None:
    from shiftbed.cli.tablefile import write_table

    if output is not None:
        write_table(frame, output)


def print_table(title: str, frame: "pl.DataFrame", notes: list[str]) -> None:
    """A finished table: an interval in one column, p-values that never print as zero."""
    rows = records(frame)
    ends = [c for c in frame.columns if c.endswith(("low", "high"))]
    shown = [
        c for c in frame.columns if not c.endswith("high") and c not in ("alternative", "chosen_by")
    ]
    text = frame["note"].dtype
    left = len(list(takewhile(lambda name: frame.schema[name] == text, shown)))
    cells = []
    for row in rows:
        line: list[Any] = []
        for name in shown:
            value = row[name]
            if name in ends:
                line.append(_span(value, row[name.replace("low", "high")]))
            elif name in ("p_value", "q_value"):
                line.append(p_value(value))
            else:
                line.append(number(value, 3) if isinstance(value, float) else value)
        cells.append(line)
    heads = [name.replace("low", "interval").replace("_", " ") for name in shown]
    table(title, heads, cells, notes=notes, left=left)


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.3f} … {high:.3f}"
