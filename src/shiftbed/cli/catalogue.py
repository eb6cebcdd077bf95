"""What comes with the package: published testbeds, papers' figures, the natural shifts.

``shiftbed testbeds``, ``reproduce``, ``shifts``, and ``data``: what you have of them.
"""

from pathlib import Path

import typer
from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.commands import Command
from shiftbed.cli.output import show
from shiftbed.errors import InputError

testbeds = typer.Typer(help="List the published testbeds; 'testbeds show T' lists what is in one.")
shifts = typer.Typer(help="Which natural shifts there are, and what each of them is.")
data = typer.Typer(help="Test sets on this machine.", no_args_is_help=True)


@testbeds.callback(invoke_without_command=True)
def list_testbeds(context: typer.Context, json: opt.AsJson = False) -> None:
    """List the published testbeds."""
    if context.invoked_subcommand is None:
        show(sb.testbeds(), json)


@testbeds.command("show")
def show_testbed(
    testbed: str = Argument(help="A published testbed's name, or a testbed file."),
    json: opt.AsJson = False,
    settings: bool = Option(False, "--settings", help="List the settings too."),
    models: bool = Option(False, "--models", help="List the models too."),
) -> None:
    """Show a testbed's shifts (and settings, models), its fit set, source and citation."""
    from shiftbed.results.catalogue import describe

    show(describe(testbed, settings=settings, models=models), json)


reproduce = Command(
    "Recompute every figure of a paper that the shipped tables can give, beside the printed.",
    paper=Argument(help="taori2020, andreassen2021, fridovich2022, wenzel2022 or shi2023."),
    predictions="A file of public per-image predictions (.npz) that the figure needs.",
    only="equal, 'follows from print', differs, 'not recomputable', 'not legible' or "
    "'not printed'.",
)


@shifts.callback(invoke_without_command=True)
def list_shifts(
    context: typer.Context,
    task: str | None = Option(None, help="Only the pairs of this task."),
    kind: str | None = Option(None, help="Only shifts of this kind."),
    json: opt.AsJson = False,
) -> None:
    """List all shifts: ImageNet's, CIFAR-10's, and the (ID, OOD) pairs of tasks of domains."""
    if context.invoked_subcommand is None:
        show(sb.shifts(task, kind), json)
    elif task is not None or kind is not None or json:
        raise InputError("options of the list come without 'show'; give --json after the name")


@shifts.command("show")
def show_shift(
    name: str = Argument(help="A test set, a task of domains, or a shift."),
    json: opt.AsJson = False,
) -> None:
    """Explain one: what it is, its ID twin, label policy, layout on disk, licence, citation."""
    from shiftbed.results.catalogue import shift

    show(shift(name), json)


@data.command()
def check(
    directory: Path = Argument(help="Searched for test sets, four levels deep."),
    json: opt.AsJson = False,
) -> None:
    """Recognise test sets of the catalogue: what is complete, what is missing, how to lay it out.

    Exit code 1 if something is recognised but incomplete.
    """
    found = sb.check_data(directory)
    show(found, json, failed=not found.complete)
