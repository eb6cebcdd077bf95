"""What comes with the package: published testbeds, and papers' figures recomputed from them."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson
from shiftbed.cli.output import show as show_result

app = typer.Typer(help="List the published testbeds; 'testbeds show T' lists what is in one.")


@app.callback(invoke_without_command=True)
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the published testbeds."""
    if context.invoked_subcommand is None:
        from shiftbed.results.testbeds import testbeds

        show_result(testbeds(), json)


@app.command()
def show(
    testbed: Annotated[str, typer.Argument(help="A published testbed's name, or a testbed file.")],
    json: AsJson = False,
    settings: Annotated[bool, typer.Option("--settings", help="List the settings too.")] = False,
    models: Annotated[bool, typer.Option("--models", help="List the models too.")] = False,
) -> None:
    """Show a testbed's shifts (and settings, models), its fit set, source and citation."""
    from shiftbed.results.testbeds import describe

    show_result(describe(testbed, settings=settings, models=models), json)


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
    from shiftbed.papers import reproduce

    show_result(reproduce(paper, predictions=predictions or (), only=only), json)
