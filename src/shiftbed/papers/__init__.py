"""Tables and figures of the papers, recomputed beside what they print.

Every figure a paper prints is one cell: what is printed, what the shipped tables give, their
difference and whether that is within the rounding of the print. What a paper prints is kept in
``printed/PAPER.csv``, transcribed from a machine-read text copy of the paper; a figure which that
copy lost has no printed value there, and a note saying why. One that the paper does not print
has a ~ there, with a reference value of another origin behind it if there is one. How each figure
is recomputed is in the module of that paper.
"""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module, resources
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from shiftbed.display import Cell as Text
from shiftbed.display import Result, Table, number
from shiftbed.errors import InputError, unknown
from shiftbed.places import local

__all__ = [
    "PAPERS",
    "Cell",
    "Printed",
    "Recomputed",
    "Reproduced",
    "Status",
    "compare",
    "printed",
    "reproduce",
]

PAPERS = ("taori2020", "andreassen2021", "fridovich2022", "wenzel2022", "shi2023")

Status = Literal[
    "equal", "follows from print", "differs", "not recomputable", "not legible", "not printed"
]
STATUSES: tuple[str, ...] = get_args(Status)
"""``follows from print``: arithmetic on other figures that the paper prints, which agrees; equal is
recomputed from data. ``not printed``: the paper only draws it, or prints nothing of the kind."""
Key = tuple[str, str, str]
"""Table, row, column."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A figure as the paper prints it; ``text`` is empty where it cannot be read."""

    table: str
    row: str
    column: str
    text: str
    note: str = ""
    decimals: int = 0
    """Digits after the point that the print was rounded to."""
    drawn: bool = False
    """The paper does not print it; ``text`` is a reference value, if any."""

    @property
    def key(self) -> Key:
        return self.table, self.row, self.column


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """A figure in the paper's units, NaN where there is none."""

    value: float = math.nan
    why: str = ""
    """How it came about, or why there is none."""
    follows: bool = False
    """Whether it is arithmetic on other figures that the paper prints."""
    if_differs: str = ""
    """What is known of the reason, should it not agree with the print."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A printed figure beside the recomputed one, both in the paper's units."""

    table: str
    row: str
    column: str
    printed: float | None
    recomputed: float | None
    difference: float | None
    """Recomputed − printed."""
    status: Status
    why: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reproduced(Result):
    """A paper's printed figures beside the recomputed ones, a row of ``frame`` each."""

    paper: str
    cells: tuple[Cell, ...]

    def answer(self) -> Iterable[str]:
        return [f"{self.paper}: {note}." for note in self.notes]

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Text] = {
            **{name: name for name in ("table", "row", "column")},
            "printed": lambda c: "" if c["printed"] is None else f"{c['printed']:g}",
            "recomputed": ("recomputed", number),
            "difference": lambda c: "" if c["difference"] is None else f"{c['difference']:+.4f}",
            "status": "status",
            "why": "why",
        }
        title = f"{self.paper}: printed and recomputed"
        return [Table.of(title, self.frame, columns, left=3)]

    def to_dict(self) -> dict[str, Any]:
        return {"cells": [asdict(cell) for cell in self.cells]}


def reproduce(
    paper: str,
    *,
    predictions: Sequence[str | PathLike[str]] = (),
    only: str | None = None,
) -> Reproduced:
    """All figures of a paper, recomputed from the tables that ship with the package.

    ``predictions`` are ``.npz`` files with published per-image predictions, from which
    andreassen2021's CIFAR-10 line and its hardest ImageNet images come. ``only`` keeps figures
    of one status: equal, 'follows from print', differs, 'not recomputable', 'not legible' or
    'not printed'.

    >>> cells = reproduce("andreassen2021").cells
    >>> [(c.row, c.printed, c.status) for c in cells if c.column == "ImageNet"]
    [('linear', 0.984, 'equal'), ('probit', 0.995, 'equal'), ('logit', 0.996, 'equal')]
    """
    if only is not None and only not in STATUSES:
        raise unknown("status", only, STATUSES)
    cells = _cells(paper, predictions)
    counts = {status: sum(c.status == status for c in cells) for status in STATUSES}
    shown = tuple(c for c in cells if only is None or c.status == only)
    texts = ("table", "row", "column", "status", "why")
    schema = {f.name: pl.String if f.name in texts else pl.Float64 for f in fields(Cell)}
    return Reproduced(
        frame=pl.DataFrame([asdict(c) for c in shown], schema=schema),
        notes=(", ".join(f"{count} {status}" for status, count in counts.items() if count),),
        paper=paper,
        cells=shown,
    )


def _cells(paper: str, predictions: Sequence[str | PathLike[str]]) -> tuple[Cell, ...]:
    if paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    module = import_module(f"shiftbed.papers.{paper}")
    recompute: Callable[[Sequence[Path]], Mapping[Key, Recomputed]] = module.recompute
    within: Mapping[str, float] = getattr(module, "WITHIN", {})
    if predictions and not getattr(module, "TAKES_PREDICTIONS", False):
        raise InputError(f"{paper} is recomputed from its table alone; it takes no predictions")
    values = recompute([local(str(name)) for name in predictions])
    figures = printed(paper)
    strangers = values.keys() - {figure.key for figure in figures}
    if strangers:
        raise InputError(f"{paper} prints no such figure: {', '.join(sorted(strangers)[0])}")
    return tuple(
        compare(figure, values.get(figure.key), within=within.get(figure.table, 0.0))
        for figure in figures
    )


def compare(figure: Printed, found: Recomputed | None, *, within: float = 0.0) -> Cell:
    """One cell: equal if |recomputed − printed| ≤ ½·10^(−decimals), or below ``within``.

    >>> third = Printed(table="Table 1", row="a", column="b", text="0.33", decimals=2)
    >>> compare(third, Recomputed(value=1 / 3)).status
    'equal'
    """
    found = found or Recomputed()
    reading = float(figure.text) if figure.text else None
    value = float(found.value) if math.isfinite(found.value) else None
    difference = None if reading is None or value is None else value - reading
    near = difference is not None and abs(difference) <= 0.5 * 10.0**-figure.decimals + 1e-9
    reasons = [found.why, figure.note]
    status: Status
    if figure.drawn:
        status = "not printed"
        if difference is not None:
            agrees = "agrees with" if near else "differs from"
            reasons.append(f"{agrees} the reference {figure.text}")
        reading = difference = None
    elif value is None:
        status = "not recomputable"
    elif difference is None:
        status = "not legible"
    elif near:
        status = "follows from print" if found.follows else "equal"
    elif abs(difference) < within:
        status = "follows from print" if found.follows else "equal"
        reasons.insert(0, f"within {within:g}, though it rounds to {value:.{figure.decimals}f}")
    else:
        status = "differs"
        reasons.insert(0, found.if_differs)
    return Cell(
        table=figure.table,
        row=figure.row,
        column=figure.column,
        printed=reading,
        recomputed=value,
        difference=difference,
        status=status,
        why="; ".join(reason for reason in reasons if reason),
    )


def printed(paper: str) -> tuple[Printed, ...]:
    """What a paper prints, in its order.

    The tables drop trailing zeros (0.9 stands for 0.90), so a table's cells are taken to be
    rounded to as many decimals as its longest one; a figure in the running text to its own.
    """
    source = resources.files(__package__).joinpath("printed", f"{paper}.csv")
    rows = list(csv.DictReader(source.read_text(encoding="utf-8").splitlines()))
    longest = Counter[str]()
    for row in rows:
        longest |= Counter({row["table"]: _decimals(row["printed"])})
    return tuple(
        Printed(
            **{name: row[name] for name in ("table", "row", "column", "note")},
            text=row["printed"].removeprefix("~"),
            drawn=row["printed"].startswith("~"),
            decimals=longest[row["table"]]
            if row["table"].startswith("Table")
            else _decimals(row["printed"]),
        )
        for row in rows
    )


def _decimals(text: str) -> int:
    digits, _, power = text.partition("e")
    return len(digits.partition(".")[2]) - int(power or 0)
