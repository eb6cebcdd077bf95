"""``train``: the jobs of a recipe to the runners; what is finished is left alone."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.display import Result, Table
from shiftbed.engine.plan import Done
from shiftbed.engine.run import RUNNERS
from shiftbed.engine.runners import Work, in_process, in_processes
from shiftbed.errors import InputError
from shiftbed.foreign_code import check_code
from shiftbed.places import path_of, url_of
from shiftbed.store import PredictionStore
from shiftbed.training.arguments import one_of
from shiftbed.training.recipe import Job, Recipe, canonical, read_recipe

_SHOWN = 20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trained(Result):
    """How the runs of a recipe ended; ``frame`` has a row per run."""

    json_keys = "recipe store found_finished examples seconds notes"
    recipe: str
    store: str
    """Where the predictions of all checkpoints are: a testbed."""
    finished: tuple[str, ...]
    """Runs that are finished now, those of earlier calls among them."""
    found_finished: int
    """How many of them were so before."""
    failed: Mapping[str, str]
    """Run → why."""
    examples: int
    """Training examples seen in this call."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        failed = [{"run": run, "error": why} for run, why in self.failed.items()]
        return super().to_dict() | {"finished": len(self.finished), "failed": failed}

    def tables(self) -> Iterable[Table]:
        lines = [
            f"{self.recipe}: {len(self.finished)} runs finished, {self.found_finished} of them "
            f"before; {self.examples:,} examples in {self.seconds:,.0f} s.",
            *self.notes,
            *(f"failed: {run}: {why}" for run, why in self.failed.items()),
            f"Scores: shiftbed score {self.store}; lines: shiftbed fit --testbed {self.store}",
        ]
        yield Table(notes=tuple(lines))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlannedJobs(Result):
    """The jobs that a recipe stands for; ``frame`` has a row per job."""

    recipe: Recipe
    jobs: tuple[Job, ...]

    def _counts(self) -> dict[str, Any]:
        jobs, recipe = self.jobs, self.recipe
        return {
            "recipe": recipe.name,
            "networks": sum(not job.classical for job in jobs),
            "classical": sum(job.classical for job in jobs),
            "by_data_size": dict(Counter(job.data_size for job in jobs)),
            "by_grid": {one.name: len(one.jobs) for one in recipe.grids},
            "all_grids": len(recipe.jobs(["all"])),
            "data_sets": len({job.training_data for job in jobs}),
        }

    def to_dict(self) -> dict[str, Any]:
        named = ("id", "run", "grid", "stage", "parent", "training_data", "data_size")
        listed = [
            {name: getattr(job, name) for name in named}
            | {key: value for key, value in job.arguments.items() if key != "sources"}
            for job in self.jobs
        ]
        return self._counts() | {"jobs": listed}

    def tables(self) -> Iterable[Table]:
        counts, more = self._counts(), len(self.jobs) - _SHOWN
        kinds = {"networks": counts["networks"], "classical models": counts["classical"]}
        what = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items() if n) or "0 networks"
        sizes = ", ".join(f"{size}: {n:,}" for size, n in counts["by_data_size"].items())
        extra = [one.name for one in self.recipe.grids if one.extra]
        notes = [f"{more:,} more: --json lists all."] if more > 0 else []
        if extra:
            notes.append(f"With the extra grids ({', '.join(extra)}): {counts['all_grids']:,}.")
        columns = {"run": "run", "training data": "training_data", "size": "data_size"}
        columns |= {name: name for name in ("tune", "start", "augmentation", "grid")}
        yield Table.of(
            f"{self.recipe.name}: {what} ({sizes})",
            self.frame.head(_SHOWN),
            columns,
            left=7,
            notes=notes,
        )


def planned_jobs(recipe: str | Path | Recipe, *, grids: Iterable[str] = ()) -> PlannedJobs:
    """The jobs of a recipe, counted and listed; nothing is trained, and torch is not needed."""
    read = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    jobs = tuple(read.jobs(grids))
    rows = [
        _row(job)
        | {name: job.arguments.get(name, "–") for name in ("tune", "start")}
        | {
            "augmentation": "–" if job.classical else job.augmentation or "none",
            "grid": job.grid,
        }
        for job in jobs
    ]
    called = {job.run: job.called for job in jobs}
    return PlannedJobs(frame=pl.DataFrame(rows), recipe=read, jobs=jobs, called=called)


def _row(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in ("run", "training_data", "data_size")}


def train(
    recipe: str | Path | Recipe,
    *,
    grids: Iterable[str] = (),
    runner: str = "local",
    workers: int = 2,
    address: str | None = None,
    store: str | Path | None = None,
    allow_code: bool = False,
    report: Callable[[Done], None] = lambda done: None,
    announce: Callable[[list[Any]], None] = lambda tasks: None,
) -> Trained:
    """Train what a recipe describes; the same call again goes on where this one stopped.

    ``recipe`` is a recipe.toml or one that was read; ``grids`` are names of its grids (default: all
    that are not extra); ``store`` replaces the recipe's; ``allow_code`` executes what the recipe
    names as ``python:``, which is refused otherwise. Stages run one after the other. A job that
    fails is recorded, and the rest goes on; a table that cannot be used is refused before any job
    starts. ``report`` hears of every checkpoint, ``announce`` of what there is to do.
    """
    from shiftbed.training.training import is_finished

    read = recipe if isinstance(recipe, Recipe) else read_recipe(recipe, allow_code=allow_code)
    if isinstance(recipe, Recipe) and allow_code and not recipe.origin.allow_code:
        raise InputError("allow_code goes with a recipe.toml: read_recipe(FILE, allow_code=True)")
    one_of(runner, "runner", RUNNERS)
    read = read if store is None else replace(read, store=str(store))
    jobs = read.jobs(grids)
    check_code(read.code(jobs))
    _check(jobs)
    opened = PredictionStore(read.store)
    opened.write_about(_about(read, opened.about()))
    tasks = _tasks(read, jobs)
    before = [task.job.run for task in tasks if is_finished(task, opened)]
    todo = [task for task in tasks if task.job.run not in before]
    announce(todo)
    _look_at_data(todo)
    finished, failed, examples = list(before), dict[str, str](), 0
    notes = list(_changed_data(task for task in tasks if task.job.run in before))
    clock = time.perf_counter()

    def seen(done: Done) -> None:
        nonlocal examples
        examples += done.images
        report(done)

    for stage in sorted({task.job.stage for task in todo}):
        ready = []
        for task in (one for one in todo if one.job.stage == stage):
            if task.job.parent in failed:
                failed[task.job.run] = f"the run it starts from failed: {task.job.parent}"
            else:
                ready.append(task)
        for done in _runner(runner, workers, address, read)(ready, seen):
            run = done.key[0]
            if done.error:
                failed[run] = done.error
            else:
                finished.append(run)
            notes += [f"{run}: {note}" for note in done.notes]
    rows = [
        _row(job)
        | {"grid": job.grid, "finished": job.run in finished, "error": failed.get(job.run)}
        for job in jobs
    ]
    return Trained(
        frame=pl.DataFrame(rows, schema_overrides={"error": pl.String}),
        recipe=read.name,
        store=read.store,
        finished=tuple(finished),
        found_finished=len(before),
        failed=failed,
        examples=examples,
        seconds=time.perf_counter() - clock,
        notes=tuple(notes),
        called={job.run: job.called for job in jobs},
    )


def _look_at_data(tasks: Iterable[Any]) -> None:
    """Note what the files of training data are like now, so that all workers see one state.

    What is at a URL each worker looks at where it has fetched it.
    """
    used = {name: task.data[name] for task in tasks for name in task.job.arguments["sources"]}
    for spec in used.values():
        if url_of(spec.path) is None:
            _ = spec.state  # kept, and sent with the task


def _changed_data(finished: Iterable[Any]) -> Iterator[str]:
    """Files of training data that were written to after runs on them had ended."""
    runs: dict[str, list[Any]] = {}
    for task in finished:
        ended = (task.folder.path / "done.json").stat().st_mtime
        for name in task.job.arguments["sources"]:
            path = path_of(task.data[name].path)
            if path.is_file() and path.stat().st_mtime > ended:
                runs.setdefault(path.name, []).append(task)
    for file, those in runs.items():
        first, count = those[0], len(those)
        names = first.job.run + (", …" if count > 1 else "")
        yield (
            f"{file} was written to after {count} finished run{'s' * (count > 1)} ({names}) had "
            "been trained: they are as they were; to train them on it, remove their folders below "
            f"{Path(first.runs).name} or name another one"
        )


def _tasks(recipe: Recipe, jobs: Iterable[Job]) -> list[Any]:
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
            features=recipe.features,
            data=recipe.sources.data,
            settings=tuple(by_id[name] for name in job.evaluate),
            options=recipe.options,
            origin=recipe.origin,
        )
        for job in jobs
    ]


def _check(jobs: Iterable[Job]) -> None:
    """Make everything that tables name once, so that a wrong one is refused before a job starts."""
    import torch

    from shiftbed.training.augment import label_of
    from shiftbed.training.loop import make_optimiser, make_schedule
    from shiftbed.training.objective import make_hook, make_objective

    seen: set[str] = set()
    for job in jobs:
        made = ("objective", "augmentation", "optimiser", "schedule", "hooks")
        given: dict[str, Any] = {key: job.arguments.get(key) for key in made}
        if job.classical or canonical(given) in seen:
            continue
        seen.add(canonical(given))
        try:
            make_objective(given["objective"])
            label_of(given["augmentation"])
            for key, table in (given["hooks"] or {}).items():
                make_hook(key, table)
            optimiser = make_optimiser(given["optimiser"], [torch.nn.Parameter(torch.zeros(1, 1))])
            make_schedule(given["schedule"], optimiser, steps=1000, epochs=10)
        except InputError as error:
            raise InputError(f"grid {job.grid!r}: {error}") from None


def _runner(
    name: str, workers: int, address: str | None, recipe: Recipe
) -> Callable[[list[Work], Callable[[Done], None]], Iterator[Done]]:
    threads = int(recipe.options["threads"])
    if name == "local":
        return in_process
    if name == "processes":
        return lambda todo, hear: in_processes(todo, hear, workers=workers, threads=threads)
    from shiftbed.engine.on_ray import on_ray

    gpus = recipe.options["device"] != "cpu"
    return lambda todo, hear: on_ray(
        todo, hear, workers=workers, address=address, threads=threads, gpus=gpus
    )


def _about(recipe: Recipe, old: dict[str, Any]) -> dict[str, Any]:
    """The testbed's record; shifts and models of other sweeps into the same store stay."""
    if not recipe.sources.settings:
        raise InputError("the recipe evaluates nothing: give it [[test_sets]]")
    shifts = {one["name"]: one for one in old.get("shifts", [])}
    shifts |= {one.name: asdict(one) for one in recipe.sources.shifts}
    return {
        "name": recipe.name,
        "shifts": list(shifts.values()),
        "models": old.get("models", {}),
    }
