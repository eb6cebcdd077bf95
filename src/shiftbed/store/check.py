"""Is everything there, once, and whole? ``shiftbed store verify`` and ``gc``."""

from dataclasses import dataclass
from typing import Literal

import polars as pl

from shiftbed.store.names import part_range
from shiftbed.store.store import PredictionStore, cell_folder

__all__ = ["Problem", "collect_garbage", "verify"]

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
    of a killed writer, *failed* cells.
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
    return problems


def _cell_problems(store: PredictionStore, model: str, setting: str, n: int) -> list[Problem]:
    where, at, problems = f"{model} on {setting}", 0, []
    for start, stop in store.parts(model, setting):
        if start > at:
            problems.append(_rows("missing", where, at, start))
        elif start < at:
            problems.append(_rows("duplicate", where, start, min(at, stop)))
        at = max(at, stop)
        try:
            length = len(store.read_range(model, setting, (start, stop)))
        except (OSError, pl.exceptions.PolarsError) as error:
            problems.append(_damaged(f"{where}, examples {start}–{stop - 1}", error))
            continue
        if length != stop - start:
            what = f"holds {length} rows, its name says {stop - start}"
            problems.append(
                Problem(kind="damaged", where=f"{where}, examples {start}–{stop - 1}", what=what)
            )
    if at < n:
        problems.append(_rows("missing", where, at, n))
    elif at > n:
        problems.append(_rows("duplicate", where, n, at))
    return problems


def _rows(kind: Kind, where: str, start: int, stop: int) -> Problem:
    return Problem(kind=kind, where=where, what=f"examples {start}–{stop - 1}")


def _damaged(where: str, error: Exception) -> Problem:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Problem(kind="damaged", where=where, what=text)


def collect_garbage(store: PredictionStore) -> list[str]:
    """Remove leftovers, orphans and damaged parts (a run makes these anew); the names removed."""
    removed = []
    for name in store.files.leftovers():
        store.files.remove(name)
        removed.append(name)
    cells = {(record["model"], record["setting"]) for record in store.cells()}
    known = {cell_folder(*cell) for cell in cells}
    for name in store.files.below("predictions"):
        folder, where = name.rpartition("/")[0], part_range(name)
        bad = folder not in known or where is None
        if not bad and where is not None:
            try:
                bad = len(pl.read_parquet(store.files.read(name))) != where[1] - where[0]
            except (OSError, pl.exceptions.PolarsError):
                bad = True
        if bad:
            store.files.remove(name)
            removed.append(name)
    return removed
