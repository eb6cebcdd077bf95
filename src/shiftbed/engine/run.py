"""Running a plan: what is missing is prepared, handed to a runner, and recorded as it ends."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shiftbed.engine.on_ray import on_ray
from shiftbed.engine.perturbed_settings import difference
from shiftbed.engine.plan import (
    DEFAULTS,
    WARNING,
    CellPlan,
    Done,
    RunSpec,
    Task,
    TestSetSpec,
    check_options,
    opened_store,
    ranges,
    tasks,
)
from shiftbed.engine.runners import in_process, in_processes
from shiftbed.errors import InputError, unknown
from shiftbed.foreign_code import check_code
from shiftbed.places import path_of, url_of
from shiftbed.store import PredictionStore

RUNNERS = ("local", "processes", "ray")


MOST_UNREADABLE = 0.01
"""Share of a test set's images that may be unreadable without the run counting as failed."""


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
    unreadable: dict[tuple[str, str], str] = field(default_factory=dict)
    """Complete cells of which more than ``MOST_UNREADABLE`` of the images could not be read."""
    not_applicable: set[tuple[str, str]] = field(default_factory=set)
    """Failed cells that their model cannot have, such as an attack on one without gradients."""

    @property
    def images_per_second(self) -> float | None:
        return self.images / self.seconds if self.images and self.seconds else None


def plan(
    spec: RunSpec, store: PredictionStore, *, write: bool = True
) -> tuple[list[CellPlan], dict[str, str]]:
    """All cells with their missing parts; settings that cannot be opened, with the reason.

    ``write``: whether the store gets the test sets.
    """
    from shiftbed.engine.open_setting import open_setting

    cells, broken = [], {}
    for setting in spec.settings:
        try:
            stored = open_setting(setting).stored
            if write:
                store.add_test_set(stored)
            n = len(stored)
        except InputError as error:
            broken[setting.id] = str(error)
            continue
        for model in spec.models:
            missing = store.missing(model.name, setting.id, ranges(n))
            missing += _unread(store, model.name, setting.id)
            cells.append(
                CellPlan(model=model, setting=setting, n=n, missing=tuple(sorted(missing)))
            )
    cells.sort(key=lambda cell: [m.name for m in spec.models].index(cell.model.name))
    return cells, broken


def _unread(store: PredictionStore, model: str, setting: str) -> list[tuple[int, int]]:
    """Parts with images that could not be read: they are tried again."""
    record = store.cell(model, setting)
    if record is None or (record.get("status") == "complete" and not record.get("unreadable")):
        return []
    parts = store.parts(model, setting)
    found = ((part, store.read_range(model, setting, part, ["class_1"])) for part in parts)
    return [part for part, frame in found if frame["class_1"].null_count()]


def run_spec(
    spec: RunSpec,
    *,
    runner: str = "local",
    workers: int = 2,
    address: str | None = None,
    report: Callable[[Done], None] = lambda done: None,
    announce: Callable[[list[CellPlan]], None] = lambda cells: None,
    describe: bool = True,
    shard: str | None = None,
    **options: Any,
) -> Summary:
    """Run what is missing. The same call again continues exactly where this one stopped.

    A failing cell is recorded with its error and the rest goes on. ``describe``: whether the
    store's own record gets the plan's name, models and shifts. ``shard``: ``i/n`` runs every n-th
    cell, beginning with the i-th; n such runs, wherever they are, do it all.
    """
    first, step = shard_of(shard)
    if runner not in RUNNERS:
        raise unknown("runner", runner, RUNNERS)
    check_code(spec.code)
    for setting in spec.settings:
        if setting.perturb is not None:
            setting.perturb.load()
    store = opened_store(spec.store)
    if runner != "local":
        _can_travel(spec)
    with store.files.lock(alone=False):  # nobody cleans up meanwhile
        if describe:
            store.write_about(_about(spec, store.about()))
        summary = Summary()
        cells, broken = plan(spec, store)
        cells = cells[first::step]
        for name, why in broken.items():
            for model in spec.models:
                summary.failed[model.name, name] = why
        announce([cell for cell in cells if cell.missing])
        clock = time.perf_counter()
        given = check_options(spec.options) | check_options(options)
        cells = _same_models(store, cells, given, summary)
        cells = _with_backbones(cells, given)
        ready = _prepare(store, cells, given, summary)
        kept = spec.store
        if isinstance(kept, str) and url_of(kept) is None:
            kept = str(path_of(kept).absolute())  # workers may be elsewhere
        todo = [task for cell in ready for task in tasks(cell, kept, given)]
        left = Counter(task.key for task in todo)
        by_key = {cell.key: cell for cell in cells}
        for cell in cells:
            if not left[cell.key]:
                _finish(store, cell, summary)
        gpus = str(given.get("device", "cpu")) != "cpu"
        for done in _runner(runner, workers, address, gpus)(todo, _listener(summary, report)):
            if done.error:
                summary.failed.setdefault(done.key, done.error)
            left[done.key] -= 1
            if not left[done.key]:  # complete as soon as it is, for whoever looks at the store
                _finish(store, by_key[done.key], summary)
        summary.seconds = time.perf_counter() - clock
        return summary


def shard_of(text: str | None) -> tuple[int, int]:
    """Where the cells of shard ``i/n`` begin, and how far apart they are.

    >>> shard_of("2/8"), shard_of(None)
    ((1, 8), (0, 1))
    """
    if text is None:
        return 0, 1
    own, slash, all = text.partition("/")
    if not (slash and own.isdecimal() and all.isdecimal() and 1 <= int(own) <= int(all)):
        raise InputError(f"shard: expected i/n with 1 ≤ i ≤ n, such as 2/8, got {text!r}")
    return int(own) - 1, int(all)


def _can_travel(spec: RunSpec) -> None:
    """Refuse what cannot go to another process: open objects, a store in memory."""
    for model in spec.models:
        if model.spec is None:
            raise InputError(
                f"model {model.name!r} is an object of this process: runner must be 'local'"
            )
    for one in spec.settings:
        if not isinstance(one.images, TestSetSpec):
            raise InputError(
                f"test set {one.images.name!r} is an object of this process: runner must be 'local'"
            )
    if isinstance(spec.store, PredictionStore) and spec.store.in_memory:
        raise InputError("a store in memory is of this process: runner must be 'local'")


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
    name: str, workers: int, address: str | None, gpus: bool
) -> Callable[[list[Task], Callable[[Done], None]], Iterator[Done]]:
    if name == "local":
        return in_process
    if name == "processes":
        return lambda todo, hear: in_processes(todo, hear, workers=workers, threads=1)
    return lambda todo, hear: on_ray(todo, hear, workers=workers, address=address, gpus=gpus)


def _same_models(
    store: PredictionStore, cells: list[CellPlan], options: dict[str, Any], summary: Summary
) -> list[CellPlan]:
    """Leave out cells whose predictions are of another model under the same name."""
    from shiftbed.engine.cell import identity

    models = {cell.model.name: cell.model for cell in cells}
    known = {name: identity(model, options) for name, model in models.items()}
    kept = []
    for cell in cells:
        record = store.cell(*cell.key) or {}
        perturb = cell.setting.perturb
        details = None if perturb is None else perturb.describe()
        name = cell.model.name
        own = known[name] if perturb is None else identity(cell.model, options, perturb)
        if "identity" in record and "depends_on" not in record:  # as earlier versions kept it
            own = identity(cell.model, options, perturb, whole=False)
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


_ALONE = ("timm", "torchvision", "open_clip", "hf", "onnx", "sklearn")
"""Kinds of models that have a backbone of their own."""


def _with_backbones(cells: list[CellPlan], options: dict[str, Any]) -> list[CellPlan]:
    """Cells of models that share a backbone say so, and come setting by setting.

    Models are opened to find out, which only those do that could share one.
    """
    if options.get("backend", "auto") == "compile":
        return cells
    able = {
        cell.model.name: cell.model
        for cell in cells
        if cell.missing
        and (cell.model.spec is None or cell.model.spec.partition(":")[0] not in _ALONE)
    }
    if len(able) < 2:
        return cells
    from shiftbed.engine.cell import open_model
    from shiftbed.engine.shared_backbone import backbone_of

    found: dict[str, str | None] = {}
    for name, model in able.items():
        try:
            found[name] = backbone_of(open_model(model, DEFAULTS | options, True))
        except Exception:  # said where the cell is prepared
            found[name] = None
    count = Counter(found.values())
    marked = [
        replace(cell, backbone=key) if (key := found.get(cell.model.name)) and count[key] > 1
        else cell
        for cell in cells
    ]  # fmt: skip
    first: dict[str, int] = {}
    for at, cell in enumerate(marked):
        first.setdefault(cell.backbone or cell.model.name, at)
    settings = list(dict.fromkeys(cell.setting.id for cell in cells))

    def place(cell: CellPlan) -> tuple[int, int]:
        own = 0 if cell.backbone is None else settings.index(cell.setting.id)
        return first[cell.backbone or cell.model.name], own

    return sorted(marked, key=place)


def _prepare(
    store: PredictionStore, cells: list[CellPlan], options: dict[str, Any], summary: Summary
) -> list[CellPlan]:
    """Write every pending cell's record; a model that cannot be opened fails its cells."""
    from shiftbed.engine.cell import prepare
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
                prepare(
                    store,
                    cell.model,
                    cell.setting,
                    options,
                    images=images[cell.model.name],
                    shared=cell.backbone is not None,
                )
            except NotApplicable as error:  # this cell only
                why = str(error)
                summary.not_applicable.add(cell.key)
            except Exception as error:  # a model can raise anything; the others go on
                why = broken[cell.model.name] = _one_line(error)
        if why is None:
            ready.append(cell)
        else:
            summary.failed[cell.key] = why
            _record_failure(store, cell, summary)
    return ready


def _finish(store: PredictionStore, cell: CellPlan, summary: Summary) -> None:
    if cell.key in summary.failed:
        _record_failure(store, cell, summary)
    elif store.complete(*cell.key):
        summary.complete.append(cell.key)
        record = store.cell(*cell.key) or {}
        if record.get("status") != "complete":
            _complete(store, cell, record, summary)
            record = store.cell(*cell.key) or {}
        lost = len(record.get("unreadable", ()))
        if lost > MOST_UNREADABLE * cell.n:
            summary.unreadable[cell.key] = (
                f"{lost} of {cell.n} images could not be read; the score is of the rest, and the "
                "same command tries them again"
            )


def _complete(
    store: PredictionStore, cell: CellPlan, record: dict[str, Any], summary: Summary
) -> None:
    prefix = f"{cell.key[0]} on {cell.key[1]}: unreadable: "
    unreadable = [note.removeprefix(prefix) for note in summary.notes if note.startswith(prefix)]
    alarm = f"{cell.key[0]} on {cell.key[1]}: {WARNING}"
    warnings = {note.removeprefix(alarm) for note in summary.notes if note.startswith(alarm)}
    kept = {key: value for key, value in record.items() if key != "error"}
    spent = record.get("wall_seconds", 0.0) + summary.cell_seconds.get(cell.key, 0.0)
    kept |= {"status": "complete", "wall_seconds": round(spent, 3)}
    kept.pop("unreadable", None)  # these were tried again
    if unreadable:
        kept["unreadable"] = sorted(set(unreadable))
    if warnings:
        kept["warnings"] = sorted({*record.get("warnings", []), *warnings})
    store.write_cell(*cell.key, kept)


def _record_failure(store: PredictionStore, cell: CellPlan, summary: Summary) -> None:
    record = store.cell(*cell.key) or {}
    info = {"info": dict(cell.model.info), "spec": cell.model.spec, **cell.model.details}
    failure: dict[str, Any] = {"status": "failed", "error": summary.failed[cell.key]}
    if cell.key in summary.not_applicable:
        failure["not_applicable"] = True
    store.write_cell(*cell.key, info | record | failure)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"
