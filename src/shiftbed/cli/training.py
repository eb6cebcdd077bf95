"""``shiftbed train``, ``difficulty`` and ``transfer``: recipes to runs, and what training did."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import (
    AsJson,
    Level,
    show,
)
from shiftbed.cli.running import Address, Runner, Workers
from shiftbed.errors import InputError


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe.toml.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count and list the jobs; train nothing.")
    ] = False,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="Only these grids, or all (default: those that are not extra)."),
    ] = None,
    runner: Runner = "local",
    workers: Workers = 2,
    address: Address = None,
    store: Annotated[
        Path | None, typer.Option(help="Where predictions go, instead of the recipe's store.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Train what a recipe describes. The same command again continues where it stopped."""
    from shiftbed.cli.progress import RunProgress
    from shiftbed.training.train import planned_jobs
    from shiftbed.training.train import train as train_it

    if dry_run:
        show(planned_jobs(recipe, grids=grid or []), json)
        return
    with RunProgress(quiet=json) as progress:
        found = train_it(
            recipe,
            grids=grid or [],
            runner=runner,
            workers=workers,
            address=address,
            store=store,
            report=progress.part,
            announce=progress.runs,
        )
    show(found, json)
    if found.failed:
        raise typer.Exit(1)


def difficulty(
    recipe: Annotated[Path, typer.Argument(help="A recipe.toml, for its data sets.")],
    data: Annotated[str, typer.Argument(help="One of its data sets.")],
    model: Annotated[str, typer.Option(help="What to train: nets:resnet18, timm:NAME, …")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .csv or .parquet file, a row per example.")
    ],
    share: Annotated[float, typer.Option(help="Share of the data each model sees.")] = 0.75,
    repeats: Annotated[int, typer.Option(help="Times the data is split again.", min=1)] = 3,
    epochs: Annotated[int, typer.Option(help="Epochs of each model.", min=1)] = 10,
    batch_size: Annotated[int, typer.Option(help="Examples per step.", min=2)] = 64,
    optimiser: Annotated[str, typer.Option(help="Any of torch.optim.")] = "AdamW",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of splits and weights.", min=0)] = 0,
    json: AsJson = False,
) -> None:
    """Score examples by how many models get them wrong that were trained without them.

    A recipe reads the file as difficulty = {scores = FILE, …}, phase_out or switch. Torch uses as
    many threads as the recipe says.
    """
    from shiftbed.training.difficulty import difficulty as score_difficulty

    def heard(done: int, total: int) -> None:
        if not json:
            typer.echo(f"\rmodel {done} of {total}", err=True, nl=done == total)

    found = score_difficulty(
        recipe,
        data,
        model=model,
        output=output,
        share=share,
        repeats=repeats,
        epochs=epochs,
        batch_size=batch_size,
        optimiser=optimiser,
        lr=lr,
        seed=seed,
        heard=heard,
    )
    show(found, json)


def transfer(
    store: Annotated[str, typer.Argument(help="A store that trained models were evaluated into.")],
    by: Annotated[str, typer.Option(help="Column of models that says what they saw.")] = (
        "augmentation"
    ),
    without: Annotated[str, typer.Option(help="Its value for models to compare with.")] = "none",
    clean: Annotated[
        str | None, typer.Option(help="The test set that was corrupted, where there are several.")
    ] = None,
    where: Annotated[str, typer.Option(help="Corruptions in memory or on disk.")] = "memory",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A heat map: .png, .svg, .pdf or .html.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="What the heat map shows: accuracy (default) or gain.")
    ] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Trained on × tested on: what does training on one corruption do for the others?"""
    from shiftbed.results.transfer import transfer as measure
    from shiftbed.store import PredictionStore

    if value is not None and output is None:
        raise InputError("--value goes with --output")
    found = measure(
        PredictionStore.existing(store),
        by=by,
        without=without,
        clean=clean,
        where=where,
        level=level,
    )
    if output is not None:
        from shiftbed.page import save

        save(found.chart(value or "accuracy"), output)
    show(found, json)
