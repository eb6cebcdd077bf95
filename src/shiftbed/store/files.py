"""Where a store's files live: a local directory, memory, or an object store (``object_store.py``).

A seam of few methods. Local files are written to a temporary name, synced and renamed.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from shiftbed.atomic import abandoned, sweep, write_atomically
from shiftbed.errors import InputError
from shiftbed.places import path_of, url_of
from shiftbed.store.sealing import FileMissing, FileUnreadable, digest


class Files(Protocol):
    """Byte files by relative name, with '/' between folders."""

    by_request: ClassVar[bool]
    """Whether each look at them is a request, which takes time."""
    root: str

    def read(self, name: str) -> bytes: ...

    def read_if_there(self, name: str) -> bytes | None: ...

    def read_many(self, names: list[str]) -> list[bytes]:
        """Several files, side by side where each takes a while to arrive."""
        ...

    def write(self, name: str, data: bytes) -> None: ...

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        """Write a file unless it is there; whether it was written. One of two writers wins.

        Not ``lasting``: it need not outlive the machine, so that nobody waits for a disk.
        """
        ...

    def below(self, folder: str) -> list[str]:
        """All files below a folder, sorted; temporary files are not among them."""
        ...

    def exists(self, name: str) -> bool: ...

    def remove(self, name: str) -> None: ...

    def remove_many(self, names: list[str]) -> None:
        """Several files, in the order given, with few requests where there can be."""
        ...

    def prune(self, folder: str) -> None:
        """Remove folders below one that nothing is in, where there are such."""
        ...

    def move(self, name: str, to: str) -> None: ...

    def age(self, name: str) -> float:
        """Seconds since a file was written; 0 if that cannot be known."""
        ...

    def version(self, name: str) -> str:
        """What is another once a file was written to, where that is known without a request."""
        ...

    def versions(self, name: str) -> dict[str, str]:
        """Of the file of that name, or of all below the folder: what is another once it changed.

        Empty where the other side does not say.
        """
        ...

    def lock(self, *, alone: bool) -> AbstractContextManager[None]:
        """Held by those who write; ``alone`` by who cleans up, refused while anybody writes."""
        ...

    def leftovers(self, *, old: float = 0.0) -> list[str]:
        """Temporary files of killed writers; of other machines' those of so many seconds."""
        ...

    def remembering(self) -> AbstractContextManager[None]:
        """Where requests cost time, what is read or listed meanwhile is asked for once.

        For a few steps that look at the same files: what others write meanwhile is not seen.
        """
        ...


class LocalFiles:
    """A directory of this machine."""

    by_request: ClassVar[bool] = False

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self._root = Path(root)

    def read(self, name: str) -> bytes:
        path = self._root / name
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise OSError("no regular file is there")
            return path.read_bytes()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            kind = FileMissing if missing else FileUnreadable
            raise kind(f"{path}: cannot be read: {error.strerror or error}") from error

    def read_if_there(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_many(self, names: list[str]) -> list[bytes]:
        return [self.read(name) for name in names]

    def write(self, name: str, data: bytes) -> None:
        sweep(self._root)  # which is written to once only, when it is made
        with write_atomically(self._root / name) as file:
            file.write(data)

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        try:
            with write_atomically(self._root / name, new=True, lasting=lasting) as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def below(self, folder: str) -> list[str]:
        found = []
        for directory, _, names in os.walk(self._root / folder, onerror=_unlisted):
            inside = Path(directory).relative_to(self._root).as_posix()
            found += [f"{inside}/{name}" for name in names if not name.startswith(".")]
        return sorted(found)

    def exists(self, name: str) -> bool:
        return os.path.lexists(self._root / name)  # a link that leads nowhere is no absence

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def remove_many(self, names: list[str]) -> None:
        for name in names:
            self.remove(name)

    def prune(self, folder: str) -> None:
        for directory, _, names in os.walk(self._root / folder, topdown=False):
            if not names:
                with suppress(OSError):  # something is in it
                    os.rmdir(directory)

    def move(self, name: str, to: str) -> None:
        target = self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._root / name, target)

    def age(self, name: str) -> float:
        try:
            return max(time.time() - (self._root / name).stat().st_mtime, 0.0)
        except OSError:
            return 0.0

    def version(self, name: str) -> str:
        return str((self._root / name).stat().st_ctime_ns)

    def versions(self, name: str) -> dict[str, str]:
        found = {}
        for one in [name, *self.below(name)]:
            with suppress(OSError):  # not there, or being replaced just now
                about = (self._root / one).stat()
                if stat.S_ISREG(about.st_mode):
                    found[one] = f"{about.st_ino} {about.st_mtime_ns} {about.st_size}"
        return found

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
            sweep(self._root)
            yield
        finally:
            os.close(handle)

    def remembering(self) -> AbstractContextManager[None]:
        return nullcontext()

    def leftovers(self, *, old: float = 0.0) -> list[str]:
        folders = {path.parent for path in self._root.rglob(".*.part")}
        found = [path for folder in folders for path in abandoned(folder, old)]
        return sorted(path.relative_to(self._root).as_posix() for path in found)


def _unlisted(error: OSError) -> None:
    """What is in a folder that cannot be listed is unknown, not absent; one that is gone is."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        where = f"{error.filename}: cannot be listed: {error.strerror or error}"
        raise FileUnreadable(where) from error


class MemoryFiles:
    """Files that are in memory only."""

    by_request: ClassVar[bool] = False

    def __init__(self) -> None:
        self.root = "memory"
        self._data: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        if name not in self._data:
            raise FileNotFoundError(name)
        return self._data[name]

    def read_if_there(self, name: str) -> bytes | None:
        return self._data.get(name)

    def read_many(self, names: list[str]) -> list[bytes]:
        return [self.read(name) for name in names]

    def write(self, name: str, data: bytes) -> None:
        self._data[name] = data

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        return self._data.setdefault(name, data) is data

    def below(self, folder: str) -> list[str]:
        return sorted(name for name in self._data.copy() if name.startswith(f"{folder}/"))

    def exists(self, name: str) -> bool:
        return name in self._data

    def remove(self, name: str) -> None:
        self._data.pop(name, None)

    def remove_many(self, names: list[str]) -> None:
        for name in names:
            self.remove(name)

    def prune(self, folder: str) -> None:
        """There are no folders."""

    def move(self, name: str, to: str) -> None:
        self._data[to] = self._data.pop(name)

    def age(self, name: str) -> float:
        return 0.0

    def version(self, name: str) -> str:
        return ""

    def versions(self, name: str) -> dict[str, str]:
        names = [name, *self.below(name)]
        return {one: digest(self._data[one]) for one in names if one in self._data}

    def lock(self, *, alone: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def remembering(self) -> AbstractContextManager[None]:
        return nullcontext()

    def leftovers(self, *, old: float = 0.0) -> list[str]:
        return []


def is_store(place: str | Path) -> bool:
    """Whether that is a store rather than a file: a directory, or a URL with a store in it."""
    url = url_of(place)
    return path_of(place).is_dir() if url is None else open_files(url).exists("store.json")


def open_files(path: str | Path | None, **options: Any) -> Files:
    """A directory for a plain path, an fsspec filesystem for a URL, memory for nothing."""
    if path is None:
        return MemoryFiles()
    url = url_of(path)
    if url is None:
        return LocalFiles(path_of(path))
    from shiftbed.store.object_store import RemoteFiles

    return RemoteFiles(url, **options)
