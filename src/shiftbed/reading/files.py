"""Single files of others, read whole: regular ones only, bounded, and refused in one line.

Whatever a file is called, a pipe or a device in its place would be waited for without end, and a
damaged one must not end the process: every reader of JSON, text and Parquet comes through here.
"""

import io
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.errors import InputError, brief
from shiftbed.places import local

LIMIT = 4 * 2**30
"""No file that is read whole is larger than this."""
MOST_ROWS = 200_000_000
"""No table has more rows; a damaged one may promise any number."""
MOST_COLUMNS = 100_000
_quiet = threading.Lock()


def regular(path: str | Path) -> Path:
    """The path, refused unless it is a file that can be read to its end.

    A pipe is taken only where the shell has made it (``<(command)``, ``/dev/stdin``).
    """
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not the name of a file")
    there = local(path)
    try:
        mode = there.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: a directory, not a file")
    piped = stat.S_ISFIFO(mode) and str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/"))
    if not stat.S_ISREG(mode) and not piped:
        raise InputError(f"{path}: not a file but a pipe or a device")
    return there


def read_file(path: str | Path, most: int | None = None) -> bytes:
    """All of a regular file, refused if it is larger than ``most`` bytes (``LIMIT``)."""
    most = LIMIT if most is None else most
    try:
        with regular(path).open("rb") as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
            while len(data) <= most and (more := file.read(min(2**20, most + 1 - len(data)))):
                data += more  # a pipe, or a file that grows
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > most:
        size = f"{most >> 20} MiB" if most < 2**30 else f"{most >> 30} GiB"
        raise InputError(f"{path}: over {size}, too large for what it should be")
    return data


def read_text(path: str | Path) -> str:
    """A text in UTF-8, with or without a byte-order mark."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text") from None


def read_json(path: str | Path) -> Any:
    """What a JSON file holds."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str | bytes, where: str) -> Any:
    """What a JSON text says; ``where`` is for the message.

    >>> parse_json('{"a": ', "a.json")
    Traceback (most recent call last):
    shiftbed.errors.InputError: a.json: not valid JSON: Expecting value: line 1 column 7 (char 6)
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{where}: not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON: {brief(error)}") from None


def read_frame(data: bytes, where: str, columns: list[str] | None = None) -> pl.DataFrame:
    """The table of a Parquet file of somebody else's; ``columns``: those of them that it has."""
    with whole_parquet(where):
        there = pl.read_parquet_schema(io.BytesIO(data))
        if len(there) > MOST_COLUMNS:
            raise InputError(f"{where}: {len(there)} columns, more than {MOST_COLUMNS}")
        rows = pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item()
        if rows > MOST_ROWS:
            raise InputError(f"{where}: {rows} rows, more than {MOST_ROWS}")
        some = None if columns is None else [one for one in columns if one in there]
        return pl.read_parquet(io.BytesIO(data), columns=some)


@contextmanager
def whole_parquet(where: str) -> Iterator[None]:
    """Whatever the reader of Parquet makes of a damaged file is one line, its panics too."""
    try:
        with _without_panics():
            yield
    except InputError:
        raise
    except (
        *(OSError, ValueError, MemoryError, OverflowError),
        *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
    ) as error:
        raise InputError(f"{where}: not a readable Parquet file: {brief(error)}") from None


@contextmanager
def _without_panics() -> Iterator[None]:
    """Rust prints a panic to the process's stderr before Python hears of it: not meanwhile."""
    with _quiet:
        try:
            sys.stderr.flush()
            kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        except (OSError, ValueError, AttributeError):
            kept = null = -1
        try:
            if null >= 0:
                os.dup2(null, 2)
            yield
        finally:
            if null >= 0:
                os.dup2(kept, 2)
                os.close(kept)
                os.close(null)
