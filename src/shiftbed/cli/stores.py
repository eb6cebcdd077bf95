"""``shiftbed store``: is a store whole; clean it up; predictions in and out."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson, Level, as_json, percent, records, table
from shiftbed.cli.policies import ClassMapFile, How, Like, SubsetText, policy_of

app = typer.Typer(help="Check, clean and exchange prediction stores.", no_args_is_help=True)
Where = Annotated[str, typer.Argument(help="A prediction store.")]


@app.command()
def verify(store: Where, json: AsJson = False) -> None:
    """Find missing, duplicate or damaged rows. Exit code 1 if there are any."""
    from shiftbed.store import PredictionStore
    from shiftbed.store import verify as problems_of

    opened = PredictionStore.existing(store)
    problems = problems_of(opened)
    cells = len(opened.cells())
    if json:
        as_json({"cells": cells, "problems": [vars(p) for p in problems]})
    elif problems:
        rows = [(p.kind, p.where, p.what) for p in problems]
        table(f"{store}: {len(problems)} problems", ["kind", "where", "what"], rows, left=3)
    else:
        print(f"{store}: {cells} cells, nothing missing, duplicate or damaged.")
    if problems:
        raise typer.Exit(1)


@app.command()
def gc(store: Where, json: AsJson = False) -> None:
    """Remove leftovers, orphans and damaged parts; a run makes them anew."""
    from shiftbed.store import PredictionStore, collect_garbage

    removed = collect_garbage(PredictionStore.existing(store))
    if json:
        as_json({"removed": removed})
    else:
        print(f"{store}: {len(removed)} files removed.")


@app.command()
def export(
    store: Where,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .npz or .csv file.")],
    setting: Annotated[str, typer.Option(help="Which setting.")],
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
) -> None:
    """Export predictions: .npz (models, top1, labels) or .csv (model, file, class, probability)."""
    from shiftbed.importing.exchange import export_predictions

    written = export_predictions(store, output, setting=setting, models=model)
    print(f"wrote {output}: {written} predictions")


@app.command("import")
def import_(
    store: Where,
    files: Annotated[list[Path], typer.Argument(help=".npz or .csv files of predictions.")],
    setting: Annotated[
        str | None, typer.Option(help="The setting they are of (default: the file's name).")
    ] = None,
) -> None:
    """Import predictions per image into a store."""
    from shiftbed.importing.exchange import import_predictions

    count = import_predictions(store, files, setting=setting)
    print(f"{store}: {count} cells imported")


@app.command()
def twin(
    store: Where,
    setting: Annotated[str, typer.Option(help="The setting whose twin is made, such as val.")],
    subset: SubsetText = None,
    class_map: ClassMapFile = None,
    like: Like = None,
    how: How = None,
    name: Annotated[
        str | None, typer.Option(help="The twin's name (default: SETTING@CLASSES).")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Make a setting's class twin from stored predictions; no model runs again.

    Exit code 1 if some images of some model are not decided by what is stored.
    """
    from shiftbed.results.twins import twin_table
    from shiftbed.store import PredictionStore

    policy = policy_of(subset, class_map, how, like)
    named = name or (f"{setting}@{like}-classes" if like else None)
    opened = PredictionStore.existing(store)
    found = twin_table(opened, setting, policy, name=named, models=model, level=level)
    if json:
        as_json({"setting": setting, "policy": policy.describe(), "twins": records(found)})
    else:
        rows = [
            (
                r["model"],
                percent(r["value"]) or _between(r["at_least"], r["at_most"]),
                f"{percent(r['low'])} … {percent(r['high'])}" if r["low"] is not None else "",
                f"{r['n']:,}",
                f"{r['undecided']:,}",
                r["computed_from"],
                r["note"],
            )
            for r in found.iter_rows(named=True)
        ]
        header = ["model", "accuracy", f"{100 * level:g} % interval", "n", "undecided", "from"]
        table(f"Twins of {setting}: {policy.describe()}", [*header, "note"], rows)
    if found["value"].null_count():
        raise typer.Exit(1)


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None else f"{percent(low)} to {percent(high)}"
