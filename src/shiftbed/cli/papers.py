"""``shiftbed reproduce``: a paper's printed figures beside the recomputed ones."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson, as_json, number, table


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(help="taori2020, andreassen2021, fridovich2022, wenzel2022 or shi2023."),
    ],
    predictions: Annotated[
        list[Path] | None,
        typer.Option(help="A file of public per-image predictions (.npz) that the figure needs."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="equal, differs, 'not recomputable' or 'not legible'.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Recompute every figure of a paper that the shipped tables can give, beside the printed."""
    from dataclasses import asdict

    from shiftbed import papers
    from shiftbed.errors import unknown

    statuses = ("equal", "differs", "not recomputable", "not legible")
    if only is not None and only not in statuses:
        raise unknown("status", only, statuses)
    cells = papers.reproduce(paper, predictions=predictions or ())
    shown = [c for c in cells if only is None or c.status == only]
    if json:
        as_json({"cells": [asdict(cell) for cell in shown]})
        return
    table(
        f"{paper}: printed and recomputed",
        ["table", "row", "column", "printed", "recomputed", "difference", "status", "why"],
        [
            (
                c.table,
                c.row,
                c.column,
                "" if c.printed is None else f"{c.printed:g}",
                number(c.recomputed),
                "" if c.difference is None else f"{c.difference:+.4f}",
                c.status,
                c.why,
            )
            for c in shown
        ],
        left=3,
    )
    counts = {status: sum(c.status == status for c in cells) for status in statuses}
    print(", ".join(f"{count} {status}" for status, count in counts.items() if count))
