"""What there is to do, as values: models and settings, the cells between them, and tasks.

Text becomes these at the edge (a testbed.toml, a command line, arguments of ``evaluate``); inside,
objects travel. A model or a test set may be an open object or say how it is opened: then it can go
to another process.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from shiftbed.display import readable
from shiftbed.errors import InputError, unknown
from shiftbed.foreign_code import MINE, Named, Origin
from shiftbed.records import Perturbation, Setting, Shift
from shiftbed.store import PredictionStore
from shiftbed.testbed.stored import called_by

if TYPE_CHECKING:
    from shiftbed.evaluation.data import TestSet
    from shiftbed.evaluation.models import Model
    from shiftbed.evaluation.perturbations import Perturbing

PART = 1024
"""Examples per part: the unit that is never lost and never split."""
PARTS_PER_TASK = 4
WARNING = "warning: "
"""How notes begin that say why a number is not to be trusted."""
Range = tuple[int, int]
DEFAULTS: dict[str, Any] = {
    "batch_size": 64,
    "backend": "auto",
    "top": 5,
    "keep_logits": False,
    "on_unreadable": "skip",
    "threads": 2,
    "device": "cpu",
    "precision": "float32",
    "memory_gib": 0.5,
}
OPTIONS: dict[str, Any] = {key: type(value) for key, value in DEFAULTS.items()}
OPTIONS |= {"preprocessing": dict, "memory_gib": (int, float)}
"""Options of every cell, with their types."""
_ALLOWED = {
    "on_unreadable": ("skip", "stop"),
    "backend": ("auto", "torch", "compile", "onnxruntime"),
}


def check_options(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Options of cells, refused where unknown, of the wrong type or not among the choices."""
    for key, value in given.items():
        if key not in OPTIONS:
            raise unknown(f"key{where}", key, OPTIONS)
        if not isinstance(value, OPTIONS[key]) or (value is True and OPTIONS[key] is int):
            raise InputError(f"{key}{where} has the wrong type: {value!r}")
        if key in _ALLOWED and value not in _ALLOWED[key]:
            raise InputError(f"{key}{where} must be {' or '.join(_ALLOWED[key])}, got {value!r}")
        if key in ("batch_size", "top", "threads") and isinstance(value, int) and value < 1:
            raise InputError(f"{key}{where} must be at least 1, got {value!r}")
    return dict(given)


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSpec:
    """A model of a run: an open one, or how it is opened; and what is known of it."""

    name: str
    source: "str | Model"
    options: Mapping[str, Any] = field(default_factory=dict)
    """For opening it: weights, preprocessing, …"""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the testbed's models: kind, parent, run, step, …"""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else its cells' records say: recipe, arguments, identity."""
    features: str | None = None
    """Folder that keeps what its backbone makes of settings, for other heads on it."""
    origin: Origin = MINE
    """Who wrote its text, and whether code that files name is executed."""

    @classmethod
    def of_line(cls, line: str, name: str | None = None, **more: Any) -> Self:
        """The model of a line of text, under a name of one's own or the one it has in stores."""
        from shiftbed.evaluation.models.registry import called_of, name_of

        called = called_of(line) if name is None else None
        info = {} if called is None else {"called": called}
        return cls(source=line, name=name or name_of(line), info=info, **more)

    @property
    def called(self) -> dict[str, str]:
        """What people call it, by its name, if that is a hash."""
        return called_by({self.name: self.info})

    @property
    def spec(self) -> str | None:
        """The text it was made of, None for an object."""
        return self.source if isinstance(self.source, str) else None

    @property
    def code(self) -> list[Named]:
        """What opening it would execute by name."""
        from shiftbed.evaluation.models.registry import code_in

        if not isinstance(self.source, str):
            return []
        return code_in(self.source, self.origin, self.options.get("trusted", ()))


@dataclass(frozen=True, kw_only=True, eq=False)
class TestSetSpec:
    """A test set of a run by its path, and how it is read."""

    __test__ = False

    name: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    clean: str | None = None
    """Name of the test set that this one is a corrupted copy of."""
    perturbation: Perturbation | None = None
    """Which copy it is."""

    def open(self) -> "TestSet":
        from shiftbed.evaluation.data import open_test_set

        return open_test_set(self.path, name=self.clean or self.name, **self.options)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same images: where a file was replaced, added or removed, another one.

        Looked up once, so that a run sees one state of its files.
        """
        from shiftbed.evaluation.data.state import state_of

        state = state_of(self.path, self.options)
        return (type(self).__name__, self.path, self.clean or self.name, repr(self.options), state)


def corrupted_copy(
    clean: str, perturbation: Perturbation, path: str, options: Mapping[str, Any]
) -> TestSetSpec:
    """A test set that is a perturbed copy, on disk, of the one called ``clean``."""
    name = Setting(test_set=clean).perturbed(perturbation).id
    return TestSetSpec(
        name=name, path=path, options=options, clean=clean, perturbation=perturbation
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SettingPlan:
    """A setting of a run: the value, where its images are, and what is done to them."""

    setting: Setting
    images: "TestSetSpec | TestSet"
    perturb: "Perturbing | None" = None
    """Done in memory; None for nothing, or for what is perturbed on disk."""
    as_numbered: bool = False
    """Whether labels are said to be the model's numbers, whatever classes are called."""

    @property
    def id(self) -> str:
        return self.setting.id

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for plans of the same images under the same labels: perturbations do not matter."""
        one = self.setting
        own = self.images.key if isinstance(self.images, TestSetSpec) else (self.images.token,)
        policy = None if one.policy is None else one.policy.to_json()
        return (*own, policy, one.relabel, one.share, one.seed if one.share is not None else 0)


def opened_store(store: str | PredictionStore) -> PredictionStore:
    return store if isinstance(store, PredictionStore) else PredictionStore(store)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSpec:
    """What to run: models × settings."""

    name: str
    models: Sequence[ModelSpec]
    settings: Sequence[SettingPlan]
    shifts: Sequence[Shift] = ()
    store: str | PredictionStore = "store"
    options: Mapping[str, Any] = field(default_factory=dict)
    """batch_size, backend, top, keep_logits, on_unreadable, …: see ``OPTIONS``."""

    @property
    def code(self) -> list[Named]:
        """What running it would execute by name."""
        found = [one for model in self.models for one in model.code]
        acts = [one.perturb for one in self.settings if one.perturb is not None]
        return found + [one for act in acts for one in act.code]


@dataclass(frozen=True, kw_only=True, eq=False)
class CellPlan:
    """One model in one setting, with the parts that are still missing."""

    model: ModelSpec
    setting: SettingPlan
    n: int
    missing: tuple[Range, ...]
    backbone: str | None = None
    """What it has in common with other models of the run that share its backbone."""
    untidy: bool = False
    """Whether a killed run left files of it that are in others."""
    new: bool = False
    """Whether nobody had begun it when the run was planned."""

    @property
    def key(self) -> tuple[str, str]:
        return self.model.name, self.setting.id

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{readable(self.model.name, self.model.called)} on {self.setting.id}"

    @property
    def images(self) -> int:
        """Images still to predict."""
        return sum(stop - start for start, stop in self.missing)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A few parts of one cell, for one worker. Only this and ``Done`` travel; results do not."""

    work: ClassVar[str] = "shiftbed.engine.cell:execute"
    """The function that does it, MODULE:NAME."""
    store: str | PredictionStore
    model: ModelSpec
    setting: SettingPlan
    parts: tuple[Range, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False
    """Whether other models have the same backbone, so that its features are worth keeping."""
    images: int | None = None
    """How many images the model will see in all, over all its cells."""
    first: bool = False
    """Whether nobody had begun the cell when the run was planned, and this is its first task."""
    fresh: bool = False
    """Whether the cell is begun anew, and what is there of it forgotten."""
    commit: str | None = None
    """The commit of the folder that the run was started in."""

    @property
    def key(self) -> tuple[str, str]:
        return self.model.name, self.setting.id


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a worker says of a task, or of one part of it."""

    key: tuple[str, str]
    images: int = 0
    seconds: float = 0.0
    error: str = ""
    broken: bool = False
    """Whether the model cannot be opened, so that its other cells fail as well."""
    not_applicable: bool = False
    """Whether the model cannot have this cell, such as an attack on one without gradients."""
    notes: tuple[str, ...] = ()


def ranges(n: int, size: int = PART) -> list[Range]:
    """0 … n−1 in runs of ``size``.

    >>> ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def tasks(
    cell: CellPlan, store: str | PredictionStore, options: Mapping[str, Any], **more: Any
) -> Iterator[Task]:
    """The cell cut into tasks, so that several workers can share a large one."""
    for i in range(0, len(cell.missing), PARTS_PER_TASK):
        yield Task(
            store=store,
            model=cell.model,
            setting=cell.setting,
            parts=cell.missing[i : i + PARTS_PER_TASK],
            options=options,
            shared=cell.backbone is not None,
            first=cell.new and not i,
            **more,
        )
