"""``shiftbed linear``: a linear probe of a network, evaluated like any other model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, percent, records, table
from shiftbed.errors import InputError


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
    store: Annotated[Path, typer.Option(help="Where predictions are kept.")] = Path("store"),
    features: Annotated[Path, typer.Option(help="Where features are kept.")] = Path("features"),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the whole network is written.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model's name in the store.")] = None,
    seed: Annotated[int, typer.Option(help="Of a random backbone.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Logistic regression on a network's features: L-BFGS, ten penalties, chosen on validation."""
    from shiftbed.cli.weights import settings_of
    from shiftbed.engine.open_setting import open_setting
    from shiftbed.results.scores import scores
    from shiftbed.store import PredictionStore
    from shiftbed.training.evaluation import evaluate_checkpoint
    from shiftbed.training.linear_probe import probe_network
    from shiftbed.training.networks import make_network
    from shiftbed.training.weights import write_weights

    if start not in ("pretrained", "random") and not start.startswith("file:"):
        raise InputError(f"--start must be pretrained, random or file:WEIGHTS, got {start!r}")
    (train_on,), (choose_on,) = settings_of([train]), settings_of([validation])
    settings = settings_of(test_sets)
    network = make_network(model, _classes(train), start, seed=seed, device=device)
    first, second = (
        open_setting(one).decode(network.preprocessing) for one in (train_on, choose_on)
    )
    probed = probe_network(network, first, second, features, level=level)
    network.module.eval()
    if out is not None:
        write_weights(network.module.network.state_dict(), out)
    best = probed.found.best
    kept = PredictionStore(store)
    called = name or f"{model}+linear@{probed.id}"
    _same(kept, called, settings, probed.id)
    evaluate_checkpoint(
        network.as_model(called),
        settings,
        kept,
        info={
            "kind": "standard",
            "architecture": model,
            "start": start.partition(":")[0],
            "tune": "linear probe",
            "n_train": probed.n_train,
            "penalty": best.model.penalty,
        },
        details={"spec": model, "identity": f"linear:{probed.id}"},
    )
    found = scores(kept, models=[called], settings=[s.id for s in settings], level=level)
    sweep = [_trial(one) for one in probed.found.trials]
    if json:
        as_json(
            {
                "model": called,
                "file": None if out is None else str(out),
                "n_train": probed.n_train,
                "penalty": best.model.penalty,
                "at_the_edge": probed.found.at_the_edge,
                "sweep": sweep,
                "settings": records(found.drop("model")),
            }
        )
        return
    _show(called, probed, sweep, found, level)


def _trial(one: Any) -> dict[str, Any]:
    reached = one.validation
    return {
        "penalty": one.model.penalty,
        "validation": reached.value,
        "low": reached.low,
        "high": reached.high,
        "n": reached.n,
        "iterations": one.model.iterations,
        "converged": one.model.converged,
    }


def _show(called: str, probed: Any, sweep: list[dict[str, Any]], found: Any, level: float) -> None:
    best = probed.found.best.model.penalty
    edge = "; it is the first or last one tried" if probed.found.at_the_edge else ""
    table(
        f"{called}: penalty λ chosen on {probed.n_validation:,} images, fitted on "
        f"{probed.n_train:,}",
        ["λ", "validation", f"{100 * level:g} % interval", "iterations", ""],
        [
            (
                f"{one['penalty']:.3g}",
                percent(one["validation"]),
                f"{percent(one['low'])} … {percent(one['high'])}",
                one["iterations"],
                "" if one["converged"] else "stopped before it converged",
            )
            for one in sweep
        ],
        notes=[f"Chosen: λ = {best:.3g}{edge}."],
    )
    table(
        "",
        ["setting", "accuracy", f"{100 * level:g} % interval", "n"],
        [
            (
                row["setting"],
                percent(row["value"]),
                f"{percent(row['low'])} … {percent(row['high'])}",
                f"{row['n']:,}",
            )
            for row in records(found)
        ],
    )


def _classes(train: str) -> int:
    """As many as the training images have: named ones, or the largest label."""
    import numpy as np

    from shiftbed.evaluation.data import open_test_set

    opened = open_test_set(train)
    if opened.label_sets is not None:
        raise InputError(f"{train}: a linear probe needs one label per image")
    return len(opened.classes) if opened.classes else int(np.max(opened.labels)) + 1


def _same(store: Any, name: str, settings: Any, id: str) -> None:
    """Refuse predictions of another probe under the same name."""
    for one in settings:
        record = store.cell(name, one.id)
        if record is not None and record.get("identity") != f"linear:{id}":
            raise InputError(
                f"the store has predictions of another model called {name!r}; give this one "
                "another --name"
            )
