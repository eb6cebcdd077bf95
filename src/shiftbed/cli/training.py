"""``shiftbed train`` and ``difficulty``: runs, and which examples are hard."""

from functools import partial
from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, show
from shiftbed.cli.progress import RunProgress, progress


def train(
    recipe: Path = Argument(help="A recipe.toml."),
    dry_run: bool = Option(False, "--dry-run", help="Count and list the jobs; train nothing."),
    grids: list[str] | None = Option(
        None, "--grid", help="Only these grids, or all (default: those that are not extra)."
    ),
    runner: opt.Runner = "local",
    workers: opt.Workers = 2,
    address: opt.Address = None,
    store: Path | None = Option(None, help="Where predictions go, instead of the recipe's store."),
    json: opt.AsJson = False,
) -> None:
    """Train what a recipe describes. The same command again continues where it stopped."""
    given = locals()
    if dry_run:
        from shiftbed.training.train import planned_jobs

        show(planned_jobs(recipe, grids=grids or []), json)
        return
    with RunProgress(quiet=json) as bars:
        done = call(sb.train, given, dry_run=None, report=bars.part, announce=bars.runs)
    show(done, json, failed=done.failed)


def difficulty(
    source: str = Argument(
        metavar="RECIPE|DATA",
        help="A recipe.toml, for its data sets; or the images: a folder, .npz, .tar, NAME@DIR, …",
    ),
    data: str | None = Argument(None, help="One of the recipe's data sets."),
    model: str = Option(help="What to train: nets:resnet18, timm:NAME, …"),
    output: Path = Option(
        ..., "--output", "-o", help="A .csv or .parquet file, a row per example."
    ),
    share: float = Option(0.75, help="Share of the data each model sees."),
    repeats: int = Option(3, help="Times the data is split again.", min=1),
    per_example: int | None = Option(
        None, help="Instead: how many models are asked about each example.", min=1
    ),
    epochs: int = Option(10, help="Epochs of each model.", min=1),
    batch_size: int = Option(64, help="Examples per step.", min=2),
    optimiser: str = Option("AdamW", help="Any of torch.optim."),
    lr: float = Option(1e-3, help="Learning rate."),
    seed: int = Option(0, help="Seed of splits and weights.", min=0),
    json: opt.AsJson = False,
) -> None:
    """Score examples by how many models get them wrong that were trained without them.

    A recipe reads the file as difficulty = {scores = FILE, …}, phase_out or switch. Torch uses as
    many threads as the recipe says.
    """
    given = locals()
    with progress(quiet=json) as report:
        heard = partial(report, "models")
        show(call(sb.difficulty, given, heard=heard), json)
