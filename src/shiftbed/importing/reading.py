"""Files to tables: which kind a file is, and its strings."""

import stat
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from shiftbed.errors import InputError
from shiftbed.importing.delimited import read_delimited
from shiftbed.importing.jsons import read_json, read_json_lines
from shiftbed.importing.table import Table, empty, shown, tabulate

LIMIT = 4 * 2**30
"""No file of results is larger than this."""
_DELIMITED = (".csv", ".tsv", ".txt", ".tab")
_JSON_LINES = (".jsonl", ".ndjson")


def read_bytes(path: str | Path) -> bytes:
    """The whole file, refused if it is missing, no file at all, empty or absurdly large."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not the name of a file")
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: a directory, not a file")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise InputError(f"{path}: not a file")
        with Path(path).open("rb") as file:
            data = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > LIMIT:
        raise InputError(f"{path}: over {LIMIT // 2**30} GiB, too large for a file of results")
    if not data:
        raise empty(str(path))
    return data


def is_archive(data: bytes) -> bool:
    """Whether it is a zip file, as .npz files are."""
    return data.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def read_table(path: str, data: bytes) -> Table:
    """A table from Parquet, JSON, JSON Lines or delimited text."""
    suffix = Path(path).suffix.lower()
    if data.startswith(b"PAR1") or suffix == ".parquet":
        return _read_parquet(path, data)
    if data.startswith(b"\x1f\x8b"):
        raise InputError(f"{path}: compressed with gzip; unpack it first")
    text = decode(path, data)
    start = text.lstrip()[:1]
    if suffix in _JSON_LINES:
        return read_json_lines(path, text)
    if suffix == ".json" or (start in ("{", "[") and suffix not in _DELIMITED):
        return read_json(path, text)
    return read_delimited(path, text)


def decode(path: str, data: bytes) -> str:
    """Text of a file: UTF-8, or UTF-16 with a byte-order mark; every line end becomes \\n."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        coding = "utf-16"
    else:
        coding = "utf-8-sig"
        if b"\0" in data:
            line = _line(data, data.index(b"\0"))
            raise InputError(f"{path}, line {line}: a NUL byte; this is not a text file")
    try:
        text = data.decode(coding)
    except UnicodeDecodeError as error:
        if coding == "utf-16":
            raise InputError(f"{path}: not a text file (damaged UTF-16)") from None
        offset = len(data) - len(error.object) + error.start  # the codec may cut off the mark
        line, byte = _line(data, offset), data[offset]
        raise InputError(
            f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8; save the table as UTF-8 text"
        ) from None
    if "\0" in text:
        raise InputError(f"{path}: a NUL character; this is not a text file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line(data: bytes, offset: int) -> int:
    before = data[:offset].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return before.count(b"\n") + 1


def _read_parquet(path: str, data: bytes) -> Table:
    try:
        metadata = pl.read_parquet_metadata(BytesIO(data))
        frame = pl.read_parquet(BytesIO(data))
    except (OSError, ValueError, MemoryError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {_brief(error)}") from None
    except pl.exceptions.PanicException as error:
        raise InputError(f"{path}: damaged Parquet file: {_brief(error)}") from None
    if "shiftbed" in metadata:
        raise InputError(f"{path}: already a testbed, there is nothing to import")
    for name, kind in frame.schema.items():
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise InputError(f"{path}, column {shown(name)}: holds {kind}, not numbers or text")
    lines = np.arange(1, len(frame) + 1)
    return tabulate(path, frame.columns, frame.get_columns(), lines, word="row")


def _brief(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
