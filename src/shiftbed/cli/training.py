"""Models that are made: ``train``, ``difficulty``, ``interpolate``, ``soup`` and ``linear``."""

from functools import partial
from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, show
from shiftbed.cli.progress import Progress, RunProgress, progress
from shiftbed.errors import InputError

_ALPHAS = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"
_LINE = "torch:FILE?arch=PREFIX:NAME or PREFIX:NAME?weights=FILE"


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
    allow_code: opt.AllowCode = False,
    quiet: opt.Quiet = False,
    json: opt.AsJson = False,
) -> None:
    """Train what a recipe describes. The same command again continues where it stopped."""
    given = locals()
    if dry_run:
        from shiftbed.training.train import planned_jobs

        show(planned_jobs(recipe, grids=grids or []), json)
        return
    with RunProgress(quiet=json or quiet) as bars:
        own = {"dry_run": None, "quiet": None, "report": bars.part, "announce": bars.runs}
        done = call(sb.train, given, **own)
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


def interpolate(
    first: str = Argument(help=f"Where α = 0: {_LINE}."),
    second: str = Argument(help="Where α = 1: the same with another file."),
    test_sets: list[str] = Argument(
        help="Folders, .npz, .csv, .tar …, or NAME@DIR; the ID set first."
    ),
    alphas: str = Option(_ALPHAS, help="Values of α, with commas between."),
    store: opt.StoreFolder = Path("store"),
    weights: Path = Option(
        Path("interpolated"), help="Where the mixed weights are written, a file per α."
    ),
    name: str | None = Option(None, help="The run's name in the store (default: from the files)."),
    batch_size: int = Option(64, help="Images per batch.", min=1),
    backend: str = Option(
        "torch", help="torch (as the end points are), auto, compile or onnxruntime."
    ),
    device: opt.Device = "cpu",
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Evaluate θ = (1−α)θ₀ + αθ₁ along α; every α is a step of one run in the store (thousandths).

    The first test set is the ID set, each other one the OOD set of a shift. ρ along α, once models
    to fit the line on are in the store: shiftbed plot --testbed STORE --chart trajectories.
    """
    given = locals() | {"alphas": _numbers(alphas)}
    with Progress(quiet=json) as bars:
        found = call(sb.interpolate, given, report=bars.part, announce=bars.cells)
    show(found, json, failed=found.failed)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--alphas: expected numbers such as 0,0.5,1, got {text!r}") from None


def soup(
    models: list[str] = Argument(help=f"Models to average: {_LINE}."),
    out: Path = Option(..., "--out", "-o", help="Where the soup's weights are written."),
    how: str = Option("greedy", help="greedy or uniform."),
    held_out: str | None = Option(
        None, help="Test set that greedy chooses on; keep it out of tests."
    ),
    device: opt.Device = "cpu",
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Average the weights of several models, all of them or greedily, into one file."""
    show(call(sb.soup, locals()), json)


def linear(
    source: str = Argument(
        metavar="MODEL", help="A network: timm:NAME, torchvision:NAME, nets:NAME …"
    ),
    test_sets: list[str] = Argument(help="Folders, .npz, .csv, .tar …"),
    train: str = Option(help="Images to fit the head on, read as a test set is."),
    validation: str = Option(help="Images to choose the penalty on."),
    start: str = Option("pretrained", help="pretrained, random or file:WEIGHTS: the backbone."),
    store: opt.StoreFolder = Path("store"),
    features: Path = Option(Path("features"), help="Where features are kept."),
    out: Path | None = Option(None, "--out", "-o", help="Where the whole network is written."),
    name: opt.NameInStore = None,
    seed: int = Option(0, help="Seed of a random backbone.", min=0),
    device: opt.Device = "cpu",
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Logistic regression on a network's features: L-BFGS, ten penalties, chosen on validation."""
    show(call(sb.linear_probe, locals()), json)
