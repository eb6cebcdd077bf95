"""Is everything there, once, and whole? ``shiftbed store verify`` and ``gc``."""

from dataclasses import dataclass
from typing import Literal

import polars as pl

from shiftbed.errors import InputError
from shiftbed.store.names import part_name, part_range
from shiftbed.store.parts import read_part
from shiftbed.store.probes import probe_folder, probe_parts, probe_record_of
from shiftbed.store.store import PredictionStore, Range, cell_folder

Kind = Literal["missing", "duplicate", "damaged", "orphan", "leftover", "failed"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong with a store, and where."""

    kind: Kind
    where: str
    what: str


def verify(store: PredictionStore) -> list[Problem]:
    """Every problem of a store.

    *missing* rows, *duplicate* rows (parts that overlap), *damaged* files (unreadable, or of the
    wrong length), *orphan* predictions (of no known cell or setting), *leftover* temporary files
    of a killed writer, *failed* cells. The same of probes, whose rows are paths.
    """
    problems = [
        Problem(kind="leftover", where=name, what="temporary file of a killed writer")
        for name in store.files.leftovers()
    ]
    sizes = {}
    for setting in store.settings():
        try:
            sizes[setting] = len(store.test_set(setting))
        except (OSError, pl.exceptions.PolarsError) as error:
            problems.append(_damaged(f"test set {setting}", error))
    cells = {(record["model"], record["setting"]): record for record in store.cells()}
    for (model, setting), record in cells.items():
        where = f"{model} on {setting}"
        if record.get("status") == "failed":
            problems.append(Problem(kind="failed", where=where, what=str(record.get("error"))))
            continue
        if setting not in sizes:
            problems.append(Problem(kind="orphan", where=where, what="its test set is not there"))
            continue
        problems += _cell_problems(store, model, setting, sizes[setting])
    known = {cell_folder(*cell) for cell in cells}
    for name in store.files.below("predictions"):
        if name.rpartition("/")[0] not in known:
            problems.append(Problem(kind="orphan", where=name, what="belongs to no known cell"))
        elif part_range(name) is None:
            problems.append(Problem(kind="orphan", where=name, what="is not a part"))
    return problems + _probe_problems(store)


def _probe_problems(store: PredictionStore) -> list[Problem]:
    """Of probes: damaged records, parts that are damaged, missing, there twice or of no record."""
    problems, known = [], set()
    names = store.files.below("probes")
    for name in names:
        if not name.endswith(".json"):
            continue
        known.add(name.removesuffix(".json"))
        try:
            record = probe_record_of(store, name)
        except InputError as error:
            problems.append(Problem(kind="damaged", where=name, what=str(error)))
            continue
        key = (str(record["model"]), str(record["setting"]), str(record["probe"]))
        where, folder = f"{key[2]} probe of {key[0]} on {key[1]}", probe_folder(*key)
        parts, total = probe_parts(store, *key), int(record.get("paths", 0))
        problems += _range_problems(where, parts, total, "paths")
        for start, stop in parts:
            what = _part_damage(store, f"{folder}/{part_name(start, stop)}")
            if what is not None:
                at = f"{where}, paths {start}–{stop - 1}"
                problems.append(Problem(kind="damaged", where=at, what=what))
    for name in _loose(names, known):
        problems.append(Problem(kind="orphan", where=name, what="belongs to no known probe"))
    return problems


def _loose(names: list[str], known: set[str]) -> list[str]:
    """Files below ``probes`` that are neither a record nor a part of one."""
    return [
        name
        for name in names
        if not name.endswith(".json")
        and (name.rpartition("/")[0] not in known or part_range(name) is None)
    ]


def _part_damage(store: PredictionStore, name: str) -> str | None:
    """What is wrong with a part's file, None if it is whole."""
    where = part_range(name)
    assert where is not None
    try:
        length = len(read_part(store.files.read(name)))
    except (OSError, pl.exceptions.PolarsError) as error:
        return _reason(error)
    wanted = where[1] - where[0]
    return None if length == wanted else f"holds {length} rows, its name says {wanted}"


def _cell_problems(store: PredictionStore, model: str, setting: str, n: int) -> list[Problem]:
    where, parts = f"{model} on {setting}", store.parts(model, setting)
    problems = _range_problems(where, parts, n, "examples")
    for start, stop in parts:
        what = _part_damage(store, f"{cell_folder(model, setting)}/{part_name(start, stop)}")
        if what is not None:
            at = f"{where}, examples {start}–{stop - 1}"
            problems.append(Problem(kind="damaged", where=at, what=what))
    return problems


def _range_problems(where: str, parts: list[Range], n: int, rows: str) -> list[Problem]:
    """What of 0 … n − 1 is missing or there twice; parts are in order."""
    at, problems = 0, []
    for start, stop in parts:
        if start > at:
            problems.append(_rows("missing", where, at, start, rows))
        elif start < at:
            problems.append(_rows("duplicate", where, start, min(at, stop), rows))
        at = max(at, stop)
    if at < n:
        problems.append(_rows("missing", where, at, n, rows))
    elif at > n:
        problems.append(_rows("duplicate", where, n, at, rows))
    return problems


def _rows(kind: Kind, where: str, start: int, stop: int, rows: str) -> Problem:
    return Problem(kind=kind, where=where, what=f"{rows} {start}–{stop - 1}")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _damaged(where: str, error: Exception) -> Problem:
    return Problem(kind="damaged", where=where, what=_reason(error))


def collect_garbage(store: PredictionStore) -> list[str]:
    """Remove leftovers, orphans and damaged parts (a run makes these anew); the names removed."""
    removed = []
    for name in store.files.leftovers():
        store.files.remove(name)
        removed.append(name)
    cells = {(record["model"], record["setting"]) for record in store.cells()}
    known = {cell_folder(*cell) for cell in cells}
    bad = [
        name
        for name in store.files.below("predictions")
        if name.rpartition("/")[0] not in known or part_range(name) is None
    ]
    probed = store.files.below("probes")
    records = {name.removesuffix(".json") for name in probed if name.endswith(".json")}
    bad += _loose(probed, records)
    whole = {*store.files.below("predictions"), *probed} - set(bad)
    bad += [n for n in sorted(whole) if part_range(n) is not None and _part_damage(store, n)]
    for name in bad:
        store.files.remove(name)
        removed.append(name)
    return removed
