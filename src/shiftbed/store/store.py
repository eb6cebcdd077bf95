"""``PredictionStore``: models × settings → predictions, labels once per test set.

    STORE/store.json
    STORE/test_sets/setting=S.json                     what the test set is
    STORE/test_sets/setting=S.parquet                  example, label, group: once, not per model
    STORE/cells/model=M/setting=S.json                 provenance, state, how the cell ended
    STORE/cells/batch-G-DIGEST.json                    the same of many cells (``manifest.py``)
    STORE/predictions/model=M/setting=S/part-A-B.parquet   examples A … B−1
    STORE/packs/setting=S/pack-DIGEST.parquet          several small cells (``compact.py``)

Parts have fixed bounds and their bytes depend on the predictions alone, so a run that was killed
and run again leaves the same files as one that was not, and two writers of one cell write the same
bytes. The parts of a complete cell become one: a part holds before those that lie within it.
polars and DuckDB read ``predictions/**/*.parquet`` with ``hive_partitioning`` directly, and
``packs/**/*.parquet``, which have a column ``model``.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.records import Setting, older_setting
from shiftbed.store.manifest import Key, Manifest
from shiftbed.store.names import (
    cell_file,
    cell_folder,
    covers,
    outermost,
    part_name,
    part_range,
)
from shiftbed.store.parts import read_part, write_part
from shiftbed.store.sealing import Damaged, digest, sealed
from shiftbed.store.test_sets import StoredTestSet, TestSets

Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Where predictions of a run of examples are: rows of a file."""

    part: Range
    """The examples."""
    file: str
    checksum: str | None
    """The file's, as the record says; None if it does not."""
    at: int = 0
    """The first of its rows; all of the file's but in a pack."""
    packed: bool = False

    @property
    def rows(self) -> int:
        return self.part[1] - self.part[0]


class PredictionStore(TestSets):
    """A store at a path or URL, or in memory; made when first written to.

    >>> store = PredictionStore(None)
    >>> store.models()
    []
    """

    def __init__(self, path: str | Path | None, **options: Any) -> None:
        """``None`` for a store in memory, gone with the object."""
        super().__init__(path, **options)
        self.manifest = Manifest(self.files)
        self._pieces: dict[Key, list[Piece] | None] = {}
        """Where complete cells are, as records say; None of those that do not say it."""
        self._wrote: dict[str, str] = {}
        """Checksums of parts that this process has written, until their cell is complete."""
        self._begun: dict[Key, dict[str, Any]] | None = None
        """While at work, records of cells that this process has begun; None otherwise."""
        self._packed: dict[Key, Piece] = {}
        """Where this process has written small cells, until their records say so."""
        self._pack: tuple[str, bytes] = ("", b"")
        self._unpacked: tuple[str, list[str] | None, pl.DataFrame] = ("", None, pl.DataFrame())
        """The last pack that was read, with its name and checksum compared."""

    @classmethod
    def existing(cls, path: "str | Path | PredictionStore", **options: Any) -> "PredictionStore":
        """A store that must be there already; an open one as it is."""
        if isinstance(path, PredictionStore):
            return path
        store = cls(path, **options)
        if not store._made:
            raise InputError(f"{path}: no prediction store there")
        return store

    # --- files of parts ----------------------------------------------------------------------

    def write_part_file(self, name: str, frame: pl.DataFrame) -> None:
        data = write_part(frame)
        self._write(name, data)
        self._wrote[name] = digest(data)

    def part_sums(self, folder: str) -> dict[str, str]:
        """The checksums of the parts in a folder, by file name: what a finished record keeps."""
        sums = {}
        for part in outermost(self.parts_in(folder)):
            name = f"{folder}/{part_name(*part)}"
            sums[part_name(*part)] = self._wrote.pop(name, "") or digest(self.files.read(name))
        return sums

    def _learn(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the record without what says where the predictions are, which is kept here."""
        self._pieces[record["model"], record["setting"]] = self.placed(record)
        return {key: value for key, value in record.items() if key not in ("sums", "pack")}

    def placed(self, record: Mapping[str, Any]) -> list[Piece] | None:
        """Where a complete cell's predictions are, as its record says; None if it does not."""
        sums, pack = record.get("sums") or {}, record.get("pack")
        if record.get("status") != "complete":
            return None
        if pack is not None:
            return [Piece((0, pack["rows"]), pack["file"], pack["sha256"], pack["at"], packed=True)]
        folder = cell_folder(record["model"], record["setting"])
        named = {part: name for name in sums if (part := part_range(name)) is not None}
        return [
            Piece(part, f"{folder}/{named[part]}", str(sums[named[part]]))
            for part in outermost(named)
        ] or None

    def in_place(self, model: str, setting: str, piece: Piece) -> None:
        """A cell's predictions were written into a pack; its next record says so."""
        self._packed[model, setting] = piece

    def forget_place(self, model: str, setting: str) -> None:
        """Look where a cell is again, next time: it was moved."""
        self._pieces.pop((model, setting), None)

    # --- what the testbed is -----------------------------------------------------------------

    def write_about(self, about: Mapping[str, Any]) -> None:
        """The testbed's own record: its name, its shifts, what is known of its models."""
        self.write_json("testbed.json", about)

    def about(self) -> dict[str, Any]:
        return self._json_if_there("testbed.json") or {}

    def records(self) -> dict[str, Setting]:
        """What every setting is; of an older store, what its shifts and cells say of it."""
        found, older = {}, []
        for about in self._test_sets():
            if "record" in about:
                found[about["setting"]] = Setting.from_json(about["record"])
            else:
                older.append(about["setting"])
        if older:
            kinds = {one["target"]: one["kind"] for one in self.about().get("shifts", [])}
            details = {r["setting"]: r.get("perturbation") or {} for r in self.cells()}
            for id in older:
                said = details.get(id, {})
                found[id] = older_setting(id, str(said.get("kind") or kinds.get(id, "")), said)
        return dict(sorted(found.items()))

    # --- cells -------------------------------------------------------------------------------

    def write_cell(self, model: str, setting: str, record: Mapping[str, Any]) -> None:
        """The cell's provenance record, replacing an older one."""
        whole = self._record(model, setting, record)
        self.write_json(cell_file(model, setting), whole)
        if whole.get("status") == "complete":
            self._pieces[model, setting] = self.placed(whole)

    def begin_cell(self, model: str, setting: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write a cell's first record, unless another writer was faster: then theirs holds."""
        self.begin()
        whole = self._record(model, setting, record)
        if self.files.create(cell_file(model, setting), sealed(whole)):
            if self._begun is not None:
                self._begun[model, setting] = whole
            return whole
        there = self.cell(model, setting) or {}
        if "backend" not in there:  # it failed before it could begin
            self.write_cell(model, setting, record)
            return whole
        return there

    def _record(self, model: str, setting: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """With the checksums of its parts, or its place in a pack, once the cell is complete."""
        whole = {"model": model, "setting": setting, **record}
        (self._begun or {}).pop((model, setting), None)
        for key in ("sums", "pack"):
            whole.pop(key, None)
        if whole.get("status") == "complete":
            known = self._pieces.get((model, setting)) or []
            new = self._packed.pop((model, setting), None)
            sums = {} if new else self.part_sums(cell_folder(model, setting))
            if new or (not sums and known and known[0].packed):
                whole["pack"] = in_pack(new or known[0])
            else:
                whole["sums"] = sums
        self.forget_place(model, setting)
        return whole

    def write_cells(self, cells: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Many records at once, in one file; a record of its own takes precedence over them."""
        self.begin()
        self.manifest.write_batch(self._record(m, s, record) for m, s, record in cells)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Records of cells that are begun within are this process's, and not read again."""
        outermost = self._begun is None
        self._begun = {} if self._begun is None else self._begun
        try:
            yield
        finally:
            self._begun = None if outermost else self._begun

    def begun(self, model: str, setting: str) -> dict[str, Any] | None:
        """The record of a cell that this process is at work on; of others as it is in the store."""
        known = (self._begun or {}).get((model, setting))
        return self.cell(model, setting) if known is None else dict(known)

    def cell(self, model: str, setting: str) -> dict[str, Any] | None:
        own = self._json_if_there(cell_file(model, setting))
        if own is None:
            own = self.manifest.in_batches(model, setting)
        return None if own is None else self._learn(own)

    def cells(self) -> list[dict[str, Any]]:
        """All cells' records, by model and setting; damaged ones are left out (``damage``)."""
        found = self.manifest.all(self.damage)
        return [self._learn(found[key]) for key in sorted(found)]

    def models(self) -> list[str]:
        return sorted({record["model"] for record in self.cells()})

    def complete_models(self, setting: str, models: Iterable[str] | None = None) -> list[str]:
        """The models with all predictions in a setting, or some of them, refused if they lack."""
        complete = [
            record["model"]
            for record in self.cells()
            if record["setting"] == setting and record.get("status") == "complete"
        ]
        names = complete if models is None else list(models)
        for name in names:
            if name not in complete:
                raise unknown(f"model on {setting!r} in the store", name, complete)
        return names

    # --- predictions -------------------------------------------------------------------------

    def write_part(self, model: str, setting: str, start: int, frame: pl.DataFrame) -> None:
        """Predictions for examples start … start + len(frame) − 1."""
        folder = cell_folder(model, setting)
        self.write_part_file(f"{folder}/{part_name(start, start + len(frame))}", frame)

    def write_parts(self, parts: Iterable[tuple[str, str, int, pl.DataFrame]]) -> None:
        """Many parts, written side by side: most of the time is waiting for the disk."""
        todo = list(parts)
        if not todo:
            return
        self.write_part(*todo[0])
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda one: self.write_part(*one), todo[1:]))

    def parts(self, model: str, setting: str) -> list[Range]:
        """The ranges of examples that are there, in order."""
        return [piece.part for piece in self.pieces(model, setting)]

    def parts_in(self, folder: str) -> list[Range]:
        """The ranges of the parts in a folder, in order."""
        return sorted(r for r in map(part_range, self.files.below(folder)) if r is not None)

    def pieces(self, model: str, setting: str, *, listed: bool = False) -> list[Piece]:
        """Where a cell's predictions are, in order: as its record says, or (``listed``) as found.

        A record that was read by this object before is not read again: whoever finds that it no
        longer holds asks with ``listed``.
        """
        ours = (model, setting) in (self._begun or {})
        if not ours and (listed or (model, setting) not in self._pieces):
            self.cell(model, setting)
        known = self._pieces.get((model, setting))
        if known is not None and not listed:
            return known
        if known is not None and known[0].packed and self.files.exists(known[0].file):
            return known
        folder = cell_folder(model, setting)
        sums = {piece.file: piece.checksum for piece in known or ()}
        names = [
            (part, f"{folder}/{part_name(*part)}") for part in outermost(self.parts_in(folder))
        ]
        return [Piece(part, name, sums.get(name)) for part, name in names]

    def piece_bytes(self, piece: Piece) -> bytes:
        """The file that a piece is in, compared with its checksum; the last pack is kept."""
        if not piece.packed:
            return self.read_bytes(piece.file, piece.checksum)
        if self._pack[0] != piece.file:
            self._pack = piece.file, self.read_bytes(piece.file, piece.checksum)
        return self._pack[1]

    def read_piece(self, piece: Piece, columns: list[str] | None = None) -> pl.DataFrame:
        """The rows of a piece; the last pack is kept as it was read, for its other cells."""
        file, had, whole = self._unpacked
        if not piece.packed or (file, had) != (piece.file, columns):
            data = self.piece_bytes(piece)
            try:
                whole = read_part(data, columns, checked=piece.checksum is not None)
            except Damaged as error:
                raise self._damaged(piece.file, str(error)) from None
            if not piece.packed:
                return whole
            whole = whole.drop("model", strict=False)
            self._unpacked = piece.file, columns, whole
        return whole.slice(piece.at, piece.rows)

    def read(self, model: str, setting: str, columns: list[str] | None = None) -> pl.DataFrame:
        """All predictions of a cell, in the order of the examples."""
        try:
            return self._read(self.pieces(model, setting), model, setting, columns)
        except (Damaged, FileNotFoundError):  # perhaps rebuilt, or put together, meanwhile
            return self._read(self.pieces(model, setting, listed=True), model, setting, columns)

    def _read(
        self, pieces: list[Piece], model: str, setting: str, columns: list[str] | None
    ) -> pl.DataFrame:
        if not pieces:
            raise InputError(f"no predictions of {model!r} on {setting!r} in the store")
        frames = [self.read_piece(piece, columns) for piece in pieces]
        if len(frames) == 1:
            return frames[0]
        try:
            return pl.concat(frames, how="vertical_relaxed")
        except pl.exceptions.PolarsError:
            raise self._damaged(
                cell_folder(model, setting), "its parts differ in columns"
            ) from None

    def read_all(
        self, model: str, test_set: StoredTestSet, columns: list[str] | None = None
    ) -> pl.DataFrame:
        """The same, refused unless every example of the test set has its row."""
        frame = self.read(model, test_set.setting, columns)
        if len(frame) != len(test_set):
            raise InputError(
                f"{model!r} on {test_set.setting!r} has {len(frame)} of {len(test_set)} "
                "predictions; run it again to continue, or see 'shiftbed store verify'"
            )
        return frame

    def best_classes(self, models: list[str], setting: str) -> NDArray[Any] | None:
        """(models, examples) best classes of cells kept in one piece each, read in one go.

        None where a cell has several parts, an unreadable example other columns or no checksums.
        """
        found = [self.pieces(model, setting) for model in models]
        if any(len(one) != 1 or one[0].part != found[0][0].part for one in found):
            return None
        pieces = [one[0] for one in found]
        if any(piece.checksum is None for piece in pieces):
            return None
        try:
            if any(piece.packed for piece in pieces):
                series = [self.read_piece(piece, ["class_1"])["class_1"] for piece in pieces]
                best = pl.concat(series)
            else:
                data: list[Any] = [io.BytesIO(self.piece_bytes(piece)) for piece in pieces]
                best = pl.read_parquet(data, columns=["class_1"])["class_1"]
        except (pl.exceptions.SchemaError, FileNotFoundError):
            return None  # models of different numbers of classes, or files put together: one by one
        return None if best.null_count() else best.to_numpy().reshape(len(models), -1)

    def complete(self, model: str, setting: str) -> bool:
        """Whether every example of the setting has been predicted (or found unreadable)."""
        about = self._test_set_json(setting)
        return about is not None and covers(self.there(model, setting), about["n"])

    def there(self, model: str, setting: str) -> list[Range]:
        """The ranges of examples whose files are there, whatever the record says."""
        return [piece.part for piece in self.pieces(model, setting, listed=True)]

    def missing(self, model: str, setting: str, ranges: Iterable[Range]) -> list[Range]:
        """Those of the ranges that are not there yet."""
        return not_in(ranges, self.there(model, setting))

    def remove(self, model: str, setting: str) -> None:
        """Forget a cell."""
        folder = cell_folder(model, setting)
        for name in self.files.below(folder):
            self.files.remove(name)
        self.files.remove(cell_file(model, setting))
        self.manifest.forget(model, setting)
        self.forget_place(model, setting)
        (self._begun or {}).pop((model, setting), None)


def in_pack(piece: Piece) -> dict[str, Any]:
    """What a record says of a cell that is in a pack."""
    return {"file": piece.file, "sha256": piece.checksum, "at": piece.at, "rows": piece.rows}


def not_in(ranges: Iterable[Range], there: Iterable[Range]) -> list[Range]:
    """Those of the ranges that lie in none of those that are there.

    >>> not_in([(0, 2), (2, 4)], [(0, 3)])
    [(2, 4)]
    """
    known = list(there)
    exact = set(known)
    return [
        one
        for one in ranges
        if one not in exact and not any(a <= one[0] and one[1] <= b for a, b in known)
    ]
