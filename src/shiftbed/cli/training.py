"""``shiftbed train``, ``difficulty``, ``trajectories``, ``transfer``: runs, and what they did."""

from functools import partial
from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, show, study
from shiftbed.cli.progress import RunProgress, progress
from shiftbed.errors import InputError


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


def trajectories(
    source: str = Argument(help="A store with runs, a testbed file or a published testbed."),
    shift: opt.ShiftName = None,
    id: opt.Ids = None,
    ood: opt.Ood = None,
    by: list[str] | None = Option(
        None, help="Columns that make a kind of run (default: all arguments but the seed)."
    ),
    only: list[str] | None = Option(None, help="Only runs of these models: COLUMN=PATTERN."),
    run: list[str] | None = Option(None, help="Only this run; repeatable."),
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    threshold: opt.Threshold = None,
    full_id: opt.FullId = False,
    knee: opt.Knee = "published",
    on_boundary: opt.Boundary = "raise",
    others: opt.Others = None,
    bins: int | None = Option(
        None, help="Bins of ID accuracy (default: 100, or as many as a run has steps).", min=1
    ),
    over: str | None = Option(
        None, help="Column to list the maximum ρ by, such as data_size or parameters."
    ),
    draw: str = Option("rho", help="What --figure shows: rho, share (of the gap) or largest."),
    colour: str | None = Option(None, help="Column that colours the curves of --figure."),
    highlight: list[str] | None = Option(
        None, help="Kinds, runs or models to set apart in --figure."
    ),
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """ρ along training: start, peak and end of each kind of run and of each run.

    The peak is taken at a step that other runs (or half of the images) choose, so that its own
    noise does not raise it. -o writes the table of runs.
    """
    given = locals()
    drawn = {"colour": colour, "highlight": highlight or ()}
    if figure is None and (colour or highlight):
        raise InputError("--colour and --highlight go with --figure")
    study(sb.trajectories, given, drawn, colour=None, highlight=None)


def transfer(
    store: str = Argument(help="A store that trained models were evaluated into."),
    by: str = Option("augmentation", help="Column of models that says what they saw."),
    without: str = Option("none", help="Its value for models to compare with."),
    clean: str | None = Option(
        None, help="The test set that was corrupted, where there are several."
    ),
    where: str = Option("memory", help="Corruptions in memory or on disk."),
    output: Path | None = Option(
        None, "--output", "-o", help="A heat map: .png, .svg, .pdf or .html."
    ),
    value: str | None = Option(None, help="What the heat map shows: accuracy (default) or gain."),
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Trained on × tested on: what does training on one corruption do for the others?"""
    given = locals()
    from shiftbed.store import PredictionStore

    if value is not None and output is None:
        raise InputError("--value goes with --output")
    kept = PredictionStore.existing(store)
    found = call(sb.transfer, given, store=kept, output=None, value=None)
    if output is not None:
        from shiftbed.page import save

        save(found.chart(value or "accuracy"), output)
    show(found, json)
