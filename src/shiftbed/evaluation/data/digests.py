"""What the fingerprint of a test set is made of: a SHA-256 digest per image.

Digests of files can be kept in a side cache. A file is recognised by path, size, inode and the
times of its last change; one that changed in the last seconds is not kept, as a second change
could have the same time. A wrong cache is worse than none, so everything about it is optional.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

NOTHING = bytes(32)
"""The digest of an image that is not there."""
_SETTLED = 3 * 10**9
"""Nanoseconds after which a file counts as unchanged by whoever just wrote it."""
_TABLE = """CREATE TABLE IF NOT EXISTS digests (
  file TEXT, part TEXT, state TEXT, digests BLOB, PRIMARY KEY (file, part)) WITHOUT ROWID"""

Part = tuple[Path, str]
"""A file, and which images in it ("" for a file that is one image)."""


def fingerprint_of(
    examples: Sequence[str],
    labels: Iterable[Sequence[int]],
    groups: NDArray[np.generic] | None,
    digests: NDArray[np.uint8],
) -> str:
    """Identity of a test set: SHA-256 of ids, labels, groups and contents, in order.

    Neither where the files are nor how they are packed matters: the same encoded images under the
    same ids have the same fingerprint in a folder and in a tar.
    """
    whole = hashlib.sha256(f"test set of {len(examples)}\n".encode())
    for at, (example, own) in enumerate(zip(examples, labels, strict=True)):
        group = "" if groups is None else str(groups[at])
        for text in (example, " ".join(map(str, own)), group):
            coded = text.encode()
            whole.update(len(coded).to_bytes(8, "little") + coded)
        whole.update(digests[at].tobytes())
    return f"sha256:{whole.hexdigest()}"


def hash_file(path: Path) -> bytes:
    """Digest of a file's bytes, ``NOTHING`` if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return NOTHING


def cached(
    parts: Sequence[Part], compute: Callable[[Part], bytes], cache: "DigestCache | None"
) -> list[bytes]:
    """The digests of each part, computed on several threads where the cache has none."""
    known = cache.read(parts) if cache else [None] * len(parts)
    todo = [at for at, one in enumerate(known) if one is None]
    states = {at: state(parts[at][0]) for at in todo} if cache else {}
    with ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 1)) as pool:
        new = dict(zip(todo, pool.map(compute, (parts[at] for at in todo)), strict=True))
    if cache:
        cache.write((parts[at], states[at], new[at]) for at in todo)
    return [new[at] if one is None else one for at, one in enumerate(known)]


def state(path: Path) -> str:
    """What changes when a file changes; empty if it is missing or was changed just now."""
    try:
        stat = path.stat()
    except OSError:
        return ""
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < _SETTLED:
        return ""
    return f"{stat.st_size} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns}"


class DigestCache:
    """Digests by file, in an SQLite file that several processes may use at once."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: cannot be used as a cache of digests: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def read(self, parts: Sequence[Part]) -> list[bytes | None]:
        """What is known of each part in its present state."""
        found: list[bytes | None] = []
        with closing(self._connect()) as connection:
            for path, part in parts:
                row = connection.execute(
                    "SELECT state, digests FROM digests WHERE file = ? AND part = ?",
                    (os.fsencode(path), part),
                ).fetchone()
                now = state(path) if row else ""
                found.append(bytes(row[1]) if row and now and row[0] == now else None)
        return found

    def write(self, items: Iterable[tuple[Part, str, bytes]]) -> None:
        """Keep digests that were computed while their file was in a settled state."""
        rows = [
            (os.fsencode(path), part, before, digests)
            for (path, part), before, digests in items
            if before and state(path) == before
        ]
        with closing(self._connect()) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)", rows)
