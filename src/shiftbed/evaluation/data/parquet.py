"""Images in Parquet files as Hugging Face writes them: struct<bytes, path> beside a label.

A path without bytes is never followed. Row groups are read whole and the last few are kept:
reading in order is cheap, and memory stays at a few row groups.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.data.columns import Columns, choose_columns, usable_ids, values
from shiftbed.evaluation.data.digests import NOTHING, DigestCache, Part, cached
from shiftbed.evaluation.data.images import Images, NoImage
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, some

_KEPT = 3
"""Row groups kept in memory."""
_DAMAGED = (OSError, ValueError, LookupError, MemoryError, NotImplementedError, pa.ArrowException)


@dataclass(frozen=True, eq=False)
class ParquetImages(Images):
    """Cells of a column in one or several Parquet files."""

    paths: tuple[str, ...]
    leaf: str
    starts: tuple[NDArray[np.int64], ...]
    """For each file the first row of each of its row groups, and the number of rows."""
    rows: NDArray[np.int64]
    """(N, 2): number of the file, row in it."""
    recent: "_Recent" = field(init=False, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __post_init__(self) -> None:
        object.__setattr__(self, "recent", _Recent())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "recent"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def data(self, row: int) -> bytes:
        """The encoded picture, or ``NoImage``."""
        number, at = map(int, self.rows[row])
        group = int(np.searchsorted(self.starts[number], at, side="right")) - 1
        cells = self.recent.get(number, group, self.read)
        return _cell(cells, at - int(self.starts[number][group]))

    def read(self, number: int, group: int) -> pa.ChunkedArray:
        """The cells of one row group."""
        try:
            with pq.ParquetFile(self.paths[number]) as file:
                column = file.read_row_group(group, columns=[self.leaf], use_threads=False)[0]
            if len(column) != self.starts[number][group + 1] - self.starts[number][group]:
                raise NoImage("its Parquet file has other rows than it says")
        except _DAMAGED as error:
            raise NoImage(f"its Parquet file cannot be read: {_brief(error)}") from None
        return pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column

    def take(self, rows: NDArray[np.int64]) -> "ParquetImages":
        """Only these, in this order."""
        return replace(self, rows=self.rows[rows])

    def digests(self, cache: DigestCache | None) -> list[bytes]:
        """SHA-256 of each picture, computed file by file."""
        of_file = [np.flatnonzero(self.rows[:, 0] == at) for at in range(len(self.paths))]
        parts = [
            (Path(path), self.leaf + hashlib.sha256(self.rows[rows, 1].tobytes()).hexdigest())
            for path, rows in zip(self.paths, of_file, strict=True)
        ]
        number_of = {part: number for number, part in enumerate(parts)}

        def compute(part: Part) -> bytes:
            return self._digests(number_of[part], self.rows[of_file[number_of[part]], 1])

        found = [NOTHING] * len(self)
        for rows, joined in zip(of_file, cached(parts, compute, cache), strict=True):
            for at, row in enumerate(rows):
                found[row] = joined[32 * at : 32 * at + 32]
        return found

    def _digests(self, number: int, rows: NDArray[np.int64]) -> bytes:
        """Of rows of one file, each row group read once."""
        starts = self.starts[number]
        groups = np.searchsorted(starts, rows, side="right") - 1
        found = [NOTHING] * len(rows)
        for group in np.unique(groups):
            try:
                cells = self.read(number, int(group))
            except NoImage:
                continue
            for at in np.flatnonzero(groups == group):
                try:
                    data = _cell(cells, int(rows[at] - starts[group]))
                    found[at] = hashlib.sha256(data).digest()
                except NoImage:
                    continue
        return b"".join(found)


class _Recent:
    """The last few row groups; a thread that needs one which is being read waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: OrderedDict[tuple[int, int], Future[Any]] = OrderedDict()

    def get(self, number: int, group: int, read: Callable[[int, int], Any]) -> Any:
        """A row group, read unless it is there."""
        key = (number, group)
        with self._lock:
            slot = self._slots.get(key)
            mine = slot is None
            if slot is None:
                slot = self._slots[key] = Future()
            self._slots.move_to_end(key)
            while len(self._slots) > _KEPT:
                self._slots.popitem(last=False)
        if mine:
            try:
                slot.set_result(read(number, group))
            except BaseException as error:
                slot.set_exception(error)
        return slot.result()


def _cell(cells: pa.ChunkedArray, at: int) -> bytes:
    data = cells[at].as_py()
    if data is None:
        raise NoImage("its Parquet file holds no bytes for it, at most a path")
    return bytes(data)


def read_parquet(paths: list[Path], options: Options) -> RawExamples:
    """The images of one or several Parquet files in their order."""
    where = some([str(path) for path in paths], 1)
    files = [_read_file(path, options) for path in paths]
    columns = files[0].columns
    for path, file in zip(paths, files, strict=True):
        if file.columns != columns:
            raise InputError(f"{path}: has other columns or classes than {paths[0]}")
    sizes = [int(file.starts[-1]) for file in files]
    if not sum(sizes):
        raise InputError(f"{where}: no rows")
    table = pa.concat_tables([file.table for file in files])
    rows = np.column_stack(
        [
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([np.arange(size) for size in sizes]),
        ]
    )
    return RawExamples(
        where=where,
        examples=_ids(where, table, columns, len(rows)),
        images=ParquetImages(
            tuple(str(path.absolute()) for path in paths),
            columns.leaf,
            tuple(file.starts for file in files),
            rows,
        ),
        labels=None if columns.label is None else values(where, table[columns.label]),
        classes=columns.classes,
        groups=None if columns.group is None else values(where, table[columns.group]),
    )


class _File(NamedTuple):
    """One file but for its images."""

    columns: Columns
    table: pa.Table
    starts: NDArray[np.int64]


def _read_file(path: Path, options: Options) -> _File:
    try:
        with pq.ParquetFile(path) as file:
            columns = choose_columns(str(path), file.schema_arrow, options)
            names = (columns.label, columns.group, columns.id, columns.path)
            table = file.read(columns=[name for name in names if name is not None])
            sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except _DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as Parquet: {_brief(error)}") from None
    starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    if table.num_rows != starts[-1] or min(sizes, default=0) < 0:
        raise InputError(f"{path}: cannot be read as Parquet: has other rows than it says")
    return _File(columns, table, starts)


def _ids(where: str, table: pa.Table, columns: Columns, size: int) -> tuple[str, ...]:
    """The column asked for, else the files' names if they are good ids, else row numbers."""
    if columns.id is not None:
        return tuple(map(str, values(where, table[columns.id])))
    if columns.path is not None:
        ids = usable_ids(values(where, pc.struct_field(table[columns.image], "path")))
        if ids is not None:
            return ids
    digits = len(str(size - 1))
    return tuple(f"{row:0{digits}d}" for row in range(size))


def _brief(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
