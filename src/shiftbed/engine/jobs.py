"""Cells and tasks: what there is to do, and what is left of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from shiftbed.engine.spec import ModelSpec, SettingSpec
from shiftbed.store import PredictionStore

PART = 1024
"""Examples per part: the unit that is never lost and never split."""
PARTS_PER_TASK = 4
WARNING = "warning: "
"""How notes begin that say why a number is not to be trusted."""
Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """One model in one setting, with the parts that are still missing."""

    model: ModelSpec
    setting: SettingSpec
    n: int
    missing: tuple[Range, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.model.name, self.setting.id

    @property
    def images(self) -> int:
        """Images still to predict."""
        return sum(stop - start for start, stop in self.missing)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A few parts of one cell, for one worker. Only this and ``Done`` travel; results do not."""

    work: ClassVar[str] = "shiftbed.engine.execute:execute"
    """The function that does it, MODULE:NAME."""
    store: str
    model: ModelSpec
    setting: SettingSpec
    parts: tuple[Range, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

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
    notes: tuple[str, ...] = ()


def ranges(n: int, size: int = PART) -> list[Range]:
    """0 … n−1 in runs of ``size``.

    >>> ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def missing(store: PredictionStore, model: str, setting: str, n: int) -> tuple[Range, ...]:
    """The parts of a cell that are not in the store."""
    return tuple(store.missing(model, setting, ranges(n)))


def tasks(cell: CellPlan, store: str, options: Mapping[str, Any]) -> Iterator[Task]:
    """The cell cut into tasks, so that several workers can share a large one."""
    for i in range(0, len(cell.missing), PARTS_PER_TASK):
        yield Task(
            store=store,
            model=cell.model,
            setting=cell.setting,
            parts=cell.missing[i : i + PARTS_PER_TASK],
            options=options,
        )
