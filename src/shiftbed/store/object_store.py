"""A store's files in an object store: what fsspec reaches, such as S3.

A put is atomic by itself, and tried again where the other side is busy or cut off. Requests cost
time, so they are few: what a step needs twice is asked for once (``remembering``).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from shiftbed.errors import InputError, Unreachable, WriteError, brief
from shiftbed.places import file_system, patiently, version_of

T = TypeVar("T")


class RemoteFiles:
    """A folder of an fsspec filesystem, such as ``s3://bucket/store`` or ``memory://store``."""

    by_request: ClassVar[bool] = True

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
