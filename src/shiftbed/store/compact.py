"""Few, large files: a complete cell in one part, small cells in packs, records in batches.

Each step writes the new file first, then the record that says so, and removes what is in it last.
Killed anywhere, the store is read as before, and the same step again leaves the same files. What
another process reads meanwhile it looks up again. Parts are put together whenever a cell becomes
complete (``finish_cell``); packs and batches when there is enough for one and nobody else writes
(``settle``), or when asked to (``compact``).
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from shiftbed.errors import InputError
from shiftbed.store.claims import Claims
from shiftbed.store.files import LocalFiles
from shiftbed.store.manifest import Key, Record
from shiftbed.store.names import cell_file, cell_folder, outermost, pack_file, part_name, part_range
from shiftbed.store.parts import write_part
from shiftbed.store.sealing import Damaged, FileMissing, FileUnreadable, digest
from shiftbed.store.store import Piece, PredictionStore, Range, in_pack

ROWS = 1 << 19
"""Examples in one part at most."""
LOGITS = 1 << 25
"""Logits in one part at most, so that those of a part fit into memory."""
SMALL = 4096
"""Examples of a cell that goes into a pack at most."""
FEW = 8
"""Cells that make a pack, and packs or batches that are put together, at least."""
LATELY = 60.0
"""Seconds in which a process that has put parts together writes the record that says so."""
TAIL = {True: 64, False: 8}
"""Records of their own that make a batch at least: of local stores, and of those by request."""


# --- one cell --------------------------------------------------------------------------------


def finish_cell(
    store: PredictionStore, model: str, setting: str, record: Mapping[str, Any]
) -> None:
    """Put the parts of a complete cell together and write its record."""
    merge(store, model, setting)
    store.write_cell(model, setting, record)
    tidy(store, model, setting)


def merge(store: PredictionStore, model: str, setting: str) -> bool:
    """Write a cell's parts as few large ones; whether any was written. The small ones stay."""
    folder, written = cell_folder(model, setting), False
    pieces = store.pieces(model, setting, listed=True)
    if len(pieces) < 2:
        return False
    for start, stop in _bounds(pieces[-1].part[1], _step(store.piece_bytes(pieces[0]))):
        inside = [one for one in pieces if start <= one.part[0] and one.part[1] <= stop]
        if len(inside) < 2 or sum(one.rows for one in inside) != stop - start:
            continue
        frames = [store.read_piece(one) for one in inside]
        whole = pl.concat(frames, how="vertical_relaxed").rechunk()
        store.write_part_file(f"{folder}/{part_name(start, stop)}", whole)
        written = True
    return written


def _bounds(n: int, step: int) -> list[Range]:
    return [(start, min(start + step, n)) for start in range(0, n, step)]


def _step(part: bytes) -> int:
    """Examples per large part: a fixed number, fewer where all logits are kept."""
    logits = pl.read_parquet_schema(io.BytesIO(part)).get("logits")
    if not isinstance(logits, pl.Array):
        return ROWS
    return max(1, LOGITS // max(1, logits.shape[0]) // 1024) * 1024


def tidy(store: PredictionStore, model: str, setting: str) -> None:
    """Remove the parts of a complete cell whose rows are in another part, or in a pack, as well."""
    known = [piece for piece in store.pieces(model, setting) if piece.checksum is not None]
    for name in superfluous(store.files.below(cell_folder(model, setting)), known):
        store.files.remove(name)


def superfluous(names: Iterable[str], pieces: Iterable[Piece]) -> list[str]:
    """The files of a cell's parts whose rows are in other files that its record names."""
    ranges = {name: part for name in names if (part := part_range(name)) is not None}
    there = [one for one in pieces if one.packed or one.file in ranges]
    return [
        name
        for name, part in ranges.items()
        if any(_lies_in(part, one.part) or one.packed for one in there)
    ]


def is_in_place(store: PredictionStore, model: str, setting: str) -> bool:
    """Whether the files that a complete cell's record names are all there."""
    names = {piece.file for piece in store.pieces(model, setting)}
    return names == {piece.file for piece in store.pieces(model, setting, listed=True)}


def _lies_in(part: Range, other: Range) -> bool:
    return part != other and other[0] <= part[0] and part[1] <= other[1]


def expand(store: PredictionStore, model: str, setting: str, ranges: Iterable[Range]) -> None:
    """Make small parts of large ones again, before some of them are computed anew."""
    folder, wanted = cell_folder(model, setting), list(ranges)
    for piece in store.pieces(model, setting, listed=True):
        inside = [one for one in wanted if _lies_in(one, piece.part)]
        if not inside and not piece.packed:
            continue
        frame = store.read_piece(piece)
        for start, stop in inside or [piece.part]:
            some = frame[start - piece.part[0] : stop - piece.part[0]].rechunk()
            store.files.create(f"{folder}/{part_name(start, stop)}", write_part(some))
        if not piece.packed:
            store.files.remove(piece.file)


class Overview:
    """All cells of a store with what is there of them, by a few listings instead of one each."""

    def __init__(self, store: PredictionStore) -> None:
        self.store = store
        self.files: dict[str, list[str]] = defaultdict(list)
        for name in store.files.below("predictions"):
            self.files[name.rpartition("/")[0]].append(name)
        self.packs = set(store.files.below("packs"))
        self.records = {(one["model"], one["setting"]): one for one in store.cells()}

    def look(self, model: str, setting: str) -> tuple[Record | None, list[Range]]:
        """A cell's record and the examples whose predictions are there; none without a record."""
        record = self.records.get((model, setting))
        if record is None:
            return None, []
        names = self.files.get(cell_folder(model, setting), [])
        found = outermost(part for part in map(part_range, names) if part is not None)
        packed = (
            [one for one in self.store.pieces(model, setting) if one.packed] if not found else ()
        )
        return record, found or [one.part for one in packed if one.file in self.packs]

    def is_one_file(self, model: str, setting: str) -> bool:
        """Whether all rows of a cell are where its record says, in one file and in no other."""
        names = self.files.get(cell_folder(model, setting), [])
        pieces = self.store.pieces(model, setting)
        if len(pieces) != 1 or pieces[0].checksum is None:
            return False
        (piece,) = pieces
        return piece.file in self.packs and not names if piece.packed else names == [piece.file]

    def is_untidy(self, model: str, setting: str) -> bool:
        """Whether rows of a cell are in several files."""
        names = self.files.get(cell_folder(model, setting), [])
        pieces = (
            self.store.pieces(model, setting) if names and (model, setting) in self.records else []
        )
        return bool(superfluous(names, pieces))

    def clear(self, model: str, setting: str, ranges: Iterable[Range]) -> None:
        """Remove parts of a cell whose record was lost, which would hold before new ones."""
        wanted = set(ranges)
        for name in self.files.get(cell_folder(model, setting), []):
            old = part_range(name) not in wanted and self.store.files.age(name) > LATELY
            if old and self.store.cell(model, setting) is None:
                self.store.files.remove(name)


# --- the whole store -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What compacting a store did."""

    cells: int = 0
    """Cells whose parts were put together."""
    packed: int = 0
    """Small cells that are in packs now and were not."""
    gathered: int = 0
    """Records that are in batches now and were files of their own."""
    skipped: tuple[str, ...] = ()
    """Cells that are damaged or incomplete in their files, and were left as they are."""


def settle(store: PredictionStore) -> None:
    """Pack and gather if there is enough for it and nobody else writes; else do nothing."""
    if store.in_memory:
        return
    batches, single = store.manifest.listed()
    if len(single) < TAIL[isinstance(store.files, LocalFiles)] and len(batches) <= FEW:
        return
    try:
        with _alone(store):
            _pack_and_gather(store, everything=False)
    except (Damaged, OSError, InputError):
        return  # others write, or something is damaged, of which verify has more to say


def compact(store: PredictionStore) -> Compacted:
    """Everything: parts of complete cells together, small cells into packs, records into a batch.

    Refused while another process writes to the store (local stores, and runs elsewhere).
    """
    with _alone(store):
        merged, skipped = 0, []
        known = Overview(store)
        for (model, setting), record in known.records.items():
            if record.get("status") != "complete" or known.is_one_file(model, setting):
                continue
            try:
                if merge(store, model, setting) or not is_in_place(store, model, setting):
                    store.write_cell(model, setting, record)
                    merged += 1
                tidy(store, model, setting)
            except (Damaged, FileMissing, FileUnreadable) as error:
                skipped.append(f"{model} on {setting}: {error}")
        packed = gathered = 0
        try:
            packed, gathered = _pack_and_gather(store, everything=True)
        except Damaged as error:
            skipped.append(f"packs and batches: {error}")
        return Compacted(cells=merged, packed=packed, gathered=gathered, skipped=tuple(skipped))


@contextmanager
def _alone(store: PredictionStore) -> Iterator[None]:
    """While no other process writes, or, where there are no locks, compacts."""
    with store.files.lock(alone=True):
        if isinstance(store.files, LocalFiles):
            yield
            return
        with Claims(store.files).held("compact") as mine:
            if not mine:
                raise InputError(f"{store.files.root} is being compacted by another process")
            yield


def _pack_and_gather(store: PredictionStore, *, everything: bool) -> tuple[int, int]:
    """How many cells were packed, and records gathered. Of a changed record the file stays.

    Nothing is done while a record or a batch is damaged: it may name packs that others share.
    """
    batches, single = store.manifest.listed()
    versions = store.files.versions("cells")  # before they are read
    seen = dict(zip(single, store.files.read_many(single), strict=True))
    damage: dict[str, str] = {}
    records = store.manifest.all(damage, seen)
    if damage:
        raise Damaged(next(iter(damage.values())))
    changed, obsolete = _packs(store, records, everything=everything)
    own = {key: name for key in records if (name := cell_file(*key)) in seen}
    gathered = {key: name for key, name in own.items() if _is_settled(records[key])}
    together = everything or len(batches) >= FEW
    if gathered or changed or (together and len(batches) > 1):
        chosen = [key for key in records if key in gathered or (together and key not in own)]
        made = store.manifest.write_batch(({k: records[k] for k in chosen} | changed).values())
        now = store.files.versions("cells")
        unchanged = [
            name
            for name in gathered.values()
            if (
                now[name] == versions.get(name)
                if now.get(name)
                else store.files.read_if_there(name) == seen[name]
            )
        ]
        old = [name for name in (*(batches if together else ()), *obsolete) if name != made]
        store.files.remove_many(unchanged)  # first: they may name files that go now
        store.files.remove_many(old)
    for key in changed:
        store.forget_place(*key)
    if changed or gathered:
        for folder in ("predictions", "cells"):
            store.files.prune(folder)
    store.gather_test_sets()
    return len(changed), len(gathered)


def _is_settled(record: Record) -> bool:
    """Whether nobody is at work on a cell."""
    return record.get("status") != "running"


def _packs(
    store: PredictionStore, records: Mapping[Key, Record], *, everything: bool
) -> tuple[dict[Key, Record], list[str]]:
    """Write packs of small cells; records that change by it, and files that are in them now."""
    single: dict[str, dict[Key, Piece]] = defaultdict(dict)
    packed: dict[str, dict[Key, Piece]] = defaultdict(dict)
    for key in sorted(records):
        if records[key].get("status") != "complete":
            continue
        pieces = store.placed(records[key])
        if pieces and len(pieces) == 1 and pieces[0].rows <= SMALL and pieces[0].part[0] == 0:
            (packed if pieces[0].packed else single)[key[1]][key] = pieces[0]
    changed: dict[Key, Record] = {}
    obsolete: list[str] = []
    for setting, cells in single.items():
        packs = {piece.file for piece in packed[setting].values()}
        old = packed[setting] if everything or len(packs) >= FEW else {}
        if len(cells) + len(old) < (2 if everything else FEW):
            continue
        for some in grouped(_frames(store, cells | old)):
            name, data, places = pack_of(setting, some)
            if all((cells | old)[key].file == name for key in places):
                continue  # as it is
            store.files.write(name, data)
            for key, piece in places.items():
                record = {k: v for k, v in records[key].items() if k not in ("sums", "pack")}
                changed[key] = record | {"pack": in_pack(piece)}
                before = (cells | old)[key].file
                if before != name and before not in obsolete:
                    obsolete.append(before)
    in_use = {
        piece.file for some in packed.values() for key, piece in some.items() if key not in changed
    }
    return changed, [name for name in obsolete if name not in in_use]


def _frames(
    store: PredictionStore, cells: Mapping[Key, Piece]
) -> Iterator[tuple[Key, pl.DataFrame]]:
    """Predictions of small cells; damaged ones are left where they are."""
    for key, piece in sorted(cells.items()):
        try:
            frame = store.read_piece(piece)
        except (Damaged, FileNotFoundError):
            continue
        if len(frame) == piece.rows:
            yield key, frame


def grouped(
    cells: Iterable[tuple[Key, pl.DataFrame]],
) -> Iterator[list[tuple[Key, pl.DataFrame]]]:
    """Several cells of the same columns, up to so many rows."""
    by_schema: dict[str, list[tuple[Key, pl.DataFrame]]] = defaultdict(list)
    for key, frame in cells:
        group = by_schema[repr(frame.schema)]
        if sum(len(one) for _, one in group) + len(frame) > ROWS:
            yield group
            by_schema[repr(frame.schema)] = group = []
        group.append((key, frame))
    yield from (group for group in by_schema.values() if len(group) > 1)


def write_small(store: PredictionStore, setting: str, cells: Mapping[Key, pl.DataFrame]) -> None:
    """Write predictions of new, small, complete cells: in packs, where there are enough of them."""
    left = dict(cells)
    for group in grouped(sorted(cells.items())) if len(cells) >= FEW else ():
        name, data, pieces = pack_of(setting, group)
        store.files.write(name, data)
        for key, piece in pieces.items():
            store.in_place(*key, piece)
            del left[key]
    store.write_parts((*key, 0, frame) for key, frame in left.items())


def pack_of(
    setting: str, cells: list[tuple[Key, pl.DataFrame]]
) -> tuple[str, bytes, dict[Key, Piece]]:
    """The name and bytes of a pack, and where each cell is in it."""
    frames = [frame.select(pl.lit(model).alias("model"), pl.all()) for (model, _), frame in cells]
    data = write_part(pl.concat(frames).rechunk())
    name, total, at, pieces = pack_file(setting, digest(data)[:16]), digest(data), 0, {}
    for (key, _), frame in zip(cells, frames, strict=True):
        pieces[key] = Piece((0, len(frame)), name, total, at, packed=True)
        at += len(frame)
    return name, data, pieces
