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

from shiftbed.catalogue import Task, find_task
from shiftbed.engine.spec import SettingSpec, TestSetSpec
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift

_READING = (
    "image_column",
    "label_column",
    "group_column",
    "id_column",
    "classes",
    "labels",
    "layout",
    "root",
    "cache",
)
"""Options of ``open_test_set``."""
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
    settings: tuple[SettingSpec, ...]
    shifts: tuple[Shift, ...]
    of_task: Mapping[str, tuple[str, ...]]
    """Task → ids of its settings; "" for those of none."""


def read_sources(table: Mapping[str, Any], base: Path) -> Sources:
    """Read ``data``, ``tasks``, ``test_sets``, ``settings`` and ``shifts``; paths near ``base``."""
    data = {name: _data(name, one, base) for name, one in _tables(table, "data").items()}
    own, shifts = _settings(table, data, base)
    settings, of_task = list(own), {"": tuple(one.id for one in own)}
    found = list(shifts)
    for name, one in _tables(table, "tasks").items():
        task = find_task(name)
        more, cells, between = _task(task, dict(one), base)
        data |= more
        settings += cells
        found += between
        of_task[task.name] = tuple(cell.id for cell in cells)
    if not data:
        raise InputError("expected at least one [data.NAME] or [tasks.NAME] table")
    return Sources(data=data, settings=tuple(settings), shifts=tuple(found), of_task=of_task)


def _tables(table: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    found = table.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
        raise InputError(f"{key} must be tables, [{key}.NAME]")
    return found


def _data(name: str, table: Mapping[str, Any], base: Path) -> DataSpec:
    given = dict(table)
    path = given.pop("path", None)
    if not isinstance(path, str) or not path:
        raise InputError(f"[data.{name}] needs a path")
    exclude = given.pop("exclude", None)
    share = given.pop(HELD_OUT, None)
    for key in given:
        if key not in _READING:
            raise unknown(f"key in [data.{name}]", key, ("path", HELD_OUT, "exclude", *_READING))
    return DataSpec(
        name=name,
        path=_near(path, base),
        options=_files_near(given, base),
        held_out=None if share is None else _share(share, f"[data.{name}] {HELD_OUT}"),
        exclude=None if exclude is None else _near(str(exclude), base),
    )


def _share(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise InputError(f"{what} must be above 0 and below 1, got {value!r}")
    return float(value)


def _near(path: str, base: Path) -> str:
    from shiftbed.engine.known import near

    known = near(path, base)
    if known is not None:
        return known
    return path if Path(path).is_absolute() else str(base / path)


def _files_near(options: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Options that name a file beside the recipe, such as ``classes``, with its whole path."""
    return {
        key: str(base / value) if isinstance(value, str) and (base / value).exists() else value
        for key, value in options.items()
    }


def _task(
    task: Task, table: dict[str, Any], base: Path
) -> tuple[dict[str, DataSpec], list[SettingSpec], list[Shift]]:
    """A task's domains as data sets, their held-out parts as settings, all pairs as shifts."""
    where = f"[tasks.{task.name}]"
    path, share = table.pop("path", None), table.pop(HELD_OUT, 0.2)
    for key in table:
        raise unknown(f"key in {where}", key, ("path", HELD_OUT))
    if not isinstance(path, str):
        raise InputError(f"{where} needs a path; {task.tree}")
    folder = path if Path(path).is_absolute() else str(base / path)
    if task.predefined:
        return _predefined(task, folder)
    share = _share(share, f"{where} {HELD_OUT}")
    data, settings = {}, []
    for domain in task.domains:
        name = f"{task.name}/{domain.name}"
        spec = DataSpec(name=name, path=f"{name}@{folder}", held_out=share, task=task.name)
        data[name] = spec
        settings.append(_held_out_part(spec, f"{name}/held-out"))
    shifts = [
        _between(task, f"{task.name}/{a}/held-out", f"{task.name}/{b}/held-out", f"{a}-to-{b}")
        for a, b in task.pairs
    ]
    return data, settings, shifts


def _predefined(
    task: Task, folder: str
) -> tuple[dict[str, DataSpec], list[SettingSpec], list[Shift]]:
    """A WILDS task: its own training split, its own ID and OOD sets."""
    name = f"{task.name}/train"
    data = {name: DataSpec(name=name, path=f"{name}@{folder}", task=task.name)}
    settings = []
    for domain in task.domains:
        own = f"{task.name}/{domain.name}"
        settings.append(SettingSpec(id=own, test_set=TestSetSpec(name=own, path=f"{own}@{folder}")))
    return data, settings, [_between(task, settings[0].id, settings[1].id, "id-to-ood")]


def _between(task: Task, source: str, target: str, name: str) -> Shift:
    return Shift(
        name=f"{task.name}/{name}",
        kind="natural-dataset",
        source=(source,),
        target=target,
        task=task.name,
    )


def _held_out_part(data: DataSpec, name: str) -> SettingSpec:
    options = dict(data.options) | {HELD_OUT: data.held_out}
    return SettingSpec(id=name, test_set=TestSetSpec(name=name, path=data.path, options=options))


def _settings(
    table: Mapping[str, Any], data: Mapping[str, DataSpec], base: Path
) -> tuple[tuple[SettingSpec, ...], tuple[Shift, ...]]:
    """``[[test_sets]]``, ``[[settings]]`` and ``[[shifts]]``, as a testbed.toml has them."""
    from shiftbed.engine.known import with_catalogue
    from shiftbed.engine.perturbed import expand, take, with_automatic
    from shiftbed.engine.spec import setting

    test_sets: dict[str, TestSetSpec] = {}
    for one in _list(table, "test_sets"):
        for spec in _test_sets(dict(one), data, base, test_sets):
            if spec.name in test_sets:
                raise InputError(f"test set {spec.name!r} is there twice")
            test_sets[spec.name] = spec
    found: list[SettingSpec] = []
    if "settings" not in table:
        found = [setting(one, {}) for one in test_sets.values()]
    for one in _list(table, "settings"):
        given = dict(one)
        name = str(given.pop("test_set", None))
        if name not in test_sets:
            raise unknown("test set in [[settings]]", name, test_sets)
        wanted = take(given, base)
        if isinstance(given.get("subset"), str):
            given["subset"] = _range(given["subset"])
        found += expand(setting(test_sets[name], given), wanted, test_sets.values())
    rest, settings, shifts = with_catalogue(_list(table, "shifts"), found, test_sets.values())
    shifts += [_shift(one) for one in rest]
    names = {one.id for one in settings}
    for shift in shifts:
        for missing in {*shift.source, shift.target} - names:
            raise unknown(f"setting of shift {shift.name!r}", missing, names)
    return settings, with_automatic(shifts, settings)


def _test_sets(
    table: dict[str, Any], data: Mapping[str, DataSpec], base: Path, others: Mapping[str, Any]
) -> list[TestSetSpec]:
    from shiftbed.engine.known import known_test_set
    from shiftbed.engine.perturbed import on_disk

    name, path, of = table.pop("name", None), table.pop("path", None), table.pop("data", None)
    if of is not None:
        if of not in data:
            raise unknown("data set in [[test_sets]]", str(of), data)
        if data[of].held_out is None:
            raise InputError(f"[data.{of}] holds nothing out: give it held_out")
        if table or path is not None:
            raise InputError(f"test set of data {of!r}: only a name may be given beside it")
        return [_held_out_part(data[of], str(name or f"{of}/held-out")).test_set]
    if not isinstance(path, str):
        raise InputError("[[test_sets]] needs a name and a path, or data")
    where = _near(path, base)
    if "corrupted" in table:
        return on_disk(table | ({} if name is None else {"name": name}), where)
    table = _files_near(table, base)
    known = known_test_set(where, name, table, list(others.values()))
    if known is None and not isinstance(name, str):
        raise InputError(f"[[test_sets]] with path {path!r} needs a name")
    return [known or TestSetSpec(name=str(name), path=where, options=table)]


def _range(text: str) -> list[int]:
    """``"1000-1009"`` as class numbers, both ends among them.

    >>> _range("3-5")
    [3, 4, 5]
    """
    first, dash, last = text.partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal() or int(first) > int(last):
        raise InputError(f"subset must be class numbers or a range such as '0-99', got {text!r}")
    return list(range(int(first), int(last) + 1))


def _list(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{key} must be tables, [[{key}]]")
    return found


def _shift(table: Mapping[str, Any]) -> Shift:
    known = ("name", "id", "ood", "kind", "task", "fit_on")
    for key in table.keys() - set(known):
        raise unknown("key in [[shifts]]", key, known)
    ids = table.get("id", [])
    return Shift(
        name=str(table.get("name", table.get("ood", ""))),
        kind=str(table.get("kind", "natural-dataset")),
        source=(ids,) if isinstance(ids, str) else tuple(ids),
        target=str(table.get("ood", "")),
        task=str(table.get("task", "")),
        fit_on=str(table.get("fit_on", "")),
    )
