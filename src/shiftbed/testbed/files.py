"""Testbed files: one Parquet file that any tool can read.

A row per cell: the model's columns, then ``setting``, ``value`` (a fraction), ``n`` (images; null
if unknown) and, where per-image results exist, ``right`` (bits, packed, little-endian). The rest
(name, shifts, records of settings, derived settings, metrics, image sets, source, licence,
citation) is JSON in the file's metadata under the key ``shiftbed``.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError, brief
from shiftbed.places import local
from shiftbed.reading.files import MOST_ROWS, read_file, read_frame, regular, whole_parquet
from shiftbed.reading.shapes import whole
from shiftbed.reading.trial import try_table
from shiftbed.records import Bits, ImageResults, Setting, Shift, older_setting
from shiftbed.testbed.record import Testbed

FORMAT = 1
_CELL = ("setting", "value", "n", "right")
_MODEL = {"model": pl.String, "kind": pl.String, "in_fit_set": pl.Boolean, "parent": pl.String}


def write_testbed(testbed: Testbed, path: str | Path) -> None:
    """Write a testbed, atomically: the file is either the old one or the whole new one."""
    base = [i for i, s in enumerate(testbed.settings) if s not in testbed.derived]
    rows, columns = np.nonzero(np.isfinite(testbed.value[:, base]))
    columns = np.asarray(base)[columns]
    n = testbed.n[rows, columns]
    frame = testbed.models[rows].with_columns(
        pl.Series("setting", [testbed.settings[c] for c in columns], dtype=pl.String),
        pl.Series("value", testbed.value[rows, columns]),
        pl.Series("n", n, dtype=pl.Int32).replace(0, None),
    )
    if testbed.results:
        frame = frame.with_columns(pl.Series("right", _pack(testbed, rows, columns), pl.Binary))
    meta = {
        "format": FORMAT,
        "name": testbed.name,
        "title": testbed.title,
        "line": testbed.line,
        "source": testbed.source,
        "licence": testbed.licence,
        "citation": testbed.citation,
        "notes": list(testbed.notes),
        "settings": [testbed.settings[i] for i in base],
        "derived": {name: list(parts) for name, parts in testbed.derived.items()},
        "metrics": dict(testbed.metrics),
        "records": {id: one.to_json() for id, one in testbed.records.items()},
        "shifts": [asdict(shift) for shift in testbed.shifts],
        "images": {s: [r.images, r.bits.columns] for s, r in testbed.results.items()},
    }
    with write_atomically(path) as file:
        frame.write_parquet(
            file, compression="zstd", compression_level=19, metadata={"shiftbed": json.dumps(meta)}
        )


def _pack(testbed: Testbed, rows: Any, columns: Any) -> list[bytes | None]:
    packed: list[bytes | None] = []
    for row, column in zip(rows, columns, strict=True):
        one = testbed.results.get(testbed.settings[column])
        there = one is not None and one.known[row]
        packed.append(one.bits.packed[row].tobytes() if one is not None and there else None)
    return packed


def is_testbed(path: str | Path) -> bool:
    """Whether a file is a testbed file, by its contents; one that cannot be read is refused."""
    path = local(path)
    try:
        with regular(path).open("rb") as file:
            if file.read(4) != b"PAR1":
                return False
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try_table(read_file(path), str(path), path)
    with whole_parquet(str(path)):
        return "shiftbed" in pl.read_parquet_metadata(path)


def read_testbed(path: str | Path) -> Testbed:
    """Read a testbed file, refusing anything that is not one."""
    path = Path(path)
    data = read_file(path)
    where = f"{path}: cannot be read as a testbed file"
    try_table(data, where, path)
    with whole_parquet(where):
        text = pl.read_parquet_metadata(io.BytesIO(data)).get("shiftbed")
    frame = read_frame(data, where)
    if text is None:
        raise InputError(f"{path}: not a testbed file; make one with 'shiftbed import'")
    try:
        return _assemble(frame, json.loads(text))
    except (
        *(KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError),
        *(OverflowError, MemoryError, pl.exceptions.PolarsError),
    ) as error:
        raise InputError(f"{path}: damaged testbed file: {brief(error)}") from None


def _assemble(frame: pl.DataFrame, meta: Mapping[str, Any]) -> Testbed:
    if meta["format"] != FORMAT:
        raise InputError(f"format {meta['format']!r} is not known, expected {FORMAT}")
    for name, kind in (*_MODEL.items(), ("setting", pl.String), ("value", pl.Float64)):
        if frame.schema.get(name) != kind:
            raise InputError(f"column {name!r} must be {kind}, is {frame.schema.get(name)}")
    info = [c for c in frame.columns if c not in _CELL]
    models = frame.select(info).unique("model", keep="first", maintain_order=True)
    settings = [str(s) for s in meta["settings"]]
    rows = frame["model"].cast(pl.Enum(models["model"])).to_physical().to_numpy()
    columns = frame["setting"].cast(pl.Enum(settings)).to_physical().to_numpy()
    cell = rows.astype(np.int64) * len(settings) + columns
    if len(cell) and np.bincount(cell).max() > 1:
        raise InputError("a model has two values in one setting")
    value = np.full((len(models), len(settings)), np.nan)
    value[rows, columns] = frame["value"].to_numpy()
    n = np.zeros(value.shape, dtype=np.int64)
    n[rows, columns] = frame["n"].fill_null(0).to_numpy()
    derived = {str(k): tuple(map(str, v)) for k, v in meta["derived"].items()}
    names, value, n = _derive(settings, value, n, derived)
    testbed = Testbed(
        name=str(meta["name"]),
        models=models,
        settings=names,
        value=value,
        n=n,
        shifts=tuple(Shift.from_json(one) for one in meta["shifts"]),
        derived=derived,
        metrics={str(k): str(v) for k, v in meta["metrics"].items()},
        records=_records(meta),
        results=_unpack(frame, meta["images"], len(models), rows),
        notes=tuple(map(str, meta.get("notes", ()))),
        **{k: str(meta[k]) for k in ("title", "line", "source", "licence", "citation")},
    )
    for shift in testbed.shifts:
        testbed.shift(shift)
    return testbed


def _records(meta: Mapping[str, Any]) -> dict[str, Setting]:
    """What the settings are; of a file made before that was kept, which are perturbed."""
    if "records" in meta:
        return {str(id): Setting.from_json(one) for id, one in meta["records"].items()}
    kinds = {one["target"]: str(one["kind"]) for one in meta["shifts"]}
    found = {str(id): older_setting(str(id), kinds.get(id, "")) for id in meta["settings"]}
    return {id: one for id, one in found.items() if one.perturbation is not None and one.id == id}


def _unpack(
    frame: pl.DataFrame, images: Mapping[str, Any], models: int, rows: NDArray[Any]
) -> dict[str, ImageResults]:
    results = {}
    for setting, (fingerprint, count) in images.items():
        if not whole(count) or not 0 <= count <= MOST_ROWS:
            raise InputError(f"results in {setting!r} are of {count!r} images")
        right = Bits.nothing(models, int(count))
        known = np.zeros(models, dtype=bool)
        here = (frame["setting"] == setting).to_numpy()
        for row, bits in zip(rows[here], frame["right"].filter(pl.Series(here)), strict=True):
            if bits is not None:
                if len(bits) != (int(count) + 7) // 8:
                    raise InputError(f"results in {setting!r} are not of {count} images")
                unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), count=int(count))
                right.put(row, unpacked.view(np.bool_))
                known[row] = True
        results[setting] = ImageResults(images=str(fingerprint), bits=right, known=known)
    return results


def _derive(
    settings: list[str],
    value: NDArray[np.float64],
    n: NDArray[np.int64],
    derived: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.int64]]:
    """Append the derived settings: means of their parts, with the parts' smallest size.

    The parts are made from the same images, so the mean's variance is at most p(1−p)/n with n
    the number of images: the interval from it is conservative. A missing part leaves it missing.
    """
    at = {name: i for i, name in enumerate(settings)}
    values, sizes = list(value.T), list(n.T)
    for name, parts in derived.items():
        which = [at[part] for part in parts]
        at[name] = len(values)
        values.append(np.mean([values[i] for i in which], axis=0))
        sizes.append(np.min([sizes[i] for i in which], axis=0))
    return (*settings, *derived), np.column_stack(values), np.column_stack(sizes)
