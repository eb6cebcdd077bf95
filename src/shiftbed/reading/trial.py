"""Parquet of others is read in a child process first: a damaged file may end whoever reads it.

Native readers abort on some files, which nothing in Python catches. What is not a store's own file
with its checksum goes through here: the child reads all of it and says what is wrong with it; if it
dies, the file is refused in one line. Files that were read whole are remembered by their content,
below ``trials`` in the folder for caches.

A helper process, started when it is first needed, imports the readers and forks for every file:
half a second for the first file of a command, hundredths of one for each further.
"""

import atexit
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.errors import InputError
from shiftbed.places import cache_folder
from shiftbed.reading.files import read_frame, whole_parquet

_HELPER = "from shiftbed.reading.trial import serve; serve()"
_PACKAGE = Path(__file__).parents[1]
_STEP = 1 << 17
_lock = threading.Lock()
_helpers: dict[int, subprocess.Popen[bytes]] = {}
"""By the process that has started it: a fork has none of its own."""


def try_table(data: bytes, where: str, path: str | Path = "") -> None:
    """Refuse a table that cannot be read, or not survived; not one of the package's own files."""
    if not Path(path).absolute().is_relative_to(_PACKAGE):
        _try("polars", hashlib.sha256(data).hexdigest(), "table", where, data=data)


def try_rows(path: Path, where: str) -> None:
    """The same of a file of any size, whose rows are read in batches."""
    _try("polars", _digest(path), "rows", where, path=path)


def try_images(path: Path, where: str) -> None:
    """The same of a file with images; ones that are merely damaged are the caller's to count."""
    _try("pyarrow", _digest(path), "images", where, path=path)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _try(
    library: str, digest: str, how: str, where: str, *, data: bytes = b"", path: Path = Path()
) -> None:
    known = cache_folder() / "trials" / f"{digest}-{how}-{library}-{version(library)}"
    if known.exists():
        return
    asked = {"how": how, "where": where, "path": str(path.absolute()), "size": len(data)}
    answer = _ask(json.dumps(asked).encode() + b"\n" + data)
    if answer is None:  # no child can be had here
        return
    ended, said = answer
    if ended:
        why = signal.Signals(ended).name
        raise InputError(f"{where}: not a readable Parquet file: its reader ends with {why}")
    if said is not None:
        raise InputError(said)
    with suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


def _ask(request: bytes) -> tuple[int, str | None] | None:
    """How a child ended (a signal, or 0) that did what was asked for, and what it said."""
    with _lock:
        helper = _helpers.get(os.getpid())
        if helper is not None and helper.poll() is not None:
            stop()
        helper = _helpers.get(os.getpid()) or _helpers.setdefault(os.getpid(), _start())
        assert helper.stdin is not None
        assert helper.stdout is not None
        try:
            helper.stdin.write(request)
            helper.stdin.flush()
            ended, said = json.loads(helper.stdout.readline())
        except (OSError, ValueError):
            return None
        return int(ended), said


def _start() -> subprocess.Popen[bytes]:
    """With this process's modules, and none of the folder that it happens to be in (-P)."""
    helper = subprocess.Popen(
        [sys.executable, "-P", "-c", _HELPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        start_new_session=True,
    )
    atexit.register(stop)
    return helper


def stop() -> None:
    """End this process's helper."""
    helper = _helpers.pop(os.getpid(), None)
    if helper is not None:
        with suppress(OSError):
            helper.communicate()


# --- in the helper ---------------------------------------------------------------------------


def serve() -> None:
    """Answer until whoever asks is gone: a child for every file, [signal, what it said]."""
    with suppress(ImportError):
        import pyarrow.parquet  # noqa: F401
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        data = sys.stdin.buffer.read(asked["size"])
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(write, json.dumps(_said(asked, data)).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(pid, 0)
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps([ended, json.loads(said or b"null")]), flush=True)


def _said(asked: dict[str, Any], data: bytes) -> str | None:
    """What is wrong with a file, None if it can be read."""
    where, path = str(asked["where"]), Path(asked["path"])
    readers: dict[str, Callable[[], None]] = {
        "table": lambda: _table(data, where),
        "rows": lambda: _rows(path, where),
        "images": lambda: _images(path),
    }
    try:
        readers[asked["how"]]()
    except InputError as error:
        return str(error)[:2000]
    return None


def _table(data: bytes, where: str) -> None:
    with whole_parquet(where):
        pl.read_parquet_metadata(io.BytesIO(data))
    read_frame(data, where)


def _rows(path: Path, where: str) -> None:
    with whole_parquet(where):
        lazy = pl.scan_parquet(path)
        for start in range(0, lazy.select(pl.len()).collect().item(), _STEP):
            lazy.slice(start, _STEP).collect()


def _images(path: Path) -> None:
    import pyarrow.parquet as pq

    with suppress(Exception), pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            with suppress(Exception):
                file.read_row_group(group, use_threads=False)
