"""Is everything there, once, and whole? ``shiftbed store verify`` and ``gc``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from shiftbed.errors import InputError
from shiftbed.store.names import part_name, part_range
from shiftbed.store.parts import read_part
from shiftbed.store.probes import probe_folder, probe_record_of
from shiftbed.store.store import PredictionStore, cell_folder

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
            where = f"test set {setting}"
            problems.append(Problem(kind="damaged", where=where, what=_reason(error)))
    for record in store.cells():
        model, setting = record["model"], record["setting"]
        where = f"{model} on {setting}"
        if record.get("status") == "failed":
            problems.append(Problem(kind="failed", where=where, what=str(record.get("error"))))
        elif setting not in sizes:
            problems.append(Problem(kind="orphan", where=where, what="its test set is not there"))
        else:
            folder = cell_folder(model, setting)
            problems += _part_problems(store, folder, where, sizes[setting], "examples")
    for name in store.files.below("probes"):
        if name.endswith(".json"):
            problems += _probe_problems(store, name)
    return [*problems, *_orphans(store)]


def _probe_problems(store: PredictionStore, name: str) -> Iterator[Problem]:
    """Of a probe's record and the parts that belong to it."""
    try:
        record = probe_record_of(store, name)
    except InputError as error:
        yield Problem(kind="damaged", where=name, what=str(error))
        return
    model, setting, probe = (str(record[key]) for key in ("model", "setting", "probe"))
    where, paths = f"{probe} probe of {model} on {setting}", int(record.get("paths", 0))
    yield from _part_problems(store, probe_folder(model, setting, probe), where, paths, "paths")


def _part_problems(
    store: PredictionStore, folder: str, where: str, n: int, rows: str
) -> Iterator[Problem]:
    """What of 0 … n − 1 is missing, there twice or damaged."""

    def of(kind: Kind, start: int, stop: int) -> Problem:
        return Problem(kind=kind, where=where, what=f"{rows} {start}–{stop - 1}")

    at, parts = 0, store.parts_in(folder)
    for start, stop in parts:
        if start > at:
            yield of("missing", at, start)
        elif start < at:
            yield of("duplicate", start, min(at, stop))
        at = max(at, stop)
    if at != n:
        yield of("missing", at, n) if at < n else of("duplicate", n, at)
    for start, stop in parts:
        what = _part_damage(store, f"{folder}/{part_name(start, stop)}")
        if what is not None:
            yield Problem(kind="damaged", where=f"{where}, {rows} {start}–{stop - 1}", what=what)


def _part_damage(store: PredictionStore, name: str) -> str | None:
    """What is wrong with a part's file, None if it is whole or no part."""
    where = part_range(name)
    if where is None:
        return None
    try:
        length = len(read_part(store.files.read(name)))
    except (OSError, pl.exceptions.PolarsError) as error:
        return _reason(error)
    wanted = where[1] - where[0]
    return None if length == wanted else f"holds {length} rows, its name says {wanted}"


def _orphans(store: PredictionStore) -> Iterator[Problem]:
    """Files of predictions and probes that belong to no record, or are no part."""
    probes = store.files.below("probes")
    cells = {cell_folder(record["model"], record["setting"]) for record in store.cells()}
    probed = {name.removesuffix(".json") for name in probes if name.endswith(".json")}
    parts = [name for name in probes if not name.endswith(".json")]
    for names, known, what in (
        (store.files.below("predictions"), cells, "cell"),
        (parts, probed, "probe"),
    ):
        for name in names:
            if name.rpartition("/")[0] not in known:
                yield Problem(kind="orphan", where=name, what=f"belongs to no known {what}")
            elif part_range(name) is None:
                yield Problem(kind="orphan", where=name, what="is not a part")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def collect_garbage(store: PredictionStore) -> list[str]:
    """Remove leftovers, orphans and damaged parts (a run makes these anew); the names removed."""
    bad = [*store.files.leftovers(), *(one.where for one in _orphans(store))]
    rest = {*store.files.below("predictions"), *store.files.below("probes")} - set(bad)
    bad += [name for name in sorted(rest) if _part_damage(store, name) is not None]
    for name in bad:
        store.files.remove(name)
    return bad
