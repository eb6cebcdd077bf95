"""``shiftbed shifts`` and ``data``: the catalogue of natural shifts, and what you have of it."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli import output
from shiftbed.cli.output import AsJson
from shiftbed.errors import InputError

shifts = typer.Typer(help="Which natural shifts there are, and what each of them is.")
data = typer.Typer(help="Test sets on this machine.", no_args_is_help=True)


@shifts.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="Only the pairs of this task.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only shifts of this kind.")] = None,
    json: AsJson = False,
) -> None:
    """List all shifts: ImageNet's, CIFAR-10's, and the (ID, OOD) pairs of tasks of domains."""
    from shiftbed.results.catalogue import shifts

    if context.invoked_subcommand is None:
        output.show(shifts(task, kind), json)
    elif task is not None or kind is not None or json:
        raise InputError("options of the list come without 'show'; give --json after the name")


@shifts.command()
def show(
    name: Annotated[str, typer.Argument(help="A test set, a task of domains, or a shift.")],
    json: AsJson = False,
) -> None:
    """Explain one: what it is, its ID twin, label policy, layout on disk, licence, citation."""
    from shiftbed.results.catalogue import shift

    output.show(shift(name), json)


@data.command()
def check(
    directory: Annotated[Path, typer.Argument(help="Searched for test sets, four levels deep.")],
    json: AsJson = False,
) -> None:
    """Recognise test sets of the catalogue: what is complete, what is missing, how to lay it out.

    Exit code 1 if something is recognised but incomplete.
    """
    from shiftbed.results.catalogue import check_data

    found = check_data(directory)
    output.show(found, json)
    if not found.complete:
        raise typer.Exit(1)
