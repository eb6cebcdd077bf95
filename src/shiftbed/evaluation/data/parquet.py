"""Images in Parquet files as Hugging Face writes them: struct<bytes, path> beside a label.

A path without bytes is never followed. Row groups are read whole and the last few are kept:
reading in order is cheap, and memory stays at a few row groups. Which columns hold what is found
from Hugging Face's description of the features in the schema's metadata, and checked by type.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.data.image_files import printable
from shiftbed.evaluation.data.images import NoImage, RowImages
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, numbered, some
from shiftbed.reading.files import MOST_ROWS, regular
from shiftbed.reading.trial import try_images

_KEPT = 3
"""Row groups kept in memory."""
_DAMAGED = (OSError, ValueError, LookupError, MemoryError, NotImplementedError, pa.ArrowException)


@dataclass(frozen=True, kw_only=True)
class ImageColumns:
    """What each column is for."""

    image: str
    leaf: str
    """The image's bytes as Parquet names them: ``image.bytes`` or ``image``."""
    path: str | None
    """The image's file name as Parquet names it, if there may be one."""
    label: str | None
    group: str | None
    id: str | None
    caption: str | None
    classes: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class ParquetImages(RowImages):
    """Cells of a column in Parquet files; a row is (number of the file, row in it)."""

    paths: tuple[str, ...]
    leaf: str
    starts: tuple[NDArray[np.int64], ...]
    """For each file the first row of each of its row groups, and the number of rows."""
    recent: "OrderedDict[tuple[int, int], Any]" = field(init=False, repr=False)
    lock: threading.Lock = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "recent", OrderedDict())
        object.__setattr__(self, "lock", threading.Lock())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("recent", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def data(self, row: int) -> bytes:
        number, at = map(int, self.rows[row])
        group = int(np.searchsorted(self.starts[number], at, side="right")) - 1
        cells = self._kept((number, group))
        if isinstance(cells, NoImage):
            raise NoImage(str(cells))
        data = cells[at - int(self.starts[number][group])].as_py()
        if data is None:
            raise NoImage("its Parquet file holds no bytes for it, at most a path")
        return bytes(data)

    def _kept(self, key: tuple[int, int]) -> Any:
        """A row group, or why it cannot be read; threads wait for the one that reads it."""
        with self.lock:
            if key not in self.recent:
                try:
                    self.recent[key] = self.read(*key)
                except NoImage as error:
                    self.recent[key] = error
            self.recent.move_to_end(key)
            while len(self.recent) > _KEPT:
                self.recent.popitem(last=False)
            return self.recent[key]

    def read(self, number: int, group: int) -> pa.ChunkedArray:
        """The cells of one row group."""
        try:
            with pq.ParquetFile(self.paths[number]) as file:
                column = file.read_row_group(group, columns=[self.leaf], use_threads=False)[0]
            if len(column) != self.starts[number][group + 1] - self.starts[number][group]:
                raise NoImage("its Parquet file has other rows than it says")
        except _DAMAGED as error:
            raise NoImage(f"its Parquet file cannot be read: {brief(error)}") from None
        return pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column


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
    each = [np.stack([np.full(n, at), np.arange(n)], axis=1) for at, n in enumerate(sizes)]
    rows = np.concatenate(each)
    images = ParquetImages(
        paths=tuple(str(path.absolute()) for path in paths),
        leaf=columns.leaf,
        starts=tuple(file.starts for file in files),
        rows=rows,
    )
    names: Sequence[str | None] = ()
    if columns.id is None and columns.path is not None:
        names = values(where, pc.struct_field(table[columns.image], "path"))
    return found_in(where, table, columns, images, names)


def found_in(
    where: str, table: Any, columns: ImageColumns, images: RowImages, files: Sequence[str | None]
) -> RawExamples:
    """What a table says of its images.

    Ids are the column asked for, else the files' names if they are good ids, else row numbers.
    """

    def column(name: str | None) -> Any:
        return None if name is None else values(where, table[name])

    ids = usable_ids(files) if columns.id is None else tuple(map(str, column(columns.id)))
    return RawExamples(
        where=where,
        examples=ids or numbered(len(images)),
        images=images,
        labels=column(columns.label),
        classes=columns.classes,
        groups=column(columns.group),
        captions=column(columns.caption),
    )


class _File(NamedTuple):
    """One file but for its images."""

    columns: ImageColumns
    table: pa.Table
    starts: NDArray[np.int64]


def _read_file(path: Path, options: Options) -> _File:
    there = regular(path)
    try_images(there, str(path))
    try:
        with pq.ParquetFile(there) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise InputError(f"{path}: {file.metadata.num_rows} rows, more than {MOST_ROWS}")
            columns = choose_columns(str(path), file.schema_arrow, options)
            names = (columns.label, columns.group, columns.id, columns.caption, columns.path)
            table = file.read(columns=[name for name in names if name is not None])
            sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except _DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as Parquet: {brief(error)}") from None
    starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    if table.num_rows != starts[-1] or min(sizes, default=0) < 0:
        raise InputError(f"{path}: cannot be read as Parquet: has other rows than it says")
    return _File(columns, table, starts)


def choose_columns(where: str, schema: pa.Schema, options: Options) -> ImageColumns:
    """The columns that were asked for, or else the only ones that fit."""
    features = _features(schema)
    for asked in options.columns:
        if asked is not None and asked not in schema.names:
            raise unknown(f"column in {where}", asked, schema.names)
    image = options.image_column
    if image is None:
        fits = [one.name for one in schema if _holds_bytes(one.type)]
        image = _only(where, ["image"] if "image" in fits else fits, schema, "image")
    kind = schema.field(image).type
    if not _holds_bytes(kind):
        raise InputError(f"{where}, column {image!r}: is {kind}, expected struct<bytes, path>")
    struct = pa.types.is_struct(kind)
    label = None
    if not options.unlabelled:
        usual = [name for name in ("label", "labels") if name in schema.names]
        named = [name for name in schema.names if _class_names(features.get(name)) is not None]
        label = options.label_column or _only(where, usual or named, schema, "label")
    group = options.group_column or ("group" if "group" in schema.names else None)
    named = struct and kind.get_field_index("path") >= 0
    return ImageColumns(
        image=image,
        leaf=f"{image}.bytes" if struct else image,
        path=f"{image}.path" if named else None,
        label=label,
        group=group,
        id=options.id_column,
        caption=options.caption_column,
        classes=None if label is None else _class_names(features.get(label)),
    )


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Hugging Face's description of the columns, empty if there is none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _class_names(feature: object) -> tuple[str, ...] | None:
    """The names of a ClassLabel, alone or in a list."""
    while isinstance(feature, dict) and feature.get("_type") != "ClassLabel":
        feature = feature.get("feature")
    names = feature.get("names") if isinstance(feature, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and _holds_bytes(kind.field(at).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _only(where: str, fits: list[str], schema: pa.Schema, what: str) -> str:
    if len(fits) == 1:
        return fits[0]
    kind = "images, struct<bytes, path>" if what == "image" else "labels"
    hint = f"; say which ({what}_column=)" if fits or what == "label" else ""
    raise InputError(
        f"{where}: expected one column of {kind}, found {some(fits) or 'none'} in "
        f"{some(schema.names, 8)}{hint}" + (", or unlabelled=True" if what == "label" else "")
    )


def values(where: str, column: pa.ChunkedArray) -> Any:
    """A column as an array of integers, or as a list."""
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    try:
        return column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where}: holds a value that cannot be read: {brief(error)}") from None


def usable_ids(names: Sequence[str | None]) -> tuple[str, ...] | None:
    """File names as ids, if every image has its own and none points out of a folder."""
    if not all(names) or len(set(names)) < len(names):
        return None
    given = [name for name in names if name is not None]
    if any(one.startswith(("/", "\\")) or ".." in one or not one.isprintable() for one in given):
        return None
    return printable(given)
