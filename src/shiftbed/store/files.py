"""Where a store's files live: a local directory, or anything fsspec can reach.

A seam of few methods. Local files are written to a temporary name, synced and renamed; an object
store's put is atomic by itself.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from shiftbed.atomic import abandoned, write_atomically
from shiftbed.errors import InputError


class Files(Protocol):
    """Byte files by relative name, with '/' between folders."""

    root: str

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None: ...

    def below(self, folder: str) -> list[str]:
        """All files below a folder, sorted; temporary files are not among them."""
        ...

    def exists(self, name: str) -> bool: ...

    def remove(self, name: str) -> None: ...

    def move(self, name: str, to: str) -> None: ...

    def age(self, name: str) -> float:
        """Seconds since a file was written; 0 if that cannot be known."""
        ...

    def lock(self, *, alone: bool) -> AbstractContextManager[None]:
        """Held by those who write; ``alone`` by who cleans up, refused while anybody writes."""
        ...


class LocalFiles:
    """A directory of this machine."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self._root = Path(root)

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        with write_atomically(self._root / name) as file:
            file.write(data)

    def below(self, folder: str) -> list[str]:
        found = []
        for directory, _, names in os.walk(self._root / folder):
            inside = Path(directory).relative_to(self._root).as_posix()
            found += [f"{inside}/{name}" for name in names if not name.startswith(".")]
        return sorted(found)

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def move(self, name: str, to: str) -> None:
        target = self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._root / name, target)

    def age(self, name: str) -> float:
        try:
            return max(time.time() - (self._root / name).stat().st_mtime, 0.0)
        except OSError:
            return 0.0

    @contextmanager
    def lock(self, *, alone: bool) -> Iterator[None]:
        """By the kernel, on a file ``.lock``: it ends with its process, however that ends."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:  # a store that can only be read, or a disk without locks
            yield
            return
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            except BlockingIOError:
                raise InputError(
                    f"{self.root} is being written to by another process; clean up when it is done"
                ) from None
            except OSError:
                pass
            yield
        finally:
            os.close(handle)

    def leftovers(self) -> list[str]:
        """Temporary files that a killed writer left behind."""
        folders = {path.parent for path in self._root.rglob(".*.part")}
        found = [path for folder in folders for path in abandoned(folder, old=0.0)]
        return sorted(path.relative_to(self._root).as_posix() for path in found)


class MemoryFiles:
    """Files that are in memory only."""

    def __init__(self) -> None:
        self.root = "memory"
        self._data: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        return self._data[name]

    def write(self, name: str, data: bytes) -> None:
        self._data[name] = data

    def below(self, folder: str) -> list[str]:
        return sorted(name for name in self._data.copy() if name.startswith(f"{folder}/"))

    def exists(self, name: str) -> bool:
        return name in self._data

    def remove(self, name: str) -> None:
        self._data.pop(name, None)

    def move(self, name: str, to: str) -> None:
        self._data[to] = self._data.pop(name)

    def age(self, name: str) -> float:
        return 0.0

    def lock(self, *, alone: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def leftovers(self) -> list[str]:
        return []


class RemoteFiles:
    """A folder of an fsspec filesystem, such as ``s3://bucket/store`` or ``memory://store``."""

    def __init__(self, root: str, **options: Any) -> None:
        try:
            import fsspec
        except ImportError:
            raise InputError(
                f"store {root} needs fsspec: pip install 'shiftbed[evaluate]'"
            ) from None
        self.root = root
        self._files, self._path = fsspec.core.url_to_fs(root, **options)

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes:
        return bytes(self._files.cat_file(self._at(name)))

    def write(self, name: str, data: bytes) -> None:
        target = self._at(name)
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(target, data)

    def below(self, folder: str) -> list[str]:
        if not self._files.exists(self._at(folder)):
            return []
        start = len(self._at(""))
        return sorted(str(name)[start:] for name in self._files.find(self._at(folder)))

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def remove(self, name: str) -> None:
        if self.exists(name):
            self._files.rm_file(self._at(name))

    def move(self, name: str, to: str) -> None:
        self.write(to, self.read(name))
        self.remove(name)

    def age(self, name: str) -> float:
        try:
            written = self._files.modified(self._at(name))
        except (NotImplementedError, OSError):
            return 0.0
        return max(time.time() - float(written.timestamp()), 0.0)

    def lock(self, *, alone: bool) -> AbstractContextManager[None]:
        """Object stores have no locks: only the age of a file protects it there."""
        return nullcontext()

    def leftovers(self) -> list[str]:
        return []


def open_files(path: str | Path | None, **options: Any) -> LocalFiles | RemoteFiles | MemoryFiles:
    """A directory for a plain path, an fsspec filesystem for a URL, memory for nothing."""
    if path is None:
        return MemoryFiles()
    if "://" in str(path):
        return RemoteFiles(str(path), **options)
    return LocalFiles(path)
