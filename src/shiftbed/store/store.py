"""``PredictionStore``: models × settings → predictions, labels once per test set.

    STORE/store.json
    STORE/test_sets/setting=S.json                     what the test set is
    STORE/test_sets/setting=S.parquet                  example, label, group: once, not per model
    STORE/cells/model=M/setting=S.json                 provenance, state, how the cell ended
    STORE/predictions/model=M/setting=S/part-A-B.parquet   examples A … B−1

Parts have fixed bounds and their bytes depend on the predictions alone, so a run that was killed
and run again leaves the same files as one that was not, and two writers of one cell write the same
bytes. polars and DuckDB read ``predictions/**/*.parquet`` with ``hive_partitioning`` directly.
"""

import io
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.labels import Judged, judge
from shiftbed.reading.files import parse_json
from shiftbed.records import Setting, older_setting
from shiftbed.store.files import MemoryFiles, open_files
from shiftbed.store.names import cell_file, cell_folder, covers, encode, part_name, part_range
from shiftbed.store.parts import read_part, write_part
from shiftbed.store.sealing import Damaged, digest, opened, sealed
from shiftbed.store.shapes import check_batch, check_record, read_examples

FORMAT = 1
Range = tuple[int, int]
Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTestSet:
    """A setting's examples in order, with labels (−1 unknown) or label sets, and groups."""

    setting: str
    """Id of the setting."""
    examples: tuple[str, ...]
    labels: NDArray[np.int64]
    fingerprint: str
    record: Setting | None = None
    """What the setting is; None where an older store does not say."""
    label_policy: str = ""
    classes: int | None = None
    """Number of classes of the target label space, if known."""
    label_sets: tuple[tuple[int, ...], ...] | None = None
    """For multi-label targets: the right answers of each example; none means left out."""
    groups: tuple[str, ...] | None = None
    details: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.examples)

    def judge(self, predicted: NDArray[Any]) -> Judged:
        """Which answers (n,) are right, and which examples have a label at all."""
        return judge(predicted, self.labels if self.label_sets is None else self.label_sets)


class PredictionStore:
    """A store at a path or URL, or in memory; made when first written to.

    >>> store = PredictionStore(None)
    >>> store.models()
    []
    """

    def __init__(self, path: str | Path | None, **options: Any) -> None:
        """``None`` for a store in memory, gone with the object."""
        self.files = open_files(path, **options)
        self._sums: dict[str, str] = {}
        """Checksums of parts by file name, as records say."""
        self._read_batches: dict[str, list[dict[str, Any]]] = {}
        self.damage: dict[str, str] = {}
        """What was found damaged and left out while reading, by file."""
        about = self._json_if_there("store.json")
        self._made = about is not None
        if about is not None and about.get("format") != FORMAT:
            raise InputError(f"{path}: store format {about.get('format')!r}, expected {FORMAT}")

    @property
    def in_memory(self) -> bool:
        return isinstance(self.files, MemoryFiles)

    @classmethod
    def existing(cls, path: "str | Path | PredictionStore", **options: Any) -> "PredictionStore":
        """A store that must be there already; an open one as it is."""
        if isinstance(path, PredictionStore):
            return path
        store = cls(path, **options)
        if not store._made:
            raise InputError(f"{path}: no prediction store there")
        return store

    def begin(self) -> None:
        """Make the store, if it is not there."""
        if not self._made:
            self.files.create("store.json", sealed({"format": FORMAT}))
            self._made = True

    def _write(self, name: str, data: bytes) -> None:
        self.begin()
        self.files.write(name, data)

    # --- whole files or none -----------------------------------------------------------------

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """A record, with its own checksum in it."""
        self._write(name, sealed(value))

    def read_json(self, name: str) -> dict[str, Any]:
        """A record, refused if it is not what was written; older ones have no checksum."""
        return self._opened(name, self.files.read(name))

    def _json_if_there(self, name: str) -> dict[str, Any] | None:
        data = self.files.read_if_there(name)
        return None if data is None else self._opened(name, data)

    def _opened(self, name: str, data: bytes) -> dict[str, Any]:
        try:
            found = opened(data)
            check_record(name, found)
            return found
        except Damaged as error:
            raise self._damaged(name, str(error)) from None

    def read_bytes(self, name: str, checksum: str | None) -> bytes:
        """A file, refused if its SHA-256 is not the one recorded (None: none is)."""
        data = self.files.read(name)
        if checksum is not None and digest(data) != checksum:
            raise self._damaged(name)
        return data

    def _damaged(self, name: str, why: str = "its SHA-256 is not the recorded one") -> Damaged:
        return Damaged(f"{self.files.root}/{name} is damaged: {why} (see 'shiftbed store scrub')")

    def write_part_file(self, name: str, frame: pl.DataFrame) -> None:
        self._write(name, write_part(frame))
        self._sums.pop(name, None)

    def part_sums(self, folder: str) -> dict[str, str]:
        """The checksums of the parts in a folder, by file name: what a finished record keeps."""
        names = [part_name(*part) for part in self.parts_in(folder)]
        return {name: digest(self.files.read(f"{folder}/{name}")) for name in names}

    def part_bytes(self, model: str, setting: str, part: Range) -> bytes:
        """A part's file, checked against the cell's record."""
        name = f"{cell_folder(model, setting)}/{part_name(*part)}"
        if name not in self._sums:
            self.cell(model, setting)
        try:
            return self.read_bytes(name, self._sums.get(name))
        except Damaged:  # unless another writer has made it anew
            self._sums.pop(name, None)
            self.cell(model, setting)
            return self.read_bytes(name, self._sums.get(name))

    def _learn(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record without the checksums of its parts, which are kept here."""
        sums = record.pop("sums", None)
        if isinstance(sums, dict):
            folder = cell_folder(record["model"], record["setting"])
            self._sums |= {f"{folder}/{part}": str(one) for part, one in sums.items()}
        return record

    # --- test sets ---------------------------------------------------------------------------

    def add_test_set(self, test_set: StoredTestSet) -> None:
        """Write a setting's examples and labels, once; others under its name are refused."""
        if self.check_test_set(test_set):
            return
        columns: dict[str, Any] = {"example": list(test_set.examples), "label": test_set.labels}
        if test_set.label_sets is not None:
            sets = [list(s) for s in test_set.label_sets]
            columns["labels"] = pl.Series(sets, dtype=pl.List(pl.Int64))
        if test_set.groups is not None:
            columns["group"] = list(test_set.groups)
        buffer = io.BytesIO()
        pl.DataFrame(columns).write_parquet(buffer, compression="zstd")
        name = f"test_sets/setting={encode(test_set.setting)}"
        self._write(f"{name}.parquet", buffer.getvalue())
        about = {
            "setting": test_set.setting,
            "examples": digest(buffer.getvalue()),
            "n": len(test_set),
            "fingerprint": test_set.fingerprint,
            "label_policy": test_set.label_policy,
            "classes": test_set.classes,
            "details": dict(test_set.details or {}),
        }
        if test_set.record is not None:
            about["record"] = test_set.record.to_json()
        self.write_json(f"{name}.json", about)

    def check_test_set(self, test_set: StoredTestSet) -> bool:
        """Whether it is in the store; other examples or labels under its name are refused."""
        there = self._test_set_json(test_set.setting)
        if there is not None and there["label_policy"] != test_set.label_policy:
            raise InputError(
                f"setting {test_set.setting!r} is in the store with another label policy "
                f"({there['label_policy']}, now {test_set.label_policy})"
            )
        if there is not None and there["fingerprint"] != test_set.fingerprint:
            raise InputError(
                f"setting {test_set.setting!r} is in the store with other examples or labels "
                f"({there['fingerprint'][:19]}…, now {test_set.fingerprint[:19]}…)"
            )
        return there is not None

    def _test_set_json(self, setting: str) -> dict[str, Any] | None:
        return self._json_if_there(f"test_sets/setting={encode(setting)}.json")

    def test_set(self, setting: str) -> StoredTestSet:
        about = self._test_set_json(setting)
        if about is None:
            raise unknown("setting in the store", setting, self.settings())
        name = f"test_sets/setting={encode(setting)}.parquet"
        data = self.read_bytes(name, about.get("examples"))
        try:
            frame = read_examples(data, about["n"])
        except Damaged as error:
            raise self._damaged(name, str(error)) from None
        sets = frame["labels"].to_list() if "labels" in frame.columns else None
        return StoredTestSet(
            setting=setting,
            examples=tuple(frame["example"].to_list()),
            labels=frame["label"].to_numpy().astype(np.int64),
            fingerprint=about["fingerprint"],
            label_policy=about["label_policy"],
            classes=about["classes"],
            label_sets=None if sets is None else tuple(tuple(s) for s in sets),
            groups=tuple(frame["group"].to_list()) if "group" in frame.columns else None,
            details=about["details"],
            record=Setting.from_json(about["record"]) if "record" in about else None,
        )

    def settings(self) -> list[str]:
        return sorted(about["setting"] for about in self._test_sets())

    def _test_sets(self) -> list[dict[str, Any]]:
        names = [n for n in self.files.below("test_sets") if n.endswith(".json")]
        return [self._opened(*one) for one in zip(names, self.files.read_many(names), strict=True)]

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

    # --- what the testbed is -----------------------------------------------------------------

    def write_about(self, about: Mapping[str, Any]) -> None:
        """The testbed's own record: its name, its shifts, what is known of its models."""
        self.write_json("testbed.json", about)

    def about(self) -> dict[str, Any]:
        return self._json_if_there("testbed.json") or {}

    # --- cells -------------------------------------------------------------------------------

    def write_cell(self, model: str, setting: str, record: Mapping[str, Any]) -> None:
        """The cell's provenance record, replacing an older one."""
        self.write_json(cell_file(model, setting), self._record(model, setting, record))

    def begin_cell(self, model: str, setting: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write a cell's first record, unless another writer was faster: then theirs holds."""
        self.begin()
        whole = self._record(model, setting, record)
        if self.files.create(cell_file(model, setting), sealed(whole)):
            return whole
        there = self.cell(model, setting) or {}
        if "backend" not in there:  # it failed before it could begin
            self.write_cell(model, setting, record)
            return whole
        return there

    def _record(self, model: str, setting: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """With the checksums of its parts once the cell is complete."""
        whole = {"model": model, "setting": setting, **record}
        whole.pop("sums", None)
        if whole.get("status") == "complete":
            whole["sums"] = self.part_sums(cell_folder(model, setting))
        return whole

    def write_cells(self, cells: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Many records at once, in one file; a record of its own takes precedence over them."""
        batch = [self._record(m, s, record) for m, s, record in cells]
        if batch:
            data = json.dumps(batch, ensure_ascii=False, sort_keys=True).encode()
            name = digest(data)[:16]
            self._write(f"cells/batch-{name}.json", data)

    def cell(self, model: str, setting: str) -> dict[str, Any] | None:
        own = self._json_if_there(cell_file(model, setting))
        if own is not None:
            return self._learn(own)
        found = self._batches().get((model, setting))
        return None if found is None else self._learn(found)

    def _batches(self) -> dict[Key, dict[str, Any]]:
        names = [n for n in self.files.below("cells") if n.startswith("cells/batch-")]
        records = (record for name in names for record in self.batch(name))
        return {(record["model"], record["setting"]): record for record in records}

    def batch(self, name: str) -> list[dict[str, Any]]:
        """The records of a batch, whose name is its checksum; read once."""
        if name not in self._read_batches:
            data = self.files.read(name)
            if not digest(data).startswith(name.removeprefix("cells/batch-").removesuffix(".json")):
                raise self._damaged(name, "its SHA-256 is not that of its name")
            try:
                found = parse_json(data, "it")
                check_batch(found)
            except InputError as error:
                raise self._damaged(name, str(error)) from None
            self._read_batches[name] = found
        return [dict(record) for record in self._read_batches[name]]

    def cells(self) -> list[dict[str, Any]]:
        """All cells' records, by model and setting; damaged ones are left out (``damage``)."""
        found: dict[Key, dict[str, Any]] = {}
        own = self.files.below("cells")
        for name in sorted(own, key=lambda name: not name.startswith("cells/batch-")):
            try:
                batch = name.startswith("cells/batch-")
                records = self.batch(name) if batch else [self.read_json(name)]
                found |= {(one["model"], one["setting"]): one for one in records}
            except Damaged as error:
                self.damage[name] = str(error)
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
        return self.parts_in(cell_folder(model, setting))

    def parts_in(self, folder: str) -> list[Range]:
        names = self.files.below(folder)
        return sorted(r for r in map(part_range, names) if r is not None)

    def read_range(
        self, model: str, setting: str, part: Range, columns: list[str] | None = None
    ) -> pl.DataFrame:
        name = f"{cell_folder(model, setting)}/{part_name(*part)}"
        data = self.part_bytes(model, setting, part)
        try:
            return read_part(data, columns, checked=name in self._sums)
        except Damaged as error:
            raise self._damaged(name, str(error)) from None

    def read(self, model: str, setting: str, columns: list[str] | None = None) -> pl.DataFrame:
        """All predictions of a cell, in the order of the examples."""
        parts = self.parts(model, setting)
        if not parts:
            raise InputError(f"no predictions of {model!r} on {setting!r} in the store")
        if len(parts) == 1:
            return self.read_range(model, setting, parts[0], columns)
        frames = [self.read_range(model, setting, part, columns) for part in parts]
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
        """(models, examples) best classes of cells kept in one part each, read in one go.

        None where a cell has several parts, an unreadable example other columns or no checksums.
        """
        parts = [self.parts(model, setting) for model in models]
        if any(len(one) != 1 or one != parts[0] for one in parts):
            return None
        part = parts[0][0]
        data: list[Any] = [io.BytesIO(self.part_bytes(one, setting, part)) for one in models]
        names = [f"{cell_folder(one, setting)}/{part_name(*part)}" for one in models]
        if any(name not in self._sums for name in names):
            return None
        try:
            best = pl.read_parquet(data, columns=["class_1"])["class_1"]
        except pl.exceptions.SchemaError:  # models of different numbers of classes: one by one
            return None
        return None if best.null_count() else best.to_numpy().reshape(len(models), -1)

    def complete(self, model: str, setting: str) -> bool:
        """Whether every example of the setting has been predicted (or found unreadable)."""
        about = self._test_set_json(setting)
        return about is not None and covers(self.parts(model, setting), about["n"])

    def missing(self, model: str, setting: str, ranges: Iterable[Range]) -> list[Range]:
        """Those of the ranges that are not there yet."""
        there = set(self.parts(model, setting))
        return [one for one in ranges if one not in there]

    def remove(self, model: str, setting: str) -> None:
        """Forget a cell."""
        for part in self.parts(model, setting):
            self.files.remove(f"{cell_folder(model, setting)}/{part_name(*part)}")
        self.files.remove(cell_file(model, setting))
        rest = self._batches()
        if rest.pop((model, setting), None) is not None:
            old = [n for n in self.files.below("cells") if n.startswith("cells/batch-")]
            self.write_cells((m, s, record) for (m, s), record in rest.items())  # sums anew
            for name in old:
                self.files.remove(name)
