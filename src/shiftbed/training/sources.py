"""What a recipe trains on and evaluates on: named data sets, tasks of the catalogue, settings.

[data.usps]                          # any name; path and options as of a test set
path = "digits.npz:usps_train"
held_out = 0.1                       # of every class, never trained on
exclude = "kept-out.csv"             # ids in a column 'example', or one per line

[tasks.pacs]                         # all domains of a task of the catalogue: data sets pacs/photo,
path = "data/PACS"                   # …, settings pacs/photo/held-out, …, and the shifts between
held_out = 0.2

[[test_sets]]                        # as in a testbed.toml, with [[settings]] and [[shifts]]
name = "usps"
path = "digits.npz:usps_test"

[[test_sets]]
name = "usps-held-out"
data = "usps"                        # the held-out part of a data set

[[settings]]
test_set = "usps"
subset = "0-4"                       # also as a range
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftbed.catalogue import DomainTask, find_task
from shiftbed.engine.plan import SettingPlan, TestSetSpec
from shiftbed.engine.testbed_file import add_test_sets, plan_setting, read_settings, read_test_sets
from shiftbed.engine.toml_files import (
    READING,
    beside,
    files_beside,
    known_keys,
    named_tables,
    tables,
)
from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.records import Shift
from shiftbed.training.arguments import one_of, share

HELD_OUT = "held_out"
"""Option of a test set: only the part of a data set that is not trained on."""


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """A training data set: where it is, how it is read, and what is kept out of it."""

    name: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    held_out: float | None = None
    exclude: str | None = None
    task: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What a job's id depends on: not the folders.

        >>> DataSpec(name="a", path="x/y/a.npz", held_out=0.1).identity
        {'file': 'a.npz', 'held_out': 0.1}
        """
        known, at, _ = self.path.partition("@")
        found: dict[str, Any] = {"file": known if at else Path(self.path).name}
        own = {k: Path(v).name if isinstance(v, str) else v for k, v in self.options.items()}
        own.pop("cache", None)
        found |= {"options": own} if own else {}
        found |= {HELD_OUT: self.held_out} if self.held_out else {}
        return found | ({"exclude": Path(self.exclude).name} if self.exclude else {})


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All data sets, settings and shifts of a recipe."""

    data: Mapping[str, DataSpec]
    settings: tuple[SettingPlan, ...]
    shifts: tuple[Shift, ...]
    of_task: Mapping[str, tuple[str, ...]]
    """Task → ids of its settings; "" for those of none."""


def read_sources(table: Mapping[str, Any], base: Path) -> Sources:
    """Read ``data``, ``tasks``, ``test_sets``, ``settings`` and ``shifts``; paths near ``base``."""
    data = {name: _data(name, one, base) for name, one in named_tables(table, "data").items()}
    test_sets: dict[str, TestSetSpec] = {}
    for one in tables(table, "test_sets"):
        add_test_sets(test_sets, _test_sets(one, data, base, test_sets))
    own, shifts = read_settings(table, base, test_sets)
    settings, of_task = list(own), {"": tuple(one.id for one in own)}
    found = list(shifts)
    for name, one in named_tables(table, "tasks").items():
        task = find_task(name)
        more, cells, between = _task(task, one, base)
        data |= more
        settings += cells
        found += between
        of_task[task.name] = tuple(cell.id for cell in cells)
    if not data:
        raise InputError("expected at least one [data.NAME] or [tasks.NAME] table")
    return Sources(data=data, settings=tuple(settings), shifts=tuple(found), of_task=of_task)


def _data(name: str, table: Mapping[str, Any], base: Path) -> DataSpec:
    known_keys(table, ("path", HELD_OUT, "exclude", *READING), f"[data.{name}]")
    given = dict(table)
    path = given.pop("path", None)
    if not isinstance(path, str) or not path:
        raise InputError(f"[data.{name}] needs a path")
    exclude = given.pop("exclude", None)
    held_out = given.pop(HELD_OUT, None)
    if held_out is not None:
        held_out = share(held_out, f"[data.{name}] {HELD_OUT}", "(0, 1)")
    return DataSpec(
        name=name,
        path=beside(path, base),
        options=files_beside(given, base),
        held_out=held_out,
        exclude=None if exclude is None else beside(str(exclude), base),
    )


def _task(
    task: DomainTask, table: dict[str, Any], base: Path
) -> tuple[dict[str, DataSpec], list[SettingPlan], list[Shift]]:
    """A task's domains as data sets, their held-out parts as settings, all pairs as shifts.

    A shift is about the networks trained on its ID data.
    """
    where = f"[tasks.{task.name}]"
    known_keys(table, ("path", HELD_OUT), where)
    if not isinstance(table.get("path"), str):
        raise InputError(f"{where} needs a path; {task.tree}")
    folder = beside(table["path"], base)
    names = [f"{task.name}/{domain.name}" for domain in task.domains]
    test_sets: list[TestSetSpec]
    if task.predefined:  # a WILDS task has its own training split, ID set and OOD set
        train = f"{task.name}/train"
        data = [DataSpec(name=train, path=f"{train}@{folder}", task=task.name)]
        test_sets = [TestSetSpec(name=name, path=f"{name}@{folder}") for name in names]
        pairs = {"id-to-ood": (0, 1)}
    else:
        held_out = share(table.get(HELD_OUT, 0.2), f"{where} {HELD_OUT}", "(0, 1)")
        data = [
            DataSpec(name=name, path=f"{name}@{folder}", held_out=held_out, task=task.name)
            for name in names
        ]
        test_sets = [_held_out_part(one, f"{one.name}/held-out") for one in data]
        place = {domain.name: at for at, domain in enumerate(task.domains)}
        pairs = {f"{a}-to-{b}": (place[a], place[b]) for a, b in task.pairs}
    settings = [plan_setting(one, {}) for one in test_sets]
    shifts = [
        Shift(
            name=f"{task.name}/{name}",
            kind="natural-dataset",
            source=(settings[source].id,),
            target=settings[target].id,
            task=task.name,
            fit_on=f"training_data={data[source].name}",
        )
        for name, (source, target) in pairs.items()
    ]
    return {one.name: one for one in data}, settings, shifts


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut(TestSetSpec):
    """The part of a data set that is not trained on, as a test set."""

    share: float

    def open(self) -> TestSet:
        from shiftbed.training.prepare import held_out_part

        return held_out_part(self.path, self.options, self.share)

    @property
    def key(self) -> tuple[Any, ...]:
        return (*super().key, self.share)


def _held_out_part(data: DataSpec, name: str) -> HeldOut:
    assert data.held_out is not None
    return HeldOut(name=name, path=data.path, options=data.options, share=data.held_out)


def _test_sets(
    table: dict[str, Any],
    data: Mapping[str, DataSpec],
    base: Path,
    others: Mapping[str, TestSetSpec],
) -> list[TestSetSpec]:
    """As in a testbed.toml, or the held-out part of ``data``."""
    of = table.pop("data", None)
    if of is None:
        return read_test_sets(table, base, others)
    one_of(of, "data set in [[test_sets]]", data)
    if data[of].held_out is None:
        raise InputError(f"[data.{of}] holds nothing out: give it held_out")
    if table.keys() - {"name"}:
        raise InputError(f"test set of data {of!r}: only a name may be given beside it")
    return [_held_out_part(data[of], str(table.get("name") or f"{of}/held-out"))]
