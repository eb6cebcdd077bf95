"""Where a store's files live: a local directory, or anything fsspec can reach.

A seam of few methods. Local files are written to a temporary name, synced and renamed; an object
store's put is atomic by itself, and tried again where the other side is busy or cut off.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shiftbed.atomic import abandoned, sweep, write_atomically
from shiftbed.errors import InputError, Unreachable, WriteError, brief
from shiftbed.places import file_system, path_of, patiently, url_of, version_of
from shiftbed.store.sealing import FileMissing, FileUnreadable, digest

T = TypeVar("T")


class Files(Protocol):
    """Byte files by relative name, with '/' between folders."""

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

    def remembering(self) -> AbstractContextManager[None]:
        """Where requests cost time, what is read or listed meanwhile is asked for once.

        For a few steps that look at the same files: what others write meanwhile is not seen.
        """
        ...


class LocalFiles:
    """A directory of this machine."""

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
        """Temporary files of killed writers; of other machines' those of so many seconds."""
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


class RemoteFiles:
    """A folder of an fsspec filesystem, such as ``s3://bucket/store`` or ``memory://store``."""

    def __init__(self, root: str, **options: Any) -> None:
        self.root = root.rstrip("/")
        self._files, self._path = file_system(root, **options)
        self._read: dict[str, bytes | None] | None = None
        """Files by name while they are remembered, None of those that are not there."""
        self._listed: dict[str, list[str]] = {}

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _do(self, work: Callable[[], T], name: str) -> T:
        """A request, with patience; what the other side refuses for good is the user's."""
        try:
            return patiently(work, f"{self.root}/{name}")
        except (PermissionError, NotImplementedError) as error:
            raise InputError(f"{self.root}/{name}: {brief(error)}") from None

    def read(self, name: str) -> bytes:
        return bytes(self._do(lambda: self._files.cat_file(self._at(name), **self._once), name))

    def read_if_there(self, name: str) -> bytes | None:
        if self._read is not None and name in self._read:
            return self._read[name]
        try:
            found = self.read(name)
        except FileNotFoundError:
            found = None
        if self._read is not None:
            self._read[name] = found
        return found

    @contextmanager
    def remembering(self) -> Iterator[None]:
        if self._read is not None:
            yield
            return
        self._read = {}
        try:
            yield
        finally:
            self._read = None
            self._listed.clear()

    def _changed(self, name: str) -> None:
        """What was remembered of a file, and of the folders that it is in, holds no longer."""
        if self._read is not None:
            self._read.pop(name, None)
        for folder in [one for one in self._listed if name.startswith(f"{one}/")]:
            self._listed.pop(folder, None)

    def read_many(self, names: list[str]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(names), 256):
            several = [self._at(name) for name in names[first : first + 256]]
            data = self._do(partial(self._files.cat, several, **self._once), names[first])
            found += [data] if isinstance(data, bytes) else [data[one] for one in several]
        return found

    def write(self, name: str, data: bytes) -> None:
        try:
            self._do(lambda: self._put(name, data), name)
        except Unreachable as error:
            raise WriteError(f"cannot write {error}") from None
        except FileNotFoundError as error:
            raise InputError(f"cannot write {self.root}/{name}: {brief(error)}") from None

    def _put(self, name: str, data: bytes, **how: Any) -> None:
        self._changed(name)
        if not self._has_buckets:
            self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(self._at(name), data, **how)

    @property
    def _once(self) -> dict[str, int]:
        """A file in one request: S3 is asked for its size first otherwise."""
        kind = self._files.protocol
        return {"max_concurrency": 1} if "s3" in ([kind] if isinstance(kind, str) else kind) else {}

    @property
    def _has_buckets(self) -> bool:
        """Whether folders are parts of names only, and need not be made."""
        protocol = self._files.protocol
        known = {protocol} if isinstance(protocol, str) else set(protocol)
        return bool(known & {"s3", "s3a", "gs", "gcs"})

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        """By a conditional request where the store knows one."""
        try:
            self._do(lambda: self._put(name, data, mode="create"), name)
            return True
        except FileExistsError:  # perhaps by a try of ours whose answer was lost
            return self.read_if_there(name) == data
        except (TypeError, ValueError):
            if self.exists(name):
                return False
            self.write(name, data)
            return True

    def below(self, folder: str) -> list[str]:
        if folder in self._listed:
            return list(self._listed[folder])
        found = self._below(folder)
        if self._read is not None:
            self._listed[folder] = found
        return list(found)

    def _below(self, folder: str) -> list[str]:
        start = len(self._at(""))

        def names() -> list[str]:
            self._files.invalidate_cache()
            try:
                return [str(name) for name in self._files.find(self._at(folder))]
            except FileNotFoundError:
                return []

        return sorted(name[start:] for name in self._do(names, folder))

    def exists(self, name: str) -> bool:
        return bool(self._do(lambda: self._files.exists(self._at(name)), name))

    def remove(self, name: str) -> None:
        self._changed(name)
        with suppress(FileNotFoundError):
            self._do(lambda: self._files.rm_file(self._at(name)), name)

    def remove_many(self, names: list[str]) -> None:
        if not self._has_buckets:
            for name in names:
                self.remove(name)
            return
        for first in range(0, len(names), 1000):  # as many as one request takes
            some = names[first : first + 1000]
            for name in some:
                self._changed(name)
            paths = [self._at(name) for name in some]
            with suppress(FileNotFoundError):
                self._do(partial(self._files.rm, paths), some[0])

    def prune(self, folder: str) -> None:
        """Folders are parts of names."""

    def move(self, name: str, to: str) -> None:
        self.write(to, self.read(name))
        self.remove(name)

    def age(self, name: str) -> float:
        try:
            written = self._files.modified(self._at(name))
        except (NotImplementedError, OSError):
            return 0.0
        return max(time.time() - float(written.timestamp()), 0.0)

    def version(self, name: str) -> str:
        return ""

    def versions(self, name: str) -> dict[str, str]:
        start = len(self._at(""))

        def listed() -> dict[str, str]:
            self._files.invalidate_cache()
            with suppress(FileNotFoundError):
                found = self._files.find(self._at(name), detail=True)
                said = {str(one)[start:]: version_of(found[one]) for one in sorted(found)}
                return {one: str(v) if any(v[1]) else "" for one, v in said.items()}
            return {}

        return self._do(listed, name)

    def lock(self, *, alone: bool) -> AbstractContextManager[None]:
        """Object stores have no locks: only the age of a file protects it there."""
        return nullcontext()

    def leftovers(self, *, old: float = 0.0) -> list[str]:
        return []


def is_store(place: str | Path) -> bool:
    """Whether that is a store rather than a file: a directory, or a URL with a store in it."""
    url = url_of(place)
    return path_of(place).is_dir() if url is None else RemoteFiles(url).exists("store.json")


def open_files(path: str | Path | None, **options: Any) -> LocalFiles | RemoteFiles | MemoryFiles:
    """A directory for a plain path, an fsspec filesystem for a URL, memory for nothing."""
    if path is None:
        return MemoryFiles()
    url = url_of(path)
    return LocalFiles(path_of(path)) if url is None else RemoteFiles(url, **options)
