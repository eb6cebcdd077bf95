"""``evaluate``: models on test sets, as a notebook calls it; ``run``: the same from a testbed.toml.

Both make a plan and give it to the one engine (``run.py``). Objects and texts mix freely: a
``torch.nn.Module``, a function, an estimator or ``"timm:resnet18"`` as a model; arrays, a loader, a
Hugging Face data set or a path as a test set.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.display import Result, Table, number, records
from shiftbed.engine.perturbed_settings import expand, with_automatic
from shiftbed.engine.plan import (
    WARNING,
    CellPlan,
    Done,
    ModelSpec,
    RunSpec,
    SettingPlan,
    TestSetSpec,
    opened_store,
)
from shiftbed.engine.run import Summary, plan, run_spec
from shiftbed.errors import InputError
from shiftbed.records import Setting, Shift
from shiftbed.results.scores import Scored, score, score_table
from shiftbed.store import PredictionStore
from shiftbed.testbed.stored import called_by

if TYPE_CHECKING:
    from shiftbed.evaluation.data import TestSet
    from shiftbed.evaluation.models import Model
    from shiftbed.testbed import Testbed

Report = Callable[[Done], None]
Announce = Callable[[list[CellPlan]], None]
WARNED = f": {WARNING}"
"""In notes that say why a number is not to be trusted."""
UNREADABLE = ": unreadable: "
"""In notes of images that could not be read."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evaluated(Result):
    """Predictions of models in settings: kept in ``store``, scored as often as one likes."""

    store: PredictionStore
    models: tuple[str, ...]
    """Names of the models, as the store has them."""
    settings: tuple[Setting, ...]
    summary: Summary
    level: float = 0.95

    @property
    def failed(self) -> dict[tuple[str, str], str]:
        """(model, setting) → why there are no predictions."""
        return self.summary.failed

    @property
    def incomplete(self) -> bool:
        """Whether a cell failed, or too many of its images could not be read."""
        return bool(self.failed or self.summary.unreadable)

    @property
    def ready(self) -> list[str]:
        """Ids of the settings in which at least one of the models has been evaluated."""
        done = {setting for _, setting in self.summary.complete}
        return [one.id for one in self.settings if one.id in done]

    def score(self, *metrics: str, level: float | None = None) -> Scored:
        """Any metrics of what was evaluated here (top1 if none is named)."""
        names = [name for name in self.models if any(m == name for m, _ in self.summary.complete)]
        return score(
            self.store,
            metrics=metrics or ("top1",),
            models=names,
            settings=self.ready,
            level=self.level if level is None else level,
        )

    def testbed(self) -> "Testbed":
        """The store as a testbed: lines, ranks and reports of what is in it."""
        from shiftbed.testbed import testbed_from_store

        return testbed_from_store(self.store)

    def _record(self, model: str) -> dict[str, Any]:
        ready = [s for m, s in self.summary.complete if m == model]
        return (self.store.cell(model, ready[0]) or {}) if ready else {}

    def _of_model(self, model: str) -> dict[str, Any]:
        import polars as pl

        record = self._record(model)
        return {
            "model": model,
            "settings": records(self.frame.filter(pl.col("model") == model).drop("model")),
            "backend": record.get("backend"),
            "images_per_second": self.summary.images_per_second,
            "preprocessing": record.get("preprocessing"),
            "unreadable": sorted(set(record.get("unreadable", []))),
            "warnings": sorted({n for n in self.summary.notes if WARNED in n}),
            "notes": self._said(),
            "failed": {s: why for (m, s), why in self.failed.items() if m == model},
        }

    def _said(self) -> dict[str, list[str]]:
        """What the test sets' readers noted."""
        found = {s: (self.store.test_set(s).details or {}).get("notes", []) for s in self.ready}
        return {setting: list(notes) for setting, notes in found.items() if notes}

    def to_dict(self) -> dict[str, Any]:
        if len(self.models) == 1:
            return self._of_model(self.models[0])
        return {"models": [self._of_model(name) for name in self.models]}

    def tables(self) -> Iterable[Table]:
        title = ", ".join(
            f"{name} ({self._record(name).get('backend', 'failed')})" for name in self.models[:3]
        )
        more = f" and {len(self.models) - 3} more" if len(self.models) > 3 else ""
        notes = [
            *sorted(set(self.summary.notes)),
            *(f"{setting}: {note}" for setting, said in self._said().items() for note in said),
            *(f"{m} on {s}: {why}" for (m, s), why in self.summary.unreadable.items()),
            *(f"failed: {m} on {s}: {why}" for (m, s), why in self.failed.items()),
        ]
        yield score_table(title + more, self.frame, self.level, notes)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ran(Evaluated):
    """A testbed.toml that was run."""

    name: str

    def to_dict(self) -> dict[str, Any]:
        summary = self.summary
        return {
            "testbed": self.name,
            "store": self.store.files.root,
            "complete": len(summary.complete),
            "failed": [
                {"model": model, "setting": setting, "error": why}
                for (model, setting), why in summary.failed.items()
            ],
            "images": summary.images,
            "seconds": summary.seconds,
            "images_per_second": summary.images_per_second,
            "unreadable": sorted({n for n in summary.notes if UNREADABLE in n}),
            "warnings": sorted({n for n in summary.notes if WARNED in n}),
            "notes": sorted({n for n in summary.notes if UNREADABLE not in n and WARNED not in n}),
        }

    def tables(self) -> Iterable[Table]:
        summary = self.summary
        speed = summary.images_per_second
        rate = f", {speed:,.0f} images/s" if speed else ""
        lines = [
            f"{self.name}: {len(summary.complete)} cells complete, "
            f"{summary.images:,} images{rate}.",
            *sorted(set(summary.notes)),
            *(f"{m} on {s}: {why}" for (m, s), why in summary.unreadable.items()),
            *(f"failed: {m} on {s}: {why}" for (m, s), why in summary.failed.items()),
            f"Scores: shiftbed score {self.store.files.root}",
        ]
        yield Table(notes=tuple(lines))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LeftToDo(Result):
    """What a run has left to do, cell by cell, with an estimate from the models' speed so far."""

    json_keys = "jobs=frame broken done"
    name: str
    broken: Mapping[str, str]
    done: int

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Any] = {name: name for name in ("model", "setting", "images", "parts")}
        columns["estimate (s)"] = lambda row: number(row["seconds"], 0) or "?"
        yield Table.of(
            f"{self.name}: {len(self.frame)} cells to run, {self.done} done",
            self.frame,
            columns,
            left=2,
            notes=[f"cannot be opened: {name}: {why}" for name, why in self.broken.items()],
        )


def evaluate(
    models: Any,
    test_sets: Any,
    *,
    corruptions: Any = (),
    attacks: Any = (),
    attack_options: Mapping[str, Any] | None = None,
    frost: str | Path | None = None,
    share: float | None = None,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    reading: Mapping[str, Any] | None = None,
    shifts: Sequence[Shift | str] | None = None,
    store: str | Path | PredictionStore | None = None,
    name: str = "eval",
    runner: str = "local",
    workers: int = 2,
    address: str | None = None,
    metrics: Sequence[str] = ("top1",),
    level: float = 0.95,
    report: Report = lambda done: None,
    announce: Announce = lambda cells: None,
    allow_code: bool = False,
    fresh: bool = False,
    same: bool = False,
    **options: Any,
) -> Evaluated:
    """Evaluate models on test sets, clean and perturbed; what is in the store is not run again.

    ``models``: one or several of what ``sb.model`` takes (a ``torch.nn.Module`` needs its size,
    mean and std: wrap it with ``sb.model``). ``test_sets``: one or several ``TestSet``s or paths;
    the first is the ID set of a shift to each other one, unless ``shifts`` says otherwise.
    ``corruptions`` and ``attacks``: one or several texts (``"fog:3"``, ``"pgd-linf:2/255"``) or
    objects; every test set is evaluated clean, too. ``labels`` is a label policy as in
    ``[[settings]]`` of a testbed.toml: ``{"subset": [1, 5]}``, ``{"map": {…}}``,
    ``{"through": "imagenet"}``.
    ``reading`` is how test sets given as paths are read: ``classes``, ``label_column``, ``root``
    and the other options of ``open_test_set``. With ``store=None`` predictions stay in memory.
    ``allow_code`` executes code that files name
    (``run:FOLDER`` of a network of somebody's own), which is refused otherwise. Where the store has
    answers and it cannot be known if they are this model's (a function, a module of one's own
    code), ``fresh`` computes again and ``same`` takes what is there. The frame has ``metrics``;
    ``score`` has any others. ``options`` are ``batch_size``, ``backend``, ``device``,
    ``precision``, ``top``, ``keep_logits``, ``threads``, ``on_unreadable``.

    >>> import numpy as np
    >>> import polars as pl
    >>> from shiftbed.evaluation.data import TestSet
    >>> from shiftbed.evaluation.models import model
    >>> images = np.repeat(np.arange(0, 256, 51, np.uint8), 64).reshape(6, 8, 8, 1)
    >>> tiny = TestSet(images, [0, 0, 0, 1, 1, 1], name="tiny")
    >>> bright = model(lambda x: np.stack([1 - x.mean((1, 2, 3)), x.mean((1, 2, 3))], 1),
    ...                name="bright", size=8, mean=(0.0,), std=(1.0,), classes=2)
    >>> found = evaluate(bright, tiny, corruptions=["brightness:5"])
    >>> found.score("top1").frame.select("setting", pl.col("value").round(2), "n").rows()
    [('tiny', 1.0, 6), ('tiny+brightness:5', 0.83, 6)]
    """
    from shiftbed.engine.testbed_file import plan_setting

    wanted: dict[str, Any] = {}
    wanted |= {"corruptions": _several(corruptions)} if corruptions else {}
    wanted |= {"attacks": _several(attacks)} if attacks else {}
    wanted |= {"attack_options": dict(attack_options)} if attack_options else {}
    wanted |= {"frost": str(frost)} if frost is not None else {}
    table = {**(labels or {}), "seed": seed} | ({} if share is None else {"share": share})
    images = images_of(test_sets, reading or {})
    clean = [plan_setting(one, table) for one in images]
    settings = tuple(one for base in clean for one in expand(base, wanted))
    natural = _shifts(clean) if shifts is None else tuple(Shift.of(one) for one in shifts)
    spec = RunSpec(
        name=name,
        store=PredictionStore(None) if store is None else _store(store),
        models=_models(_several(models), allow_code),
        settings=settings,
        shifts=with_automatic(natural, settings),
        options={"threads": 2} | options,
    )
    return finished(
        spec,
        run_spec(
            spec,
            runner=runner,
            workers=workers,
            address=address,
            report=report,
            announce=announce,
            fresh=fresh,
            same=same,
        ),
        metrics=metrics,
        level=level,
    )


def finished(
    spec: RunSpec,
    summary: Summary,
    *,
    metrics: Sequence[str] = ("top1",),
    level: float = 0.95,
) -> Evaluated:
    """What ``evaluate`` returns of a plan that was run; refused if nothing could be evaluated."""
    if not summary.complete and summary.failed:
        each = [f"{m} on {s}: {why}" for (m, s), why in summary.failed.items()]
        more = f"; and {len(each) - 3} more" if len(each) > 3 else ""
        raise InputError("; ".join(each[:3]) + more)
    made = Evaluated(**_evaluated(spec, summary), level=level)
    return replace(made, frame=made.score(*metrics).frame)


def _evaluated(spec: RunSpec, summary: Summary) -> dict[str, Any]:
    """What every plan that was run has to say."""
    import polars as pl

    return {
        "frame": pl.DataFrame(),
        "store": opened_store(spec.store),
        "models": tuple(model.name for model in spec.models),
        "settings": tuple(one.setting for one in spec.settings),
        "summary": summary,
        "called": called_by({model.name: model.info for model in spec.models}),
    }


def run(
    testbed: str | Path | RunSpec,
    *,
    runner: str = "local",
    workers: int = 2,
    address: str | None = None,
    report: Report = lambda done: None,
    announce: Announce = lambda cells: None,
    allow_code: bool = False,
    **options: Any,
) -> Ran:
    """Run a testbed.toml: every model in every setting. The same call again continues.

    ``allow_code`` executes what the file names as ``python:``, which is refused otherwise. Further
    options: those of ``evaluate``, ``fresh`` and ``same`` among them, and ``shard``.
    """
    if isinstance(testbed, RunSpec) and allow_code:
        raise InputError("allow_code goes with a testbed.toml; a plan says it of each model")
    spec = _spec(testbed, allow_code)
    summary = run_spec(
        spec,
        runner=runner,
        workers=workers,
        address=address,
        report=report,
        announce=announce,
        **options,
    )
    made = Ran(**_evaluated(spec, summary), name=spec.name)
    return replace(made, frame=made.score().frame) if summary.complete else made


def left_to_do(testbed: str | Path | RunSpec) -> LeftToDo:
    """What ``run`` would do, without doing it: nothing is executed, nothing is written."""
    import polars as pl

    spec = _spec(testbed)
    store = opened_store(spec.store)
    cells, broken = plan(spec, store, write=False)
    speed = {
        record["model"]: record["n"] / record["wall_seconds"]
        for record in store.cells()
        if record.get("status") == "complete" and record.get("wall_seconds")
    }
    jobs = [
        {
            "model": cell.key[0],
            "setting": cell.key[1],
            "images": cell.images,
            "parts": len(cell.missing),
            "seconds": cell.images / speed[cell.key[0]] if cell.key[0] in speed else None,
        }
        for cell in cells
        if cell.missing
    ]
    types = {"model": pl.String, "setting": pl.String, "images": pl.Int64, "parts": pl.Int64}
    frame = pl.DataFrame(jobs, schema=types | {"seconds": pl.Float64})
    return LeftToDo(frame=frame, name=spec.name, broken=broken, done=len(cells) - len(jobs))


def _spec(testbed: str | Path | RunSpec, allow_code: bool = False) -> RunSpec:
    from shiftbed.engine.testbed_file import read_testbed_toml

    if isinstance(testbed, RunSpec):
        return testbed
    return read_testbed_toml(testbed, allow_code=allow_code)


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _store(store: str | Path | PredictionStore) -> str | PredictionStore:
    return store if isinstance(store, PredictionStore) else str(store)


def _models(given: Sequence[Any], allow_code: bool) -> tuple[ModelSpec, ...]:
    from shiftbed.evaluation.models import model

    found = []
    for one in given:
        if isinstance(one, ModelSpec):
            found.append(one)
        elif isinstance(one, str):
            found.append(ModelSpec.of_line(one))
        else:
            opened: Model = model(one)
            found.append(ModelSpec(source=opened, name=opened.id))
    if allow_code:
        found = [replace(one, origin=replace(one.origin, allow_code=True)) for one in found]
    names = [one.name for one in found]
    for twice in {name for name in names if names.count(name) > 1}:
        raise InputError(f"two models are called {twice!r}; give them names: sb.model(…, name=…)")
    if not found:
        raise InputError("models: expected at least one")
    return tuple(found)


def images_of(
    given: Any, reading: Mapping[str, Any] | None = None
) -> "list[TestSetSpec | TestSet]":
    """One or several test sets or paths, as the engine opens them; ``reading`` is for paths."""
    from shiftbed.engine.catalogue_settings import known_test_set
    from shiftbed.evaluation.data import TestSet

    found: list[TestSetSpec | TestSet] = []
    for one in _several(given):
        if isinstance(one, TestSet | TestSetSpec):
            if reading:
                raise InputError(
                    f"test set {one.name!r} is open already: {', '.join(reading)} too late"
                )
            found.append(one)
            continue
        if not isinstance(one, str | Path):
            raise InputError(
                f"a test set must be a TestSet or a path, got {type(one).__name__}; see "
                "sb.TestSet, sb.TestSet.from_loader, sb.TestSet.from_dataset"
            )
        path = str(one)
        specs = [other for other in found if isinstance(other, TestSetSpec)]
        known = known_test_set(path, None, reading, others=specs)
        plain = TestSetSpec(name=set_name(path), path=path, options=dict(reading or {}))
        found.append(known or plain)
    names = [one.name for one in found]
    for twice in {name for name in names if names.count(name) > 1}:
        raise InputError(f"two test sets have the same name, {twice!r}")
    if not found:
        raise InputError("test_sets: expected at least one")
    return found


def set_name(path: str) -> str:
    """What a test set is called after its path.

    >>> set_name("images/val/"), set_name("digits.npz"), set_name("digits.npz:faint")
    ('val', 'digits', 'faint')
    """
    from shiftbed.evaluation.data.wilds import PREFIX, WildsSpec

    plain = path.rstrip("/")
    if plain.startswith(PREFIX):
        return WildsSpec.parse(plain).called
    if ".npz:" in plain:
        return plain.rpartition(":")[2]
    return Path(plain).stem if Path(plain).suffix else Path(plain).name


def _shifts(clean: Sequence[SettingPlan]) -> tuple[Shift, ...]:
    """From the first test set to each other one, where they are not perturbed copies."""
    plain = [one.id for one in clean if one.setting.perturbation is None]
    return tuple(
        Shift(name=other, kind="natural-dataset", source=(plain[0],), target=other)
        for other in plain[1:]
    )
