"""Which columns of an Arrow schema hold images, labels, groups and ids, and the names of classes.

Hugging Face's Parquet files and data sets describe their features in the schema's metadata under
the key ``huggingface``; that is believed about class names, and types are checked.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data.files import printable
from shiftbed.evaluation.data.raw_examples import Options, some


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What each column is for."""

    image: str
    leaf: str
    """The image's bytes as Parquet names them: ``image.bytes`` or ``image``."""
    path: str | None
    """The image's file name as Parquet names it, if there may be one."""
    label: str | None
    group: str | None
    id: str | None
    classes: tuple[str, ...] | None


def choose_columns(where: str, schema: pa.Schema, options: Options) -> Columns:
    """The columns that were asked for, or else the only ones that fit."""
    features = _features(schema)
    for asked in (options.image_column, options.label_column, options.group_column):
        if asked is not None and asked not in schema.names:
            raise unknown(f"column in {where}", asked, schema.names)
    if options.id_column is not None and options.id_column not in schema.names:
        raise unknown(f"column in {where}", options.id_column, schema.names)
    image = options.image_column or _image(where, schema)
    kind = schema.field(image).type
    if not _holds_bytes(kind):
        raise InputError(f"{where}, column {image!r}: is {kind}, expected struct<bytes, path>")
    struct = pa.types.is_struct(kind)
    label = None
    if not options.unlabelled:
        label = options.label_column or _label(where, schema, features)
    group = options.group_column or ("group" if "group" in schema.names else None)
    named = struct and kind.get_field_index("path") >= 0
    return Columns(
        image=image,
        leaf=f"{image}.bytes" if struct else image,
        path=f"{image}.path" if named else None,
        label=label,
        group=group,
        id=options.id_column,
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


def _image(where: str, schema: pa.Schema) -> str:
    fits: list[str] = [one.name for one in schema if _holds_bytes(one.type)]
    if len(fits) > 1 and "image" in fits:
        return "image"
    if len(fits) != 1:
        seen = some(fits) if fits else f"none in {some(schema.names, 8)}"
        raise InputError(
            f"{where}: expected one column of images, struct<bytes, path>, found {seen}"
            + ("; say which (image_column=)" if fits else "")
        )
    return fits[0]


def _label(where: str, schema: pa.Schema, features: dict[str, Any]) -> str:
    usual = [name for name in ("label", "labels") if name in schema.names]
    named = [name for name in schema.names if _class_names(features.get(name)) is not None]
    fits = usual or named
    if len(fits) != 1:
        raise InputError(
            f"{where}: expected one column of labels, found {some(fits) or 'none'} in "
            f"{some(schema.names, 8)}; say which (label_column=), or unlabelled=True"
        )
    return fits[0]


def values(where: str, column: pa.ChunkedArray) -> Any:
    """A column as an array of integers, or as a list."""
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    try:
        return column.to_pylist()
    except (ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"{where}: holds a value that cannot be read: {reason}") from None


def usable_ids(names: Sequence[str | None]) -> tuple[str, ...] | None:
    """File names as ids, if every image has its own and none points out of a folder."""
    if not all(names) or len(set(names)) < len(names):
        return None
    given = [name for name in names if name is not None]
    if any(one.startswith(("/", "\\")) or ".." in one or not one.isprintable() for one in given):
        return None
    return printable(given)
