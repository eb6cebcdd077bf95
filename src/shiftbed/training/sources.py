"""What a recipe trains on and evaluates on: named data sets, tasks of the catalogue, settings.

[data.usps]                          # any name; path and options as of a test set
path = "digits.npz:usps_train"
held_out = 0.1                       # of every class, never trained on
validation = 0.1                     # the same, to choose networks by
exclude = "kept-out.csv"             # ids in a column 'example', or one per line

[data.pairs]                         # images with texts and no class, for objective "contrastive"
path = "pairs.csv"                   # or .parquet, or shards: "pairs-{000..099}.tar"
caption_column = "caption"           # of tars also "txt": the members that end so

[tasks.pacs]                         # all domains of a task of the catalogue: data sets pacs/photo,
path = "data/PACS"                   # …, settings pacs/photo/held-out, …, and the shifts between
held_out = 0.2
validation = 0.1                     # settings pacs/photo/validation, …: each for its own networks
corruptions = ["wenzel2022"]         # of the ID test part (wenzel2022, Section 3)
attacks = ["wenzel2022"]             # on the test parts of all domains; attack_options as elsewhere
attack_share = 0.1                   # of every class

[[test_sets]]                        # as in a testbed.toml, with [[settings]] and [[shifts]]
name = "usps"
path = "digits.npz:usps_test"

[[test_sets]]
name = "usps-held-out"
data = "usps"                        # the held-out part of a data set; part = "validation"

[[settings]]
test_set = "usps"
subset = "0-4"                       # also as a range
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from shiftbed.catalogue import DomainTask, find_task
from shiftbed.engine.perturbed_settings import expand, take
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
from shiftbed.evaluation.data.parts import HELD_OUT as TEST
from shiftbed.evaluation.data.parts import VALIDATION as CHOOSING
from shiftbed.evaluation.data.state import state_of
from shiftbed.foreign_code import Origin
from shiftbed.records import Shift
from shiftbed.training.arguments import one_of, share

HELD_OUT, VALIDATION = "held_out", "validation"
"""Shares of a data set that are not trained on."""
_PERTURBING = ("corruptions", "attacks", "frost", "attack_options", "attack_share")


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """A training data set: where it is, how it is read, and what is kept out of it."""

    name: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    held_out: float | None = None
    validation: float | None = None
    exclude: str | None = None
    task: str | None = None

    @cached_property
    def state(self) -> str:
        """Equal for the same files; looked up once, so that a run sees one state of them."""
        return state_of(self.path, self.options)

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
        found |= {VALIDATION: self.validation} if self.validation else {}
        return found | ({"exclude": Path(self.exclude).name} if self.exclude else {})


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All data sets, settings and shifts of a recipe."""

    data: Mapping[str, DataSpec]
    settings: tuple[SettingPlan, ...]
    shifts: tuple[Shift, ...]
    of_data: Mapping[str, tuple[str, ...]]
    """Data set of a task → ids of the settings of networks trained on it; "" for any other."""


def read_sources(table: Mapping[str, Any], base: Path, origin: Origin) -> Sources:
    """Read ``data``, ``tasks``, ``test_sets``, ``settings`` and ``shifts``; paths near ``base``."""
    data = {name: _data(name, one, base) for name, one in named_tables(table, "data").items()}
    test_sets: dict[str, TestSetSpec] = {}
    for one in tables(table, "test_sets"):
        add_test_sets(test_sets, _test_sets(one, data, base, test_sets))
    own, shifts = read_settings(table, base, test_sets, origin)
    settings, of_data = list(own), {"": tuple(one.id for one in own)}
    found = list(shifts)
    for name, one in named_tables(table, "tasks").items():
        task = find_task(name)
        more, cells, between = _task(task, one, base, origin)
        data |= more
        found += between
        for of, some in cells.items():
            settings += some
            of_data[of] = tuple(cell.id for cell in some)
    if not data:
        raise InputError("expected at least one [data.NAME] or [tasks.NAME] table")
    every = {one.id: one for one in settings}
    # A recipe's test sets are numbered as its data are, and networks learn those numbers.
    numbered = tuple(replace(one, as_numbered=True) for one in every.values())
    return Sources(data=data, settings=numbered, shifts=tuple(found), of_data=of_data)


def _data(name: str, table: Mapping[str, Any], base: Path) -> DataSpec:
    known_keys(table, ("path", HELD_OUT, VALIDATION, "exclude", *READING), f"[data.{name}]")
    given = dict(table)
    path = given.pop("path", None)
    if not isinstance(path, str) or not path:
        raise InputError(f"[data.{name}] needs a path")
    exclude = given.pop("exclude", None)
    held_out, validation = _shares(given, f"[data.{name}]")
    given = {key: one for key, one in given.items() if key not in (HELD_OUT, VALIDATION)}
    return DataSpec(
        name=name,
        path=beside(path, base),
        options=files_beside(given, base),
        held_out=held_out,
        validation=validation,
        exclude=None if exclude is None else beside(str(exclude), base),
    )


def _shares(
    table: Mapping[str, Any], where: str, held_out: float | None = None
) -> tuple[float | None, float | None]:
    """``held_out`` and ``validation`` of a table; something must be left to train on."""
    given = {HELD_OUT: table.get(HELD_OUT, held_out), VALIDATION: table.get(VALIDATION) or None}
    found = {
        key: None if one is None else share(one, f"{where} {key}", "(0, 1)")
        for key, one in given.items()
    }
    if (found[HELD_OUT] or 0) + (found[VALIDATION] or 0) >= 1:
        raise InputError(f"{where} held_out and validation leave nothing to train on")
    return found[HELD_OUT], found[VALIDATION]


Cells = dict[str, list[SettingPlan]]
"""Data set → the settings of networks trained on it."""


def _task(
    task: DomainTask, table: dict[str, Any], base: Path, origin: Origin
) -> tuple[dict[str, DataSpec], Cells, list[Shift]]:
    """A task's domains as data sets, their parts as settings, all pairs as shifts.

    A shift is about the networks trained on its ID data, which have an ID validation part and a
    corrupted ID test part of their own (wenzel2022, Section 3).
    """
    where = f"[tasks.{task.name}]"
    known_keys(table, ("path", HELD_OUT, VALIDATION, *_PERTURBING), where)
    if not isinstance(table.get("path"), str):
        raise InputError(f"{where} needs a path; {task.tree}")
    folder = beside(table["path"], base)
    names = [f"{task.name}/{domain.name}" for domain in task.domains]
    test_sets: list[TestSetSpec]
    if task.predefined:  # a WILDS task has its own training split, ID set and OOD set
        if HELD_OUT in table:
            raise InputError(f"{where} has its own test sets: {HELD_OUT} is for other tasks")
        train = f"{task.name}/train"
        _, validation = _shares(table, where)
        only = DataSpec(name=train, path=f"{train}@{folder}", validation=validation, task=task.name)
        data = [only]
        test_sets = [TestSetSpec(name=name, path=f"{name}@{folder}") for name in names]
        pairs = {"id-to-ood": (0, 1)}
    else:
        held_out, validation = _shares(table, where, held_out=0.2)
        data = [
            DataSpec(
                name=name,
                path=f"{name}@{folder}",
                held_out=held_out,
                validation=validation,
                task=task.name,
            )
            for name in names
        ]
        test_sets = [_part(one, TEST) for one in data]
        place = {domain.name: at for at, domain in enumerate(task.domains)}
        pairs = {f"{a}-to-{b}": (place[a], place[b]) for a, b in task.pairs}
    clean = [plan_setting(one, {}) for one in test_sets]
    choosing = [plan_setting(_part(one, CHOOSING), {}) for one in data if one.validation]
    attacked, corrupted = _perturbed(table, test_sets, base, where, origin)
    cells = {
        one.name: [*clean, *choosing[at : at + 1], *corrupted.get(at, []), *attacked]
        for at, one in enumerate(data)
    }
    shifts = [
        Shift(
            name=f"{task.name}/{name}",
            kind="natural-dataset",
            source=(clean[source].id,),
            target=clean[target].id,
            task=task.name,
            fit_on=f"training_data={data[source].name}",
            validation=choosing[source].id if choosing else "",
        )
        for name, (source, target) in pairs.items()
    ]
    return {one.name: one for one in data}, cells, shifts


def _perturbed(
    table: Mapping[str, Any], test_sets: list[TestSetSpec], base: Path, where: str, origin: Origin
) -> tuple[list[SettingPlan], dict[int, list[SettingPlan]]]:
    """Test parts under attack, of all domains; and corrupted, by the number of the ID domain."""
    given = {key: table[key] for key in _PERTURBING if key in table}
    some = {"share": given.pop("attack_share")} if "attack_share" in given else {}
    if some and "attacks" not in given:
        raise InputError(f"{where} has an attack_share, but no attacks")
    wanted = take(given, base)
    attacking = {key: one for key, one in wanted.items() if key.startswith("attack")}
    corrupting = {key: one for key, one in wanted.items() if key not in attacking}
    attacked, corrupted = [], {}
    for at, one in enumerate(test_sets):
        if attacking:
            attacked += expand(plan_setting(one, some), attacking, (), origin)[1:]
        if corrupting:
            corrupted[at] = expand(plan_setting(one, {}), corrupting, (), origin)[1:]
    return attacked, corrupted


@dataclass(frozen=True, kw_only=True, eq=False)
class DataPart(TestSetSpec):
    """A part of a data set that is not trained on, as a test set."""

    part: str
    held_out: float | None = None
    validation: float | None = None

    def open(self) -> TestSet:
        from shiftbed.training.prepare import open_part

        shares = {HELD_OUT: self.held_out, VALIDATION: self.validation}
        return open_part(self.path, self.options, self.part, **shares)

    @property
    def key(self) -> tuple[Any, ...]:
        return (*super().key, self.part, self.held_out, self.validation)


def _part(data: DataSpec, part: str, name: str = "") -> DataPart:
    return DataPart(
        name=name or f"{data.name}/{part}",
        path=data.path,
        options=data.options,
        part=part,
        held_out=data.held_out,
        validation=data.validation,
    )


def _test_sets(
    table: dict[str, Any],
    data: Mapping[str, DataSpec],
    base: Path,
    others: Mapping[str, TestSetSpec],
) -> list[TestSetSpec]:
    """As in a testbed.toml, or a part of ``data``: held out, or for validation."""
    of = table.pop("data", None)
    if of is None:
        return read_test_sets(table, base, others)
    one_of(of, "data set in [[test_sets]]", data)
    known_keys(table, ("name", "part"), f"[[test_sets]] of data {of!r}")
    part = one_of(table.get("part", TEST), "part in [[test_sets]]", (TEST, CHOOSING))
    key = {TEST: HELD_OUT, CHOOSING: VALIDATION}[part]
    if getattr(data[of], key) is None:
        raise InputError(f"[data.{of}] has no part {part!r}: give it {key}")
    return [_part(data[of], part, str(table.get("name") or ""))]
