"""What each kind of file in a store must hold: one check of records, one of tables.

A record that fits here has everything that is read of it elsewhere, in the types it is read in.
Older stores have no checksums, so that nothing else stands between a damaged file and its reader.
"""

from typing import Any

import polars as pl

from shiftbed.errors import InputError
from shiftbed.reading.files import read_frame
from shiftbed.reading.shapes import any_text, count, misfit, plain, real, text, whole
from shiftbed.store.names import encode
from shiftbed.store.sealing import Damaged

MOST_CLASSES = 10_000_000
"""No label space is larger; a damaged number may be anything."""


def _classes(value: Any) -> bool:
    return count(value) and value <= MOST_CLASSES


_PACK = {"file": text, "sha256": text, "at": count, "rows": count}
_SETTING = {"test_set?": text, "clean?": dict, "mean_of?": [dict], "*": plain}
_INFO = {"*": (None, bool, whole, real, any_text)}
_CELL = {
    **{"model": text, "setting": text, "status?": any_text, "n?": (None, count), "info?": _INFO},
    **{"perturbation?": (None, {"*": plain}), "sums?": {"*": text}, "error?": plain},
    **{"pack?": _PACK, "unreadable?": [any_text], "warnings?": [any_text], "wall_seconds?": real},
    **{"options?": {"*": plain}, "backend?": (None, any_text), "*": plain},
}
_SHIFT = {"name": text, "kind": text, "source": [text], "target": text, "*": plain}
_SHAPES: dict[str, Any] = {
    "store.json": {"format": whole},
    "testbed.json": {"name?": any_text, "shifts?": [_SHIFT], "models?": {"*": _INFO}},
    "test_sets": {
        **{"setting": text, "n": count, "fingerprint": text, "label_policy": any_text},
        **{"classes": (None, _classes), "details": {"*": plain}, "record?": _SETTING},
        **{"examples?": text, "unread?": [count]},
    },
    "cells": _CELL,
    "probes": {
        **{"model": text, "setting": text, "probe": text, "status?": any_text, "paths?": count},
        **{"chunk?": count, "parameters?": {"*": plain}, "sums?": {"*": text}},
        **{"unread?": [count], "*": plain},
    },
}


def check_record(name: str, record: Any) -> None:
    """Refuse a record that is not of its kind, or in another's file."""
    kind = name.partition("/")[0]
    where = misfit(record, _SHAPES.get(kind, dict))
    if where is not None:
        raise Damaged(f"{where!r} is missing or not what it should be")
    if kind in ("test_sets", "cells", "probes") and name not in ("", _place(kind, record)):
        raise Damaged("it is the record of something else")


def check_batch(records: Any) -> None:
    """The same of many cells' records in one file."""
    where = misfit(records, [_CELL])
    if where is not None:
        raise Damaged(f"{where!r} is missing or not what it should be")


def _place(kind: str, record: dict[str, Any]) -> str:
    setting = f"setting={encode(record['setting'])}"
    if kind == "test_sets":
        return f"test_sets/{setting}.json"
    folder = f"{kind}/model={encode(record['model'])}/{setting}"
    return f"{folder}.json" if kind == "cells" else f"{folder}/probe={encode(record['probe'])}.json"


def read_examples(data: bytes, n: int) -> pl.DataFrame:
    """The examples of a test set: their names, labels (or several), and groups if there are any."""
    frame = _table(data)
    wanted = {"example": pl.String, "label": pl.Int64, "group": pl.String}
    for name, kind in wanted.items():
        if name in frame.columns or name != "group":
            _column(frame, name, kind)
    if "labels" in frame.columns and frame.schema["labels"] != pl.List(pl.Int64):
        raise Damaged("its column 'labels' is no list of class numbers")
    if len(frame) != n:
        raise Damaged(f"it has {len(frame)} rows, its record says {n}")
    top = frame["label"].max()
    if isinstance(top, int) and top > MOST_CLASSES:
        raise Damaged(f"a label is {top}")
    return frame


def _column(frame: pl.DataFrame, name: str, kind: pl.DataType | type[pl.DataType]) -> None:
    if frame.schema.get(name) != kind or frame[name].null_count():
        raise Damaged(f"its column {name!r} is missing, has gaps or is no {kind}")


def check_part(frame: pl.DataFrame) -> None:
    """Refuse a table of predictions whose columns are of other types than predictions have."""
    for name, kind in frame.schema.items():
        head = name.rpartition("_")[0]
        good = (
            kind in (pl.UInt16, pl.UInt32)
            if head == "class"
            else kind == pl.Float32
            if head in ("prob", "label", "sum", "scale")
            else True
        )
        if not good:
            raise Damaged(f"its column {name!r} holds {kind}")
        if head == "class" and len(frame):
            top = frame[name].max()
            if isinstance(top, int) and top > MOST_CLASSES:
                raise Damaged(f"a class is {top}")


def _table(data: bytes) -> pl.DataFrame:
    try:
        return read_frame(data, "")
    except InputError as error:
        raise Damaged(str(error).lstrip(": ")) from None
