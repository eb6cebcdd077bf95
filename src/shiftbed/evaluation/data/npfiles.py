"""Arrays in NumPy files: mapped into memory where possible, never Python objects."""

import threading
import weakref
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.data.found import shown

LIMIT = 16 * 2**30
"""The most bytes to which a compressed array is unpacked."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, SyntaxError),
    *(NotImplementedError, RuntimeError, MemoryError, OverflowError, TypeError, ValueError),
    *(TokenError, Warning),  # NumPy's, about odd headers
)
_LOADING = threading.Lock()
_LOADED: "weakref.WeakValueDictionary[tuple[object, ...], NDArray[Any]]" = (
    weakref.WeakValueDictionary()
)


def array_names(path: Path) -> list[str]:
    """Names of the arrays in an ``.npz`` file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except _DAMAGED as error:
        raise _refusal(path, None, error) from None


def open_array(path: Path, key: str | None) -> NDArray[Any]:
    """An array of an ``.npz`` file, or the one of an ``.npy`` file; one copy per process."""
    try:
        stat = path.stat()
        identity = (str(path), key, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        with _LOADING:
            array = _LOADED.get(identity)
            if array is None:
                array = _load(path, key)
                _LOADED[identity] = array
        return array
    except _DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise _refusal(path, key, error) from None


def _load(path: Path, key: str | None) -> NDArray[Any]:
    if key is None:
        if path.stat().st_size == 0:
            raise InputError(f"{path}: an empty file")
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{key}.npy")
        if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
            array = _map_member(path, member)
            if array is not None:
                return array
        if member.file_size > LIMIT:
            raise InputError(
                f"{path}, array {shown(key)}: unpacks to {member.file_size / 2**30:.0f} GiB; save "
                "it uncompressed, so that it can be mapped"
            )
        with archive.open(member) as file:
            unpacked: NDArray[Any] = npy.read_array(file, allow_pickle=False)
            return unpacked


def _map_member(path: Path, member: zipfile.ZipInfo) -> NDArray[Any] | None:
    """An uncompressed member, mapped; None if its header is of another kind."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = file.read(2), file.read(2)
        start = member.header_offset + 30 + sum(int.from_bytes(n, "little") for n in (name, extra))
        file.seek(start)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        header = read.get(npy.read_magic(file))
        if header is None:
            return None
        shape, fortran, dtype = header(file)
        offset = file.tell()
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if dtype.hasobject or not size or offset + size > start + member.file_size:
        return None  # to be read, or refused, by the ordinary way
    mapped: NDArray[Any] = np.memmap(
        path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C"
    )
    return mapped


def _refusal(path: Path, key: str | None, error: BaseException) -> InputError:
    where = f"{path}, array {shown(key)}" if key is not None else str(path)
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file")
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    if "allow_pickle" in text or "bject arrays" in text:
        return InputError(
            f"{where}: holds Python objects, which are not read: they can run code; save numbers"
        )
    return InputError(f"{where}: cannot be read as a NumPy file: {text}")
