"""``shiftbed interpolate`` and ``soup``: models between and among checkpoints, in weight space."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, percent, records, table
from shiftbed.errors import InputError

_ALPHAS = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"
LINE = "torch:FILE?arch=PREFIX:NAME or PREFIX:NAME?weights=FILE"


def interpolate(
    first: Annotated[str, typer.Argument(help=f"Where α = 0: {LINE}.")],
    second: Annotated[str, typer.Argument(help="Where α = 1: the same with another file.")],
    test_sets: Annotated[
        list[str],
        typer.Argument(help="Folders, .npz, .csv, .tar …, or NAME@DIR; the ID set first."),
    ],
    alphas: Annotated[str, typer.Option(help="Values of α, with commas between.")] = _ALPHAS,
    store: Annotated[Path, typer.Option(help="Where predictions are kept.")] = Path("store"),
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
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Evaluate θ = (1−α)θ₀ + αθ₁ along α; every α is a step of one run in the store (thousandths).

    The first test set is the ID set, each other one the OOD set of a shift. ρ along α, once models
    to fit the line on are in the store: shiftbed plot --testbed STORE --chart trajectories.
    """
    from shiftbed.cli.progress import Progress
    from shiftbed.engine.plan import RunSpec
    from shiftbed.engine.run import run_spec as run_it
    from shiftbed.results.scores import scores
    from shiftbed.store import PredictionStore
    from shiftbed.training.weight_files import path_models, path_name

    if backend not in ("auto", "torch", "compile", "onnxruntime"):
        raise InputError(f"--backend must be auto, torch, compile or onnxruntime, got {backend!r}")
    run = name or path_name(first, second)
    models = path_models(first, second, _numbers(alphas), weights, run)
    settings = settings_of(test_sets)
    spec = RunSpec(
        name="interpolate",
        store=str(store),
        models=tuple(models),
        settings=settings,
        shifts=_shifts([s.id for s in settings], PredictionStore(store).about()),
        options={"device": device, "backend": backend, "batch_size": batch_size},
    )
    with Progress(quiet=json) as progress:
        summary = run_it(spec, report=progress.part, announce=progress.cells)
    failed = [
        {"model": key[0], "setting": key[1], "error": why} for key, why in summary.failed.items()
    ]
    if not summary.complete:
        raise InputError("; ".join(sorted({one["error"] for one in failed})))
    ready = [s.id for s in spec.settings if any(key[1] == s.id for key in summary.complete)]
    names = [m.name for m in models if any(key[0] == m.name for key in summary.complete)]
    found = scores(PredictionStore(store), models=names, settings=ready, level=level)
    alpha_of = {model.name: model.info["alpha"] for model in models}
    rows = sorted(records(found), key=lambda row: (alpha_of[row["model"]], row["setting"]))
    if json:
        as_json(
            {
                "run": run,
                "store": str(store),
                "path": [{"alpha": alpha_of[row["model"]], **row} for row in rows],
                "failed": failed,
            }
        )
    else:
        table(
            f"{run}: accuracy along α",
            ["α", "setting", "accuracy", f"{100 * level:g} % interval", "n"],
            [
                (
                    f"{alpha_of[row['model']]:g}",
                    row["setting"],
                    percent(row["value"]),
                    f"{percent(row['low'])} … {percent(row['high'])}",
                    f"{row['n']:,}",
                )
                for row in rows
            ],
            left=2,
            notes=[f"failed: {f['model']} on {f['setting']}: {f['error']}" for f in failed],
        )
    if failed:
        raise typer.Exit(1)


def soup(
    models: Annotated[list[str], typer.Argument(help=f"Models to average: {LINE}.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the soup's weights are written.")],
    how: Annotated[str, typer.Option(help="greedy or uniform.")] = "greedy",
    held_out: Annotated[
        str | None, typer.Option(help="Test set that greedy chooses on; keep it out of tests.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Average the weights of several models, all of them or greedily, into one file."""
    from shiftbed.training.weight_files import held_out as held_out_of
    from shiftbed.training.weight_files import same_line
    from shiftbed.training.weights import greedy_soup, uniform_soup

    if how not in ("greedy", "uniform"):
        raise InputError(f"--how must be greedy or uniform, got {how!r}")
    if how == "greedy" and held_out is None:
        raise InputError("a greedy soup needs --held-out, the test set it is chosen on")
    lines = same_line(models)
    states = [line.read() for line in lines]
    result: dict[str, Any] = {"how": how, "file": str(out)}
    if held_out is None:
        lines[0].write(uniform_soup(states), out)
        result |= {"members": models, "accuracy": None}
    else:
        accuracy, n = held_out_of(lines[0], held_out, device)
        if how == "greedy":
            made = greedy_soup(states, accuracy)
            state, members = made.state, [models[i] for i in made.members]
            result["accuracy"] = _measured(made.accuracy, n, level)
            result["trials"] = [
                {
                    "model": models[trial.member],
                    "alone": _measured(trial.alone, n, level),
                    "soup_with_it": _measured(trial.with_it, n, level),
                    "kept": trial.kept,
                }
                for trial in made.trials
            ]
        else:
            state, members = uniform_soup(states), models
            result["accuracy"] = _measured(accuracy(state), n, level)
        lines[0].write(state, out)
        result |= {"members": members, "held_out": held_out}
    if json:
        as_json(result)
    else:
        _show(result, level)


def _show(result: dict[str, Any], level: float) -> None:
    notes = [f"{result['how']} soup of {len(result['members'])}: {result['file']}"]
    reached = result["accuracy"]
    if reached is None:
        notes.append("Not evaluated: no --held-out.")
        table("", ["member"], [(one,) for one in result["members"]], notes=notes)
        return
    notes.append(
        f"Accuracy on {result['held_out']}: {percent(reached['value'])} % "
        f"({percent(reached['low'])} … {percent(reached['high'])}, {100 * level:g} %, "
        f"n = {reached['n']:,})"
    )
    if result["how"] == "uniform":
        table("", ["member"], [(one,) for one in result["members"]], notes=notes)
        return
    notes.append("It was chosen on these images: evaluate it on others before quoting it.")
    table(
        "Greedy soup, in the order tried",
        ["model", "alone", "soup with it", "kept"],
        [
            (
                trial["model"],
                percent(trial["alone"]["value"]),
                percent(trial["soup_with_it"]["value"]),
                "yes" if trial["kept"] else "no",
            )
            for trial in result["trials"]
        ],
        notes=notes,
    )


def _measured(value: float, n: int, level: float) -> dict[str, Any]:
    from shiftbed.analysis.intervals import clopper_pearson

    low, high = clopper_pearson(value, n, level)
    return {"value": value, "low": float(low), "high": float(high), "n": n}


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--alphas: expected numbers such as 0,0.5,1, got {text!r}") from None


def _shifts(ids: list[str], about: dict[str, Any]) -> Any:
    """Shifts from the first setting to the others, but for those the store knows by a name."""
    from shiftbed.records import Shift

    known = {name for s in about.get("shifts", []) for name in (s["name"], s["target"])}
    return tuple(
        Shift(name=ood, kind="natural-dataset", source=(ids[0],), target=ood)
        for ood in ids[1:]
        if ood not in known
    )


def settings_of(test_sets: list[str]) -> Any:
    """Each test set as it is; a set of the catalogue by NAME@DIR."""
    from shiftbed.engine.catalogue_settings import known_test_set
    from shiftbed.engine.evaluate import set_name
    from shiftbed.engine.plan import TestSetSpec
    from shiftbed.engine.testbed_file import plan_setting as setting

    sets: list[TestSetSpec] = []
    for path in test_sets:
        known = known_test_set(path, None, others=sets)
        sets.append(known or TestSetSpec(name=set_name(path), path=path))
    if len({s.name for s in sets}) < len(sets):
        raise InputError("two test sets have the same name; evaluate them into two stores")
    return tuple(setting(one, {}) for one in sets)
