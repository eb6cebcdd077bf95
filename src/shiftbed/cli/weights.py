"""``shiftbed interpolate``, ``soup`` and ``linear``: models made of others' weights or features."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson, Level, show
from shiftbed.errors import InputError

_ALPHAS = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"
_LINE = "torch:FILE?arch=PREFIX:NAME or PREFIX:NAME?weights=FILE"
Device = Annotated[str, typer.Option(help="cpu, cuda, …")]
Store = Annotated[Path, typer.Option(help="Where predictions are kept.")]


def interpolate(
    first: Annotated[str, typer.Argument(help=f"Where α = 0: {_LINE}.")],
    second: Annotated[str, typer.Argument(help="Where α = 1: the same with another file.")],
    test_sets: Annotated[
        list[str],
        typer.Argument(help="Folders, .npz, .csv, .tar …, or NAME@DIR; the ID set first."),
    ],
    alphas: Annotated[str, typer.Option(help="Values of α, with commas between.")] = _ALPHAS,
    store: Store = Path("store"),
    weights: Annotated[
        Path, typer.Option(help="Where the mixed weights are written, a file per α.")
    ] = Path("interpolated"),
    name: Annotated[
        str | None, typer.Option(help="The run's name in the store (default: from the files).")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1)] = 64,
    backend: Annotated[
        str, typer.Option(help="torch (as the end points are), auto, compile or onnxruntime.")
    ] = "torch",
    device: Device = "cpu",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Evaluate θ = (1−α)θ₀ + αθ₁ along α; every α is a step of one run in the store (thousandths).

    The first test set is the ID set, each other one the OOD set of a shift. ρ along α, once models
    to fit the line on are in the store: shiftbed plot --testbed STORE --chart trajectories.
    """
    from shiftbed.cli.progress import Progress
    from shiftbed.training.weight_space import interpolate as interpolate_weights

    with Progress(quiet=json) as progress:
        found = interpolate_weights(
            first,
            second,
            test_sets,
            alphas=_numbers(alphas),
            store=store,
            weights=weights,
            name=name,
            batch_size=batch_size,
            backend=backend,
            device=device,
            level=level,
            report=progress.part,
            announce=progress.cells,
        )
    show(found, json)
    if found.failed:
        raise typer.Exit(1)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--alphas: expected numbers such as 0,0.5,1, got {text!r}") from None


def soup(
    models: Annotated[list[str], typer.Argument(help=f"Models to average: {_LINE}.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the soup's weights are written.")],
    how: Annotated[str, typer.Option(help="greedy or uniform.")] = "greedy",
    held_out: Annotated[
        str | None, typer.Option(help="Test set that greedy chooses on; keep it out of tests.")
    ] = None,
    device: Device = "cpu",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Average the weights of several models, all of them or greedily, into one file."""
    from shiftbed.training.weight_space import soup as make_soup

    show(make_soup(models, how=how, held_out=held_out, out=out, device=device, level=level), json)


def linear(
    model: Annotated[
        str, typer.Argument(help="A network: timm:NAME, torchvision:NAME, nets:NAME …")
    ],
    test_sets: Annotated[list[str], typer.Argument(help="Folders, .npz, .csv, .tar …")],
    train: Annotated[str, typer.Option(help="Images to fit the head on, read as a test set is.")],
    validation: Annotated[str, typer.Option(help="Images to choose the penalty on.")],
    start: Annotated[
        str, typer.Option(help="pretrained, random or file:WEIGHTS: the backbone.")
    ] = "pretrained",
    store: Store = Path("store"),
    features: Annotated[Path, typer.Option(help="Where features are kept.")] = Path("features"),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the whole network is written.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model's name in the store.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of a random backbone.", min=0)] = 0,
    device: Device = "cpu",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Logistic regression on a network's features: L-BFGS, ten penalties, chosen on validation."""
    from shiftbed.training.linear_probe import linear_probe

    found = linear_probe(
        model,
        test_sets,
        train=train,
        validation=validation,
        start=start,
        store=store,
        features=features,
        out=out,
        name=name,
        seed=seed,
        device=device,
        level=level,
    )
    show(found, json)
