"""``shiftbed store``: is a store whole; clean it up; predictions in and out."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson, as_json, table

__all__ = ["app"]

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
