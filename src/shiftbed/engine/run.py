"""Running a plan: what is missing is prepared, handed to a runner, and recorded as it ends."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from shiftbed.engine.on_ray import on_ray
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
from shiftbed.engine.provenance import commit
from shiftbed.engine.runners import in_process, in_processes
from shiftbed.engine.sharing import SharedCells
from shiftbed.errors import InputError, unknown
from shiftbed.foreign_code import check_code
from shiftbed.places import path_of, url_of, without_folders
from shiftbed.store import PredictionStore
from shiftbed.store.compact import Overview, finish_cell, is_in_place, settle, tidy
from shiftbed.store.names import covers
from shiftbed.store.store import not_in

PAUSE = 1.0
"""Seconds between looks at cells that another run is at work on."""
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
    spec: RunSpec, store: PredictionStore, *, write: bool = True, fresh: bool = False
) -> tuple[list[CellPlan], dict[str, str]]:
    """All cells with their missing parts; settings that cannot be opened, with the reason.

    ``write``: whether the store gets the test sets. ``fresh``: all parts count as missing.
    """
    from shiftbed.engine.open_setting import open_setting

    cells, broken = [], {}
    known = Overview(store)
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
            record, there = known.look(model.name, setting.id)
            if record is None and write:
                known.clear(model.name, setting.id, ranges(n))
            missing = ranges(n) if fresh else not_in(ranges(n), there)
            if record is not None and there and not fresh:
                missing += _unread(store, record, n)
            cells.append(
                CellPlan(
                    model=model,
                    setting=setting,
                    n=n,
                    missing=tuple(sorted(set(missing))),
                    untidy=known.is_untidy(model.name, setting.id),
                    new=record is None,
                )
            )
    cells.sort(key=lambda cell: [m.name for m in spec.models].index(cell.model.name))
    return cells, broken


def _unread(store: PredictionStore, record: dict[str, Any], n: int) -> list[tuple[int, int]]:
    """Parts with images that could not be read: they are tried again."""
    if record.get("status") == "complete" and not record.get("unreadable"):
        return []
    found: list[tuple[int, int]] = []
    for piece in store.pieces(record["model"], record["setting"], listed=True):
        gaps = store.read_piece(piece, ["class_1"])["class_1"].is_null().arg_true()
        rows = {piece.part[0] + int(row) for row in gaps}
        found += [one for one in ranges(n) if any(one[0] <= row < one[1] for row in rows)]
    return found


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
    fresh: bool = False,
    same: bool = False,
    **options: Any,
) -> Summary:
    """Run what is missing. The same call again continues exactly where this one stopped.

    A failing cell is recorded with its error and the rest goes on. ``describe``: whether the
    store's own record gets the plan's name, models and shifts. ``shard``: ``i/n`` runs every n-th
    cell, beginning with the i-th; n such runs, wherever they are, do it all. Where it cannot be
    known whether a model is the one whose answers are kept, one of ``fresh`` (compute again, of
    every cell of this run) and ``same`` (take what is there) must say what to do.
    """
    first, step = shard_of(shard)
    if fresh and same:
        raise InputError("give one of fresh and same: compute again, or take what is there")
    if runner not in RUNNERS:
        raise unknown("runner", runner, RUNNERS)
    check_code(spec.code)
    for setting in spec.settings:
        if setting.perturb is not None:
            setting.perturb.load()
    given = check_options(spec.options) | check_options(options)
    store, summary = opened_store(spec.store), Summary()
    if runner != "local":
        _can_travel(spec)
    if broken := _none_opens(spec):  # nothing is written
        summary.failed = {(one.name, id): why for id, why in broken.items() for one in spec.models}
        return summary
    with store.files.lock(alone=False), store.at_work():  # nobody cleans up meanwhile
        if describe:
            store.write_about(_about(spec, store.about()))
        cells, broken = plan(spec, store, fresh=fresh)
        cells = cells[first::step]
        summary.failed |= {(one.name, id): why for id, why in broken.items() for one in spec.models}
        announce([cell for cell in cells if cell.missing])
        clock = time.perf_counter()
        if not fresh:
            from shiftbed.engine.identity import same_models

            cells = same_models(store, cells, given, summary.failed, same)
        elsewhere = runner != "local"  # what this process need not have: a GPU
        cells = _with_backbones(cells, given | ({"device": "cpu"} if elsewhere else {}))
        kept: str | PredictionStore = store
        if elsewhere and isinstance(spec.store, str):
            kept = spec.store if url_of(spec.store) else str(path_of(spec.store).absolute())
        images = Counter({cell.model.name: 0 for cell in cells})
        for cell in cells:
            images[cell.model.name] += cell.images
        start = commit(Path.cwd())

        def cut(cell: CellPlan, **more: Any) -> Iterator[Task]:
            seen = images[cell.model.name]
            return tasks(cell, kept, given, images=seen, commit=start, **more)

        gpus = not str(given.get("device", "cpu")).startswith("cpu")
        run = _runner(runner, workers, address, gpus)
        old = [cell for cell in cells if cell.missing and not cell.new]
        anew = [cell for cell in old if fresh or (not same and _empty(store, cell))]
        begun = run(_beginnings(anew, cut), _listener(summary, report)) if anew else ()
        ready = _prepare(store, cells, summary, begun)
        by_key = {cell.key: cell for cell in cells}
        pending = {cell.key for cell in ready}
        for cell in cells:
            if cell.key not in pending:
                _finish(store, cell, summary)
        shared = SharedCells(store, ready, cut)
        with shared.claims.kept():
            shared.announce()
            while shared.waiting:
                todo = shared.tasks()
                some = list(islice(todo, 1))  # nobody is hired for nothing
                for done in run(chain(some, todo), _listener(summary, report)) if some else ():
                    _note_failure(summary, done)
                    for key in shared.give_up(done.key[0]) if done.broken else ():
                        summary.failed[key] = done.error
                        _finish(store, by_key[key], summary)
                    if shared.is_last(done.key):  # complete at once, for whoever looks at the store
                        _finish(store, by_key[done.key], summary)
                        shared.release(done.key, complete=done.key in summary.complete)
                for key in shared.done_elsewhere():
                    _finish(store, by_key[key], summary)
                if shared.waiting:
                    time.sleep(PAUSE)
        summary.seconds = time.perf_counter() - clock
        _leave_out(store, cells, summary)
    settle(store)
    return summary


def _none_opens(spec: RunSpec) -> dict[str, str]:
    """Why no setting can be opened, by its id; empty as soon as one can."""
    from shiftbed.engine.open_setting import open_setting

    why: dict[str, str] = {}
    for setting in spec.settings:
        try:
            open_setting(setting)
            return {}
        except InputError as error:
            why[setting.id] = str(error)
    return why


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
) -> Callable[[Iterable[Task], Callable[[Done], None]], Iterator[Done]]:
    if name == "local":
        return in_process
    if name == "processes":
        return lambda todo, hear: in_processes(todo, hear, workers=workers, threads=1)
    return lambda todo, hear: on_ray(todo, hear, workers=workers, address=address, gpus=gpus)


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


def _beginnings(cells: Iterable[CellPlan], cut: Callable[..., Iterable[Task]]) -> Iterator[Task]:
    """A task each for cells that are begun anew: what is there goes once their model is open."""
    for cell in cells:
        (first, *_) = cut(cell, fresh=True)
        yield replace(first, parts=())


def _prepare(
    store: PredictionStore, cells: list[CellPlan], summary: Summary, begun: Iterable[Done]
) -> list[CellPlan]:
    """The pending cells: those begun earlier put in order, those begun anew as ``begun`` says.

    All others are begun by whoever runs their first task.
    """
    from shiftbed.engine.cell import resume

    anew = set()
    for done in begun:
        anew.add(done.key)
        _note_failure(summary, done)
    ready: list[CellPlan] = []
    for cell in cells:
        if not cell.missing:
            continue
        if cell.key in summary.failed:
            _record_failure(store, cell, summary)
            continue
        if not cell.new and cell.key not in anew:
            resume(store, cell.model, cell.setting)
        ready.append(cell)
    return ready


def _note_failure(summary: Summary, done: Done) -> None:
    if done.error:
        summary.failed.setdefault(done.key, done.error)
    if done.not_applicable:
        summary.not_applicable.add(done.key)


def _empty(store: PredictionStore, cell: CellPlan) -> bool:
    """Whether a cell was begun, has no answers and may have been another model's."""
    record = store.cell(*cell.key)
    doubtful = record is not None and "backend" in record and record.get("identity") is None
    return doubtful and not store.parts(*cell.key)


def _finish(store: PredictionStore, cell: CellPlan, summary: Summary) -> None:
    with store.files.remembering():
        _finish_cell(store, cell, summary)


def _finish_cell(store: PredictionStore, cell: CellPlan, summary: Summary) -> None:
    if cell.key in summary.failed:
        _record_failure(store, cell, summary)
    elif covers(store.there(*cell.key), cell.n):
        summary.complete.append(cell.key)
        record = store.begun(*cell.key) or {}
        if record.get("status") != "complete" or not is_in_place(store, *cell.key):
            record = _complete(store, cell, record, summary)
        elif cell.missing or cell.untidy:  # another process was faster, or killed
            tidy(store, *cell.key)
        lost = len(record.get("unreadable", ()))
        if lost > MOST_UNREADABLE * cell.n:
            summary.unreadable[cell.key] = (
                f"{lost} of {cell.n} images could not be read; the score is of the rest, and the "
                "same command tries them again"
            )


def _complete(
    store: PredictionStore, cell: CellPlan, record: dict[str, Any], summary: Summary
) -> dict[str, Any]:
    unreadable = _unreadable(summary, cell.key)
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
    finish_cell(store, *cell.key, kept)
    return kept


def _leave_out(store: PredictionStore, cells: list[CellPlan], summary: Summary) -> None:
    """Note in their test sets which images could not be read: repaired, they are no others."""
    from shiftbed.engine.open_setting import open_setting

    lost: dict[str, set[str]] = {}
    for key in summary.complete:
        lost.setdefault(key[1], set()).update(_unreadable(summary, key))
    for plan in {cell.setting.id: cell.setting for cell in cells}.values():
        if said := lost.get(plan.id):
            stored = open_setting(plan).stored
            row = {example: i for i, example in enumerate(stored.examples)}
            starts = ([one[: end.start()] for end in re.finditer(r" \(", one)] for one in said)
            known = ([text for text in some if text in row] for some in starts)
            store.leave_out(stored, {row[some[-1]] for some in known if some})


def _unreadable(summary: Summary, key: tuple[str, str]) -> list[str]:
    """The images of a cell that could not be read, each with the reason: EXAMPLE (REASON)."""
    prefix = f"{key[0]} on {key[1]}: unreadable: "
    return [note.removeprefix(prefix) for note in summary.notes if note.startswith(prefix)]


def _record_failure(store: PredictionStore, cell: CellPlan, summary: Summary) -> None:
    record = store.cell(*cell.key) or {}
    known = without_folders({"spec": cell.model.spec, **cell.model.details})
    info = {"info": dict(cell.model.info), **known}
    failure: dict[str, Any] = {"status": "failed", "error": summary.failed[cell.key]}
    if cell.key in summary.not_applicable:
        failure["not_applicable"] = True
    store.write_cell(*cell.key, info | record | failure)
