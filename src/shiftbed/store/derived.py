"""Numbers derived from predictions, kept between commands: what is known is not read again.

    CACHE/derived/KEY/SHA256.parquet    a row per cell; several tables, each named by its own bytes

They are a cache of this user's, not a part of the store: reading a store never writes to it. KEY is
of the test set's content, of what is computed and of the code that computes it. A cell is known by
the checksums that its record has of its predictions and, on a disk, by when these files were last
changed: predictions that were replaced, moved or damaged by a writer are read again, and compared
with their checksums as ever. What a disk loses without a trace is for ``store verify`` to find.
Tables that are damaged are not used, and the longest unused go beyond ``ROOM``.
"""

import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.atomic import temporary_name
from shiftbed.errors import InputError
from shiftbed.places import cache_folder
from shiftbed.store.answers import blocks, right_together
from shiftbed.store.sealing import Damaged, digest
from shiftbed.store.store import PredictionStore
from shiftbed.store.test_sets import StoredTestSet

ROOM = 1 << 30
"""Bytes that are kept at most."""
FEW = 8
"""Tables of one kind that are put together."""
OFTEN = 60.0
"""Seconds between two looks at how much is kept."""
_PACKAGE = Path(__file__).parents[1]
_looked = [0.0]
Bits = NDArray[np.bool_]


class Derived:
    """What is known of the cells of one test set; ``code`` are the files that compute it."""

    def __init__(
        self, store: PredictionStore, test_set: StoredTestSet, kind: str, *code: str
    ) -> None:
        self.store, self.setting = store, test_set.setting
        self.folder: Path | None = None
        if test_set.checksum is not None and not store.in_memory:
            content = f"{test_set.checksum} {test_set.label_policy}"
            key = digest(f"{kind} {_code(*code)} {content}".encode())[:32]
            self.folder = cache_folder() / "derived" / key

    def keys(self, models: Iterable[str]) -> dict[str, str]:
        """By model, what its cell is known by; not of cells without checksums, or whose files lack.

        A cell that is put together or packed is another one: its files are.
        """
        if self.folder is None:
            return {}
        found = {}
        version = lru_cache(maxsize=None)(self.store.files.version)
        for model in models:
            said = hashlib.sha256()
            try:
                for piece in self.store.pieces(model, self.setting):
                    if piece.checksum is None:
                        break
                    place = f"{piece.part} {piece.checksum} {piece.at} {version(piece.file)}"
                    said.update(place.encode())
                else:
                    found[model] = said.hexdigest()
            except (OSError, InputError):  # whoever reads it says what is wrong
                continue
        return found

    def unchanged(self, before: Mapping[str, str], models: Iterable[str]) -> dict[str, str]:
        """Those of the keys that still hold, now that the cells have been read."""
        known = {model: before[model] for model in models if model in before}
        now = self.keys(known)
        return {model: key for model, key in known.items() if now.get(model) == key}

    def tables(self) -> dict[Path, pl.DataFrame]:
        """What is kept, the earliest first; a table that is damaged is removed."""
        found: dict[Path, pl.DataFrame] = {}
        if self.folder is None:
            return found
        with suppress(OSError):
            files = [one for one in self.folder.iterdir() if one.suffix == ".parquet"]
            for file in sorted(files, key=lambda one: (one.stat().st_mtime_ns, one.name)):
                data = file.read_bytes()
                if digest(data) != file.stem:
                    file.unlink(missing_ok=True)
                    continue
                found[file] = pl.read_parquet(io.BytesIO(data))
            os.utime(self.folder)
        return found

    def add(self, table: pl.DataFrame, instead_of: Iterable[Path] = ()) -> None:
        """Keep a table, and remove those that are in it; where nothing can be kept, nothing is."""
        if self.folder is None or not len(table):
            return
        buffer = io.BytesIO()
        table.write_parquet(buffer, compression="lz4", statistics=False)
        data = buffer.getvalue()
        target = self.folder / f"{digest(data)}.parquet"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            whole = self.folder / temporary_name(target.name)
            try:
                whole.write_bytes(data)
                os.replace(whole, target)
            finally:
                whole.unlink(missing_ok=True)
            for file in instead_of:
                if file != target:
                    file.unlink(missing_ok=True)
            _make_room(self.folder.parent)

    def add_rows(self, table: pl.DataFrame, there: Mapping[Path, pl.DataFrame]) -> None:
        """Keep further rows; with those of earlier tables (``there``) once these are many."""
        if len(there) < FEW:
            return self.add(table)
        rows = [one for one in there.values() if one.schema == table.schema]
        same = [name for name in ("cell", "name") if name in table.columns]
        whole = pl.concat([*rows, table]).unique(same, keep="last", maintain_order=True)
        return self.add(whole, there)


@lru_cache(maxsize=64)
def _code(*files: str) -> str:
    """What computes: these files of the package, how predictions are read and judged, libraries."""
    names = [_PACKAGE / one for one in files]
    for folder in ("store", "labels"):
        names += sorted((_PACKAGE / folder).glob("*.py"))
    said = hashlib.sha256(f"{np.__version__} {pl.__version__}".encode())
    for name in names:
        said.update(name.read_bytes())
    return said.hexdigest()


def _make_room(shelf: Path) -> None:
    """Remove what was used longest ago, where there is too much; looked at now and then."""
    if time.monotonic() - _looked[0] < OFTEN and _looked[0]:
        return
    _looked[0] = time.monotonic()
    left = ROOM
    for folder in sorted(shelf.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True):
        left -= sum(file.stat().st_size for file in folder.iterdir())
        if left < 0:
            shutil.rmtree(folder, ignore_errors=True)


# --- values by name, such as metrics ---------------------------------------------------------


class Facts:
    """Values of cells by name, as JSON: metrics, bins of a diagram."""

    def __init__(self, store: PredictionStore, test_set: StoredTestSet, *code: str) -> None:
        self._derived = Derived(store, test_set, "facts", *code)
        self._there = self._derived.tables()
        self._keys: dict[str, str] = {}

    def of(self, models: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """By model and name, what is known; to be asked before anything is read."""
        keys = self._keys = self._derived.keys(models)
        asked = pl.col("cell").is_in(list(keys.values())) & pl.col("name").is_in(list(names))
        found: dict[str, dict[str, Any]] = {}
        for table in self._there.values():
            for cell, name, value in table.filter(asked).iter_rows():
                found.setdefault(cell, {})[name] = json.loads(value)
        return {model: found[key] for model, key in keys.items() if key in found}

    def add(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep values by model and name."""
        keys = self._derived.unchanged(self._keys, facts)
        rows = [
            (keys[model], name, json.dumps(value))
            for model, own in facts.items()
            if model in keys
            for name, value in own.items()
        ]
        columns = dict.fromkeys(("cell", "name", "value"), pl.String)
        table = pl.DataFrame(rows, schema=columns, orient="row")
        self._derived.add_rows(table, self._there)


# --- who was right ---------------------------------------------------------------------------

Right = tuple[Bits, Bits | None] | Damaged
"""Which examples a model got right, and which it read (None: all); or what is wrong with them."""


def right_answers(
    store: PredictionStore, models: Iterable[str], test_set: StoredTestSet
) -> Iterator[tuple[str, Right]]:
    """Who got which examples of a test set right, model by model; unlabelled ones nobody did."""
    names, n = list(models), len(test_set)
    derived = Derived(store, test_set, "right")
    tables = derived.tables()
    keys = derived.keys(names)
    asked = pl.col("cell").is_in(list(keys.values()))
    known: dict[str, tuple[bytes, bytes | None]] = {}
    for table in tables.values():
        known |= {cell: (right, read) for cell, right, read in table.filter(asked).iter_rows()}
    for model, key in keys.items():
        if key in known:
            right, read = known[key]
            yield model, (_unpacked(right, n), None if read is None else _unpacked(read, n))
    fresh: dict[str, tuple[bytes, bytes | None]] = {}
    left = [one for one in names if keys.get(one) not in known]
    for model, found in _judged(store, left, test_set):
        if not isinstance(found, Damaged):
            right_bits, read_bits = found
            packed = None if read_bits is None else np.packbits(read_bits).tobytes()
            fresh[model] = np.packbits(right_bits).tobytes(), packed
        yield model, found
    rows = [(key, *fresh[model]) for model, key in derived.unchanged(keys, fresh).items()]
    columns = {"cell": pl.String, "right": pl.Binary, "read": pl.Binary}
    derived.add_rows(pl.DataFrame(rows, schema=columns, orient="row"), tables)


def _unpacked(bits: bytes, n: int) -> Bits:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=n).view(np.bool_)


def _judged(
    store: PredictionStore, models: list[str], test_set: StoredTestSet
) -> Iterator[tuple[str, Right]]:
    """The same, from the predictions."""
    n = len(test_set)
    for some, whole in blocks(store, models, test_set, []):
        together = None if whole is None else right_together(whole, test_set)
        if together is not None:
            yield from ((model, (own, None)) for model, own in zip(some, together, strict=True))
            continue
        for i, model in enumerate(some):
            try:
                frame = (
                    store.read_all(model, test_set, ["class_1"])
                    if whole is None
                    else whole.slice(i * n, n)
                )
            except Damaged as error:
                yield model, error
                continue
            best = frame["class_1"]
            read = best.is_not_null().to_numpy() if best.null_count() else None
            right = test_set.judge(best.fill_null(0).to_numpy()).right
            yield model, (right if read is None else right & read, read)
