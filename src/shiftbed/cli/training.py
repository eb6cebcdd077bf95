"""``shiftbed train``: a recipe to jobs, jobs to runs, their checkpoints into a store."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import AsJson, as_json, table
from shiftbed.cli.running import Address, Runner, Workers

if TYPE_CHECKING:
    from shiftbed.training import Job, Recipe


_SHOWN = 20


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
    from shiftbed.training import read_recipe

    found = read_recipe(recipe)
    if dry_run:
        _dry_run(found, grid or [], json)
        return
    from shiftbed.cli.progress import RunProgress
    from shiftbed.training.train import sweep

    with RunProgress(quiet=json) as progress:
        summary = sweep(
            found,
            grids=grid or [],
            runner=runner,
            workers=workers,
            address=address,
            store=None if store is None else str(store),
            report=progress.part,
            announce=progress.runs,
        )
    where = str(store or found.store)
    if json:
        as_json(
            {
                "recipe": found.name,
                "store": where,
                "finished": len(summary.finished),
                "found_finished": summary.found_finished,
                "failed": [{"run": r, "error": why} for r, why in summary.failed.items()],
                "examples": summary.examples,
                "seconds": summary.seconds,
                "notes": summary.notes,
            }
        )
    else:
        _say(found, summary, where)
    if summary.failed:
        raise typer.Exit(1)


def _say(recipe: "Recipe", summary: Any, store: str) -> None:
    print(
        f"{recipe.name}: {len(summary.finished)} runs finished, {summary.found_finished} of them "
        f"before; {summary.examples:,} examples in {summary.seconds:,.0f} s."
    )
    for note in summary.notes:
        print(note)
    for run, why in summary.failed.items():
        print(f"failed: {run}: {why}")
    print(f"Scores: shiftbed score {store}; lines: shiftbed fit --testbed {store}")


def _dry_run(recipe: "Recipe", grids: list[str], json: bool) -> None:
    jobs = recipe.jobs(grids)
    counts: dict[str, Any] = {
        "recipe": recipe.name,
        "networks": sum(not job.classical for job in jobs),
        "classical": sum(job.classical for job in jobs),
        "by_data_size": dict(Counter(job.data_size for job in jobs)),
        "by_grid": {one.name: len(one.jobs) for one in recipe.grids},
        "all_grids": len(recipe.jobs(["all"])),
        "data_sets": len({job.training_data for job in jobs}),
    }
    if json:
        as_json(counts | {"jobs": [_job(job) for job in jobs]})
        return
    sizes = ", ".join(f"{size}: {count:,}" for size, count in counts["by_data_size"].items())
    extra = [one.name for one in recipe.grids if one.extra]
    notes = [f"{len(jobs) - _SHOWN:,} more: --json lists all."] if len(jobs) > _SHOWN else []
    if extra:
        notes.append(f"With the extra grids ({', '.join(extra)}): {counts['all_grids']:,}.")
    table(
        f"{recipe.name}: {_counted(counts)} ({sizes})",
        ["run", "training data", "size", "tune", "start", "augmentation", "grid"],
        [
            (
                job.run,
                job.training_data,
                job.data_size,
                job.arguments.get("tune", "–"),
                job.arguments.get("start", "–"),
                _augmentation(job),
                job.grid,
            )
            for job in jobs[:_SHOWN]
        ],
        left=7,
        notes=notes,
    )


def _counted(counts: dict[str, Any]) -> str:
    networks = f"{counts['networks']:,} networks"
    classical = f"{counts['classical']:,} classical models"
    if not counts["classical"]:
        return networks
    return f"{networks}, {classical}" if counts["networks"] else classical


def _augmentation(job: "Job") -> str:
    if job.classical:
        return "–"
    return "+".join(step["name"] for step in job.arguments["augmentation"]) or "none"


def _job(job: "Job") -> dict[str, Any]:
    arguments = {key: value for key, value in job.arguments.items() if key != "sources"}
    return {
        "id": job.id,
        "run": job.run,
        "grid": job.grid,
        "stage": job.stage,
        "parent": job.parent,
        "training_data": job.training_data,
        "data_size": job.data_size,
        **arguments,
    }
