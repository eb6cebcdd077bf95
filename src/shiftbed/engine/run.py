"""``run``: plan what is missing, prepare each cell, hand tasks to a runner, record how it ended."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from shiftbed.engine.identity import identity
from shiftbed.engine.jobs import WARNING, CellPlan, Done, Task, missing, tasks
from shiftbed.engine.perturbed import difference, perturbation_of
from shiftbed.engine.runners import in_process, in_processes
from shiftbed.engine.spec import RunSpec
from shiftbed.errors import InputError, unknown
from shiftbed.store import PredictionStore

RUNNERS = ("local", "processes", "ray")


@dataclass(kw_only=True)
class Summary:
    """How a run ended."""

    complete: list[tuple[str, str]] = field(default_factory=list)
    """Cells that are complete now, those of earlier runs among them."""
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    images: int = 0
    seconds: float = 0.0
    cell_seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    """Workers' seconds per cell, in this run."""
    notes: list[str] = field(default_factory=list)

    @property
    def images_per_second(self) -> float | None:
        return self.images / self.seconds if self.images and self.seconds else None


def plan(spec: RunSpec, store: PredictionStore) -> tuple[list[CellPlan], dict[str, str]]:
    """All cells with their missing parts; settings that cannot be opened, with the reason."""
    from shiftbed.engine.execute import register

    cells, broken = [], {}
    for setting in spec.settings:
        try:
            n = len(register(store, setting))
        except InputError as error:
            broken[setting.id] = str(error)
            continue
        cells += [
            CellPlan(
                model=model,
                setting=setting,
                n=n,
                missing=missing(store, model.name, setting.id, n),
            )
            for model in spec.models
        ]
    cells.sort(key=lambda cell: [m.name for m in spec.models].index(cell.model.name))
    return cells, broken


def run(
    spec: RunSpec,
    *,
    runner: str = "local",
    workers: int = 2,
    address: str | None = None,
    report: Callable[[Done], None] = lambda done: None,
    announce: Callable[[list[CellPlan]], None] = lambda cells: None,
    **options: Any,
) -> Summary:
    """Run what is missing. The same call again continues exactly where this one stopped.

    A failing cell is recorded with its error and the rest goes on.
    """
    if runner not in RUNNERS:
        raise unknown("runner", runner, RUNNERS)
    store = PredictionStore(spec.store)
    store.write_about(_about(spec, store.about()))
    summary = Summary()
    cells, broken = plan(spec, store)
    for setting, why in broken.items():
        for model in spec.models:
            summary.failed[model.name, setting] = why
    announce([cell for cell in cells if cell.missing])
    clock = time.perf_counter()
    given = dict(spec.options) | options
    cells = _same_models(store, cells, given, summary)
    ready = _prepare(store, cells, given, summary)
    todo = [task for cell in ready for task in tasks(cell, spec.store, given)]
    hear = _listener(summary, report)
    for done in _runner(runner, workers, address)(todo, hear):
        if done.error:
            summary.failed.setdefault(done.key, done.error)
    summary.seconds = time.perf_counter() - clock
    _finish(store, cells, summary)
    return summary


def _about(spec: RunSpec, old: dict[str, Any]) -> dict[str, Any]:
    """The testbed's record; what an earlier run said of other models and shifts stays."""
    shifts = {s["name"]: s for s in old.get("shifts", [])}
    shifts |= {s.name: asdict(s) for s in spec.shifts}
    models = old.get("models", {}) | {m.name: dict(m.info) for m in spec.models}
    return {"name": spec.name, "shifts": list(shifts.values()), "models": models}


def _listener(summary: Summary, report: Callable[[Done], None]) -> Callable[[Done], None]:
    def hear(done: Done) -> None:
        summary.images += done.images
        spent = summary.cell_seconds.get(done.key, 0.0)
        summary.cell_seconds[done.key] = spent + done.seconds
        summary.notes += [f"{done.key[0]} on {done.key[1]}: {note}" for note in done.notes]
        report(done)

    return hear


def _runner(
    name: str, workers: int, address: str | None
) -> Callable[[list[Task], Callable[[Done], None]], Iterator[Done]]:
    if name == "local":
        return in_process
    if name == "processes":
        return lambda todo, hear: in_processes(todo, hear, workers=workers, threads=1)
    from shiftbed.engine.on_ray import on_ray

    return lambda todo, hear: on_ray(todo, hear, workers=workers, address=address)


def _same_models(
    store: PredictionStore, cells: list[CellPlan], options: dict[str, Any], summary: Summary
) -> list[CellPlan]:
    """Leave out cells whose predictions are of another model under the same name."""
    known = {cell.model.name: identity(cell.model, options) for cell in cells}
    kept = []
    for cell in cells:
        record = store.cell(*cell.key) or {}
        perturbation = perturbation_of(cell.setting)
        details = None if perturbation is None else perturbation.describe()
        name = cell.model.name
        own = known[name] if details is None else identity(cell.model, options, details)
        if record.get("identity") in (None, own):
            kept.append(cell)
        elif record.get("perturbation") != details:
            summary.failed[cell.key] = (
                f"the store has predictions in a setting called {cell.key[1]!r} with another seed "
                f"or other options of the perturbation ({difference(record, details)}); give this "
                "one another id"
            )
        else:
            summary.failed[cell.key] = (
                f"the store has predictions of another model called {name!r} (other "
                "weights, options or preprocessing); give this one another name"
            )
    return kept


def _prepare(
    store: PredictionStore, cells: list[CellPlan], options: dict[str, Any], summary: Summary
) -> list[CellPlan]:
    """Write every pending cell's record; a model that cannot be opened fails its cells."""
    from shiftbed.engine.execute import prepare
    from shiftbed.evaluation.perturbations import NotApplicable

    ready: list[CellPlan] = []
    broken: dict[str, str] = {}
    images = Counter({cell.model.name: 0 for cell in cells})
    for cell in cells:
        images[cell.model.name] += cell.images
    for cell in cells:
        if not cell.missing:
            continue
        why = broken.get(cell.model.name)
        if why is None:
            try:
                prepare(store, cell.model, cell.setting, options, images=images[cell.model.name])
            except NotApplicable as error:  # this cell only
                why = str(error)
            except Exception as error:  # a model can raise anything; the others go on
                why = broken[cell.model.name] = _one_line(error)
        if why is None:
            ready.append(cell)
        else:
            summary.failed[cell.key] = why
            _record_failure(store, cell, why)
    return ready


def _finish(store: PredictionStore, cells: list[CellPlan], summary: Summary) -> None:
    for cell in cells:
        if cell.key in summary.failed:
            _record_failure(store, cell, summary.failed[cell.key])
        elif store.complete(*cell.key):
            summary.complete.append(cell.key)
            record = store.cell(*cell.key) or {}
            if record.get("status") != "complete":
                _complete(store, cell, record, summary)


def _complete(
    store: PredictionStore, cell: CellPlan, record: dict[str, Any], summary: Summary
) -> None:
    prefix = f"{cell.key[0]} on {cell.key[1]}: unreadable: "
    unreadable = [note.removeprefix(prefix) for note in summary.notes if note.startswith(prefix)]
    alarm = f"{cell.key[0]} on {cell.key[1]}: {WARNING}"
    warnings = {note.removeprefix(alarm) for note in summary.notes if note.startswith(alarm)}
    kept = {k: v for k, v in record.items() if k not in ("model", "setting", "error")}
    spent = record.get("wall_seconds", 0.0) + summary.cell_seconds.get(cell.key, 0.0)
    kept |= {"status": "complete", "wall_seconds": round(spent, 3)}
    if unreadable:
        kept["unreadable"] = sorted({*record.get("unreadable", []), *unreadable})
    if warnings:
        kept["warnings"] = sorted({*record.get("warnings", []), *warnings})
    store.write_cell(*cell.key, kept)


def _record_failure(store: PredictionStore, cell: CellPlan, why: str) -> None:
    record = store.cell(*cell.key) or {}
    kept = {k: v for k, v in record.items() if k not in ("model", "setting")}
    info = {"info": dict(cell.model.info), "spec": cell.model.spec}
    store.write_cell(*cell.key, info | kept | {"status": "failed", "error": why})


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"
