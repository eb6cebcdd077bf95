"""``sweep``: jobs of a recipe to the runners; what is finished is left alone."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shiftbed.engine.jobs import Done
from shiftbed.engine.run import RUNNERS
from shiftbed.engine.runners import Work, in_process, in_processes
from shiftbed.errors import InputError, unknown
from shiftbed.store import PredictionStore
from shiftbed.training.recipe import Job, Recipe


@dataclass(kw_only=True)
class Sweep:
    """How a sweep ended."""

    finished: list[str] = field(default_factory=list)
    """Runs that are finished now, those of earlier sweeps among them."""
    found_finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    examples: int = 0
    """Training examples seen in this sweep."""
    seconds: float = 0.0


def tasks(recipe: Recipe, jobs: Iterable[Job]) -> list[Any]:
    """Jobs with what they need of the recipe."""
    from shiftbed.training.runs import TrainTask

    by_id = {one.id: one for one in recipe.sources.settings}
    return [
        TrainTask(
            job=job,
            recipe=recipe.name,
            base=recipe.base,
            store=recipe.store,
            runs=recipe.runs,
            data=recipe.sources.data,
            settings=tuple(by_id[name] for name in job.evaluate),
            options=recipe.options,
        )
        for job in jobs
    ]


def sweep(
    recipe: Recipe,
    *,
    grids: Iterable[str] = (),
    runner: str = "local",
    workers: int = 2,
    address: str | None = None,
    store: str | None = None,
    report: Callable[[Done], None] = lambda done: None,
    announce: Callable[[list[Any]], None] = lambda tasks: None,
) -> Sweep:
    """Run the jobs that are not finished; the same call again goes on where this one stopped.

    Stages run one after the other. A job that fails is recorded, and the rest goes on.
    """
    from shiftbed.training.training import is_finished

    if runner not in RUNNERS:
        raise unknown("runner", runner, RUNNERS)
    recipe = recipe if store is None else replace(recipe, store=store)
    opened = PredictionStore(recipe.store)
    opened.write_about(_about(recipe, opened.about()))
    summary = Sweep()
    todo = []
    for task in tasks(recipe, recipe.jobs(grids)):
        if is_finished(task, opened):
            summary.finished.append(task.job.run)
        else:
            todo.append(task)
    summary.found_finished = len(summary.finished)
    announce(todo)
    clock = time.perf_counter()

    def hear(done: Done) -> None:
        summary.examples += done.images
        report(done)

    for stage in sorted({task.job.stage for task in todo}):
        ready = []
        for task in todo:
            if task.job.stage != stage:
                continue
            if task.job.parent in summary.failed:
                summary.failed[task.job.run] = f"the run it starts from failed: {task.job.parent}"
            else:
                ready.append(task)
        for done in _runner(runner, workers, address, recipe)(ready, hear):
            _note(summary, done)
    summary.seconds = time.perf_counter() - clock
    return summary


def _note(summary: Sweep, done: Done) -> None:
    run = done.key[0]
    if done.error:
        summary.failed[run] = done.error
    else:
        summary.finished.append(run)
    summary.notes += [f"{run}: {note}" for note in done.notes]


def _runner(
    name: str, workers: int, address: str | None, recipe: Recipe
) -> Callable[[list[Work], Callable[[Done], None]], Iterator[Done]]:
    threads = int(recipe.options["threads"])
    if name == "local":
        return in_process
    if name == "processes":
        return lambda todo, hear: in_processes(todo, hear, workers=workers, threads=threads)
    from shiftbed.engine.on_ray import on_ray

    gpus = 0 if recipe.options["device"] == "cpu" else 1
    return lambda todo, hear: on_ray(
        todo, hear, workers=workers, address=address, threads=threads, gpus=gpus
    )


def _about(recipe: Recipe, old: dict[str, Any]) -> dict[str, Any]:
    """The testbed's record; shifts and models of other sweeps into the same store stay."""
    known = {one.id for one in recipe.sources.settings}
    if not known:
        raise InputError("the recipe evaluates nothing: give it [[test_sets]]")
    shifts = {one["name"]: one for one in old.get("shifts", [])}
    shifts |= {one.name: asdict(one) for one in recipe.sources.shifts}
    return {
        "name": recipe.name,
        "shifts": list(shifts.values()),
        "models": old.get("models", {}),
    }
