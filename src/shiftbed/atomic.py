"""Files that are either the old one or the whole new one, whenever the writer is killed."""

import errno
import fcntl
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shiftbed.errors import InputError, Unreachable, WriteError
from shiftbed.places import path_of, put, url_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_MASK = os.umask(0)  # can only be read by setting it; once, before there are threads
os.umask(_MASK)
_MODE = 0o666 & ~_MASK
_HOST = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:32] or "host"
ABANDONED = 24 * 3600.0
"""Seconds after which a temporary file of another machine's writer is taken for abandoned."""
DISK_ERRORS = {
    *(errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.ESTALE),
    *(errno.EACCES, errno.EPERM),
}
"""What a file system says when it cannot, whatever the program does."""
_swept: set[Path] = set()
"""Folders that were looked through for abandoned temporary files by this process."""


class write_atomically:
    """A binary file that appears at ``path``, or at a URL, only once it is complete and there.

    It is written beside its place as ``.NAME.HOST-PID-RANDOM.part``, synced and renamed, then its
    folder is synced. A symbolic link is followed, into a folder that is there; what is there and no
    regular file is refused. The temporary file goes with any failure, and those of writers that are
    dead (of other machines: a day old) go when their folder is next written to. What goes to a URL
    is written to a temporary file of this machine and put there whole. ``new``: what is there is
    not replaced, but FileExistsError raised; of two writers one is first. Not ``lasting``: whether
    it outlives the machine does not matter, and nobody waits for the disk.
    """

    def __init__(self, path: str | Path, *, new: bool = False, lasting: bool = True) -> None:
        self.url, self.new, self.lasting = url_of(path), new, lasting
        self.path = path_of(path)
        self.spool: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> BinaryIO:
        if self.url is not None:
            self.spool = tempfile.TemporaryDirectory(prefix="shiftbed-")
            self.path = Path(self.spool.name, self.path.name or "file")
        try:
            target = self.path.resolve()
            if target.exists() and not stat.S_ISREG(target.stat().st_mode):
                raise InputError(f"cannot write {self.path}: it is there and no regular file")
            if self.path.is_symlink() and not target.parent.is_dir():  # no folder is made by a link
                raise InputError(
                    f"cannot write {self.path}: it is a link into a folder that is not there"
                )
            self.target, self.temporary = target, target.parent / temporary_name(target.name)
            self.raw = self._begun()
            self.file = BufferedWriter(self.raw, 2**18)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise _failed(self.path, error) from None
        return self.file

    def _begun(self) -> "_Noting":
        for again in (True, False):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            sweep(self.target.parent)
            try:
                return _Noting(self.temporary, "xb")
            except FileNotFoundError:  # an empty folder that was removed just now
                if not again:
                    raise
        raise AssertionError

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        try:
            self._close(kind, problem[0])
            if self.url is not None and kind is None:
                put(self.url, self.target)
        except Unreachable as error:
            raise WriteError(str(error)) from None
        finally:
            if self.spool is not None:
                self.spool.cleanup()

    def _close(self, kind: type[BaseException] | None, problem: object) -> None:
        try:
            if kind is None:
                self.file.flush()
                if self.lasting:
                    os.fsync(self.file.fileno())
            self.file.close()
            if kind is None:
                _set_mode(self.temporary)
                _put(self.temporary, self.target, new=self.new)
                if self.lasting:
                    _sync_folder(self.target.parent)
        except OSError as error:
            if self.new and isinstance(error, FileExistsError):
                raise
            raise _failed(self.path, error) from None
        finally:
            _close(self.file)
            remove_temporary(self.temporary)
        cause = self.raw.failure or _cause(problem)
        if cause is not None:
            raise _failed(self.path, cause) from None


class _Noting(FileIO):
    """A file that remembers why it could not be written: libraries hide it in errors of theirs."""

    failure: OSError | None = None

    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failure = error
            raise


def _cause(problem: object) -> OSError | None:
    """What the disk said, of an error on the way, also where a library wrote by itself."""
    number = problem.errno if isinstance(problem, OSError) else None
    said = re.search(r"\(os error (\d+)\)", str(problem))
    if number is None and said is not None:
        number = int(said[1])
    return OSError(number, os.strerror(number)) if number in DISK_ERRORS else None


def temporary_name(name: str) -> str:
    """A hidden name beside a file's own, by which its writer is known."""
    return f".{name[:180]}.{_HOST}-{os.getpid()}-{secrets.token_hex(4)}.part"


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process is in here for the same path: what takes long is made once.

    By the kernel, on an empty file ``.NAME.lock`` beside it, which goes with the first to leave:
    look again whether the file is there. A lock ends with its process, however that ends. Where
    there are no locks nobody waits, and the same file is made twice.
    """
    lock = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def abandoned(folder: Path, old: float = ABANDONED) -> list[Path]:
    """Temporary files in a folder whose writers are dead, or unknown and ``old`` seconds old."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".part")]
    except OSError:
        return []
    found = [folder / name for name in names if name.startswith(".")]
    return [path for path in found if _is_dead(path, old)]


def _is_dead(path: Path, old: float) -> bool:
    writer = re.search(r"\.([A-Za-z0-9]+)-(\d+)-[0-9a-f]{8}\.part$", path.name)
    if writer is not None and writer[1] == _HOST:
        try:
            os.kill(int(writer[2]), 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            return False
        return False
    try:
        return time.time() - path.stat().st_mtime >= old
    except OSError:
        return False


def sweep(folder: Path) -> None:
    """Remove temporary files of dead writers, once a process."""
    if folder in _swept:
        return
    _swept.add(folder)
    for path in abandoned(folder):
        remove_temporary(path)


def _failed(path: Path, error: Exception) -> InputError | WriteError:
    """A place that cannot be written to is the user's; a disk that is full or broken is not."""
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, InputError):
        return error
    place = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
    bad = isinstance(error, (*place, PermissionError, RuntimeError))
    kind = InputError if bad else WriteError
    return kind(f"cannot write {path}: {reason}")


def _put(temporary: Path, target: Path, *, new: bool) -> None:
    """Give a whole file its name: a link is made once only, a renamed file replaces another."""
    if new:
        try:
            os.link(temporary, target)
            return
        except FileExistsError:
            raise
        except OSError:  # a disk without links
            if target.exists():
                raise FileExistsError(target) from None
    os.replace(temporary, target)


def _set_mode(path: Path) -> None:
    try:
        os.chmod(path, _MODE)
    except OSError:  # some file systems have no modes
        return


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:  # not every file system can
        return
    finally:
        os.close(handle)


def remove_temporary(path: Path) -> None:
    """Mostly it is gone already; one that cannot be removed goes when its writer is dead."""
    for _ in range(2):  # a network drive says once that it cannot
        try:
            path.unlink(missing_ok=True)
            return
        except OSError:
            continue


def _close(file: BinaryIO) -> None:
    try:
        file.close()
    except OSError:
        return
