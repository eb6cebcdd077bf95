"""Is everything there, once, and whole? ``shiftbed store verify``, ``scrub`` and ``gc``."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from shiftbed.atomic import ABANDONED
from shiftbed.errors import InputError
from shiftbed.store.compact import superfluous
from shiftbed.store.manifest import Manifest
from shiftbed.store.names import cell_folder, outermost, part_name, part_range
from shiftbed.store.parts import read_part
from shiftbed.store.probes import probe_folder, write_probe
from shiftbed.store.sealing import Damaged, digest, is_sealed
from shiftbed.store.store import Piece, PredictionStore, Range
from shiftbed.store.test_sets import is_copy

_PLACES = ("sums", "pack")
"""What says where a complete cell is, with the checksums of its files."""
Kind = Literal["missing", "duplicate", "damaged", "unreadable", "orphan", "leftover", "failed"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong with a store, and where."""

    kind: Kind
    where: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What reading everything in a store once has found."""

    problems: list[Problem]
    cells: int
    unsealed: int
    """Records of finished things that have no checksums, as before there were any."""
    aside: tuple[str, ...] = ()
    """Damaged files, now below ``quarantine/``; the same run or evaluation makes them anew."""


def verify(store: PredictionStore) -> list[Problem]:
    """Every problem of a store.

    *missing* rows, *duplicate* rows (parts that overlap), *damaged* files (not what was written, or
    of the wrong length), *unreadable* ones (of which nothing is known: a permission, a disk that
    fails), *orphan* predictions (of no known cell or setting), *leftover* temporary files of a
    killed writer, *failed* cells. The same of probes, whose rows are paths.
    """
    return verified(store).problems


def verified(store: PredictionStore) -> Verified:
    """The same, with how much there is."""
    problems = [
        Problem(kind="leftover", where=name, what="temporary file of a killed writer")
        for name in store.files.leftovers()
    ]
    records, broken, unsealed = _records(store)
    problems += broken
    sizes: dict[str, int] = {}
    for name, record in records.items():
        if name.startswith("test_sets/"):
            setting = str(record.get("setting"))
            problem = _problem(
                lambda s=setting, r=record: sizes.update({s: len(store.opened_test_set(r))}),
                f"test set {setting}",
            )
            problems += [] if problem is None else [problem]
    cells = [one for name, one in records.items() if name.startswith("cells/")]
    parts, packs = _by_folder(store.files.below("predictions")), _Packs(store)
    for record in cells:
        model, setting = str(record.get("model")), str(record.get("setting"))
        where = f"{model} on {setting}"
        if record.get("status") == "failed":
            problems.append(Problem(kind="failed", where=where, what=str(record.get("error"))))
        elif setting not in sizes:
            problems.append(Problem(kind="orphan", where=where, what="its test set is not there"))
        else:
            known = store.placed(record)
            if known and known[0].packed:
                problems += _pack_problems(packs, known[0], where, sizes[setting])
            else:
                folder, sums = cell_folder(model, setting), record.get("sums", {})
                ranges = map(part_range, parts.get(folder, []))
                there = outermost(one for one in ranges if one is not None)
                n = sizes[setting]
                problems += _part_problems(store, folder, there, where, n, "examples", sums)
    for name, record in records.items():
        if name.startswith("probes/"):
            problems += _probe_problems(store, name, record)
    problems += [
        Problem(kind="leftover", where=name, what="its rows are in another file as well")
        for name in _superfluous(store, parts, cells)
    ]
    problems += _orphans(store, cells, broken)
    return Verified(problems=problems, cells=len(cells), unsealed=len(unsealed))


def _by_folder(names: list[str]) -> dict[str, list[str]]:
    """Files by their folder, with its path."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition("/")[0], []).append(name)
    return found


def _superfluous(
    store: PredictionStore, folders: dict[str, list[str]], cells: list[dict[str, Any]]
) -> list[str]:
    """Parts whose rows are in another file of their cell as well."""
    return [
        name
        for one in cells
        for name in superfluous(
            folders.get(cell_folder(one["model"], one["setting"]), []), store.placed(one) or []
        )
    ]


class _Packs:
    """Packs of a store, each read once: its rows, or what is wrong with it."""

    def __init__(self, store: PredictionStore) -> None:
        self.store = store
        self.found: dict[tuple[str, str | None], int | Problem] = {}

    def look(self, piece: Piece) -> int | Problem:
        key = piece.file, piece.checksum
        if key not in self.found:

            def rows() -> None:
                frame = read_part(self.store.read_bytes(*key), ["class_1"], checked=True)
                self.found[key] = len(frame)

            problem = _problem(rows, piece.file)
            if problem is not None:
                self.found[key] = problem
        return self.found[key]


def _pack_problems(packs: _Packs, piece: Piece, where: str, n: int) -> Iterator[Problem]:
    """What is wrong with a cell that is in a pack."""
    rows = packs.look(piece)
    if isinstance(rows, Problem):
        gone = not packs.store.files.exists(piece.file)
        kind: Kind = "missing" if gone else rows.kind
        yield Problem(kind=kind, where=where, what=f"examples 0–{n - 1}: {rows.what}")
    elif piece.rows != n or piece.at + piece.rows > rows:
        yield Problem(kind="damaged", where=where, what=f"its place in {piece.file} is none")


def seal(store: PredictionStore) -> int:
    """Add checksums to the records that lack them, as the files are now; how many.

    What killed writers left is removed.
    """
    with store.files.lock(alone=False):
        _remove_leftovers(store)
        records, _, unsealed = _records(store)
        for name in unsealed:
            _seal_one(store, name, records[name])
    return len(unsealed)


def _seal_one(store: PredictionStore, name: str, record: dict[str, Any]) -> None:
    if name.startswith("cells/"):
        store.write_cell(record["model"], record["setting"], record)
    elif name.startswith("probes/"):
        write_probe(store, record["model"], record["setting"], record["probe"], record)
    elif name.startswith("test_sets/"):
        store.forget_copies()
        data = store.files.read(f"{name.removesuffix('.json')}.parquet")
        store.write_json(name, record | {"examples": digest(data)})
    else:
        store.write_json(name, record)


def _remove_leftovers(store: PredictionStore) -> None:
    """Temporary files of writers that are dead for certain."""
    for name in store.files.leftovers(old=ABANDONED):
        store.files.remove(name)


def _has_sums(name: str, record: dict[str, Any]) -> bool:
    """Whether a record has the checksums of the files that are its own."""
    if name.startswith(("cells/", "probes/")):
        return record.get("status") != "complete" or not record.keys().isdisjoint(_PLACES)
    return not name.startswith("test_sets/") or "examples" in record


def _records(
    store: PredictionStore,
) -> tuple[dict[str, dict[str, Any]], list[Problem], list[str]]:
    """Every record of the store by file (of a batch: FILE#n), each read once.

    With those that cannot be used, and the names of those that lack checksums.
    """
    found: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    bare: set[str] = set()
    names = [n for n in ("store.json", "testbed.json") if store.files.exists(n)]
    manifest = Manifest(store.files)  # which has read nothing yet
    batches, single = manifest.listed()
    names += [n for n in store.files.below("test_sets") if n.endswith(".json") and not is_copy(n)]
    names += [name for name in (*batches, *single) if name.endswith(".json")]
    names += [name for name in store.files.below("probes") if name.endswith(".json")]
    for name in names:
        try:
            if name in batches:
                inside = enumerate(manifest.batch(name).values())
                found |= {f"{name}#{i}": dict(one) for i, one in inside}
            else:
                data = store.files.read(name)
                found[name] = store.record_of(name, data)
                if not is_sealed(data):
                    bare.add(name)
        except OSError as error:
            problems.append(Problem(kind="unreadable", where=name, what=_reason(error)))
        except (InputError, ValueError) as error:
            problems.append(Problem(kind="damaged", where=name, what=_reason(error)))
    cells = [(name, one) for name, one in found.items() if name.startswith("cells/")]
    last = {(one["model"], one["setting"]): name for name, one in cells}
    kept = {*last.values()}  # a record of its own comes last, a later batch after an earlier one
    found = {n: one for n, one in found.items() if n in kept or not n.startswith("cells/")}
    unsealed = [name for name, one in found.items() if name in bare or not _has_sums(name, one)]
    return found, problems, unsealed


def _problem(work: Any, where: str) -> Problem | None:
    try:
        work()
    except OSError as error:
        return Problem(kind="unreadable", where=where, what=_reason(error))
    except (InputError, pl.exceptions.PolarsError) as error:
        return Problem(kind="damaged", where=where, what=_reason(error))
    return None


def _probe_problems(store: PredictionStore, name: str, record: dict[str, Any]) -> Iterator[Problem]:
    """Of the parts that belong to a probe's record."""
    model, setting, probe = (str(record[key]) for key in ("model", "setting", "probe"))
    where, paths = f"{probe} probe of {model} on {setting}", int(record.get("paths", 0))
    folder, sums = probe_folder(model, setting, probe), record.get("sums", {})
    there = store.parts_in(folder)
    yield from _part_problems(store, folder, there, where, paths, "paths", sums)


def _part_problems(
    store: PredictionStore,
    folder: str,
    parts: list[Range],
    where: str,
    n: int,
    rows: str,
    sums: dict[str, str],
) -> Iterator[Problem]:
    """What of 0 … n − 1 is missing, there twice or damaged, in the parts that are there."""

    def of(kind: Kind, start: int, stop: int) -> Problem:
        return Problem(kind=kind, where=where, what=f"{rows} {start}–{stop - 1}")

    at = 0
    for start, stop in parts:
        if start > at:
            yield of("missing", at, start)
        elif start < at:
            yield of("duplicate", start, min(at, stop))
        at = max(at, stop)
    if at != n:
        yield of("missing", at, n) if at < n else of("duplicate", n, at)
    for start, stop in parts:
        name = part_name(start, stop)
        problem = _part_damage(store, f"{folder}/{name}", sums.get(name))
        if problem is not None:
            where_in = f"{where}, {rows} {start}–{stop - 1}"
            yield Problem(kind=problem.kind, where=where_in, what=problem.what)


def _part_damage(store: PredictionStore, name: str, checksum: str | None) -> Problem | None:
    """What is wrong with a part's file, None if it is whole or no part."""
    where = part_range(name)
    if where is None:
        return None
    wanted = where[1] - where[0]

    def look() -> None:
        length = len(read_part(store.read_bytes(name, checksum)))
        if length != wanted:
            raise Damaged(f"holds {length} rows, its name says {wanted}")

    return _problem(look, name)


def _orphans(
    store: PredictionStore, records: list[dict[str, Any]], broken: list[Problem]
) -> Iterator[Problem]:
    """Files of predictions and probes that belong to no record, or are no part.

    What belongs to a broken record is no orphan; a broken batch may be anybody's record.
    """
    if any(one.where.startswith("cells/batch-") for one in broken):
        return
    unknown = {
        one.where.removesuffix(".json").replace("cells/", "predictions/", 1) for one in broken
    }
    probes = store.files.below("probes")
    cells = {cell_folder(str(one.get("model")), str(one.get("setting"))) for one in records}
    probed = {name.removesuffix(".json") for name in probes if name.endswith(".json")}
    parts = [name for name in probes if not name.endswith(".json")]
    for names, known, what in (
        (store.files.below("predictions"), cells, "cell"),
        (parts, probed, "probe"),
    ):
        for name in names:
            folder = name.rpartition("/")[0]
            if folder in unknown:
                continue
            if folder not in known:
                yield Problem(kind="orphan", where=name, what=f"belongs to no known {what}")
            elif part_range(name) is None:
                yield Problem(kind="orphan", where=name, what="is not a part")
    used = {str(one["pack"]["file"]) for one in records if "pack" in one}
    of_unknown_use = any(one.where.startswith("cells/") for one in broken)
    for name in () if of_unknown_use else store.files.below("packs"):
        if name not in used:
            yield Problem(kind="orphan", where=name, what="holds no cell of the store")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


QUARANTINE = "quarantine"
"""The folder of a store that what is cleaned up goes to."""


def collect_garbage(
    store: PredictionStore, *, minimum_age: float = 3600.0, dry_run: bool = False
) -> list[str]:
    """Take leftovers, orphans and damaged parts (a run makes these anew) out of the store.

    They are moved below ``quarantine/``, leftovers removed; the names are returned. A file that
    cannot be read is of unknown worth and stays, and so do all files younger than ``minimum_age``
    seconds. Refused while another process writes to the store (local stores; elsewhere the age
    has to do).
    """
    with store.files.lock(alone=True):
        records, broken, _ = _records(store)
        cells = [one for name, one in records.items() if name.startswith("cells/")]
        bad = [one.where for one in _orphans(store, cells, broken)]
        damaged = set(_damaged_parts(store, records))
        bad += [name for name in sorted(damaged) if name not in bad]
        whole = [one for one in cells if not _is_in(store, one, damaged)]
        folders = _by_folder(store.files.below("predictions"))
        bad += [name for name in _superfluous(store, folders, whole) if name not in bad]
        leftovers, bad = (
            [name for name in names if store.files.age(name) >= minimum_age]
            for names in (store.files.leftovers(), bad)
        )
        if not dry_run:
            for name in leftovers:
                store.files.remove(name)
            for name in bad:
                _put_aside(store, name)
    return [*leftovers, *bad]


def _put_aside(store: PredictionStore, name: str) -> None:
    """Move a file to quarantine, beside one of the same name that is there from before."""
    base, dot, suffix = f"{QUARANTINE}/{name}".rpartition(".")
    target, count = f"{base}{dot}{suffix}", 1
    while store.files.exists(target):
        count += 1
        target = f"{base}-{count}{dot}{suffix}"
    store.files.move(name, target)


def _is_in(store: PredictionStore, record: dict[str, Any], files: set[str]) -> bool:
    """Whether a cell is in one of the files, or in one that is not there."""
    names = {piece.file for piece in store.placed(record) or ()}
    return bool(names & files) or not all(map(store.files.exists, names))


def _damaged_parts(store: PredictionStore, records: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The files of parts and packs that are not what was written."""
    folders = _by_folder(store.files.below("predictions") + store.files.below("probes"))
    packs = _Packs(store)
    for name, record in records.items():
        if name.startswith("cells/"):
            folder = cell_folder(str(record.get("model")), str(record.get("setting")))
        elif name.startswith("probes/"):
            folder = name.removesuffix(".json")
        else:
            continue
        sums = record.get("sums", {})
        for file in folders.get(folder, []):
            problem = _part_damage(store, file, sums.get(file.rpartition("/")[2]))
            if problem is not None and problem.kind == "damaged":
                yield file
        known = (store.placed(record) or []) if name.startswith("cells/") else []
        if known and known[0].packed:
            found = packs.look(known[0])
            if isinstance(found, Problem) and found.kind == "damaged":
                yield known[0].file


def scrub(store: PredictionStore, *, rebuild: bool = False) -> Verified:
    """Read everything again; ``rebuild`` puts damaged files aside and reopens their cells.

    A cell whose part or record is damaged or gone is no longer complete: the command that made it
    computes what is missing. Examples and labels of a test set are rebuilt by the next evaluation
    on it. What killed writers left is removed.
    """
    found = verified(store)
    aside: list[str] = []
    kinds = {one.kind for one in found.problems}
    if rebuild and not kinds.isdisjoint(("damaged", "missing", "leftover")):
        with store.files.lock(alone=True):
            _remove_leftovers(store)
            records, broken, _ = _records(store)
            aside += [one.where for one in broken if one.kind == "damaged"]
            parts = set(_damaged_parts(store, records))
            aside += sorted(parts)
            for name, record in records.items():
                if name.startswith("test_sets/"):
                    file = f"{name.removesuffix('.json')}.parquet"
                    if _problem(lambda r=record: store.opened_test_set(r), file):
                        aside += [file, name]
            for name in aside:
                if store.files.exists(name):
                    _put_aside(store, name)
            store.forget_copies()
            folders = {part.rpartition("/")[0] for part in parts}
            for name, record in records.items():
                if name.startswith("cells/") and (
                    cell_folder(record["model"], record["setting"]) in folders
                    or _is_in(store, record, parts)
                ):
                    reopened = record | {"status": "running"}
                    store.write_cell(record["model"], record["setting"], reopened)
    return replace(found, aside=tuple(aside))
