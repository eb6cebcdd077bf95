"""Images in arrays: NumPy files, and arrays in memory.

``.npz``: arrays ``images`` and ``labels`` (or ``x`` and ``y``), or pairs with a prefix such as
``usps_test_images`` and ``usps_test_labels``, chosen by ``FILE.npz:usps_test``. ``.npy``: the
images, with the labels in ``labels.npy`` beside it or in a file that is named. Images are uint8, or
floats in [0, 1], which are rounded to 8 bits; of shape (N, H, W), (N, H, W, C) or (N, C, H, W).
Files are mapped into memory where possible; Python objects in them are never read.
"""

import threading
import weakref
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.data.images import Draft, NoImage, RowImages
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, numbered, shown, some
from shiftbed.reading.files import regular

_IMAGES = ("images", "x", "X", "data")
_LABELS = ("labels", "y", "Y", "targets")
_GROUPS = ("groups", "group")
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayFile:
    """An array in a file; opened when needed, and never pickled."""

    path: str
    key: str | None
    form: tuple[tuple[int, ...], str]
    """Shape and dtype, as they were when the test set was opened."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}

    @property
    def pixels(self) -> NDArray[Any]:
        """The whole array."""
        pixels: NDArray[Any] | None = self.__dict__.get("_pixels")
        if pixels is None:
            pixels = open_array(Path(self.path), self.key)
            if (pixels.shape, pixels.dtype.str) != self.form:
                raise InputError(f"{self.path}: changed since it was opened")
            object.__setattr__(self, "_pixels", pixels)
        return pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayImages(RowImages):
    """Rows of an array, in memory or in a file."""

    source: NDArray[Any] | ArrayFile
    layout: str
    """NHW, NHWC or NCHW."""
    form: str | None = None
    """What comes before a row's bytes in its digest; None: its dtype and shape."""

    @property
    def pixels(self) -> NDArray[Any]:
        return self.source if isinstance(self.source, np.ndarray) else self.source.pixels

    def load(self, row: int, draft: Draft | None = None) -> Image.Image:
        pixels = np.asarray(self.pixels[self.rows[row]])
        if self.layout == "NCHW":
            pixels = pixels.transpose(1, 2, 0)
        if pixels.dtype != np.uint8:
            low, high = float(pixels.min()), float(pixels.max())
            if not (low >= 0 and high <= 1):  # also if they are not numbers
                raise NoImage(f"values from {low:g} to {high:g}, expected [0, 1]")
            pixels = np.rint(pixels.astype(np.float64) * 255).astype(np.uint8)
        return picture_of(pixels)

    def data(self, row: int) -> bytes:
        shape = f"{self.pixels.dtype.str}{self.pixels.shape[1:]}"
        form = (shape if self.form is None else self.form).encode()
        return form + np.ascontiguousarray(self.pixels[self.rows[row]]).tobytes()


def picture_of(pixels: NDArray[np.uint8]) -> Image.Image:
    """The picture of (H, W) or (H, W, C) bytes: mode L, RGB or RGBA."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return Image.fromarray(np.ascontiguousarray(pixels))


def read_arrays(path: Path, prefix: str | None, options: Options) -> RawExamples:
    """The images of an ``.npz`` or ``.npy`` file in its order."""
    labels: NDArray[Any] | None
    if path.suffix.lower() == ".npz":
        image_key, label_key, group_key = _keys(path, prefix, options)
        where = f"{path}, array {shown(image_key)}"
        labels = None if label_key is None else open_array(path, label_key)
        groups = None if group_key is None else open_array(path, group_key)
    else:
        where, image_key, groups = str(path), None, None
        beside = Path(options.labels) if options.labels is not None else path.parent / "labels.npy"
        if not options.unlabelled and not beside.exists():
            raise InputError(f"{path}: no labels; expected them in {beside}, or labels=FILE.npy")
        labels = None if options.unlabelled else open_array(beside, None)
    pixels = open_array(path, image_key)
    images = ArrayImages(
        source=ArrayFile(
            path=str(path.absolute()), key=image_key, form=(pixels.shape, pixels.dtype.str)
        ),
        layout=layout_of(where, pixels, options.layout),
        rows=np.arange(len(pixels)),
    )
    try:
        images.load(0)
    except NoImage as error:
        raise InputError(f"{where}: image 0 has {error}; scale the images first") from None
    return RawExamples(
        where=where,
        examples=numbered(len(pixels)),
        images=images,
        labels=None if labels is None else _column(where, "labels", labels, len(pixels)),
        groups=None if groups is None else _column(where, "groups", groups, len(pixels)),
    )


def _keys(path: Path, prefix: str | None, options: Options) -> tuple[str, str | None, str | None]:
    """Which arrays of an ``.npz`` file hold images, labels and groups."""
    names = array_names(path)
    if options.image_column is not None:
        for asked in options.columns[:3]:
            if asked is not None and asked not in names:
                raise unknown(f"array in {path}", asked, names)
        return options.image_column, options.label_column, options.group_column
    pairs = {
        own: (image, None if options.unlabelled else options.label_column or label)
        for own, image in _by_prefix(names, _IMAGES).items()
        if (label := _by_prefix(names, _LABELS).get(own))
        or options.unlabelled
        or options.label_column
    }
    if not pairs:
        raise InputError(
            f"{path}: expected arrays 'images' and 'labels' (or 'x' and 'y', or PREFIX_images and "
            f"PREFIX_labels), found {some(names, 8) or 'none'}"
        )
    if prefix is None:
        prefix = "" if "" in pairs else next(iter(pairs))
        if prefix and len(pairs) > 1:
            raise InputError(
                f"{path}: holds {len(pairs)} sets; choose one: "
                + ", ".join(f"{path.name}:{own}" for own in list(pairs)[:8])
            )
    if prefix not in pairs:
        raise unknown(f"set in {path}", prefix, pairs)
    group = options.group_column or _by_prefix(names, _GROUPS).get(prefix)
    return (*pairs[prefix], group)


def _by_prefix(names: list[str], usual: tuple[str, ...]) -> dict[str, str]:
    """Prefix to name, for the names that are a usual one, alone or after a prefix and "_"."""
    found: dict[str, str] = {}
    for end in reversed(usual):
        found |= {name[: -len(end) - 1]: name for name in names if name.endswith("_" + end)}
        found |= {"": end} if end in names else {}
    return found


def layout_of(where: str, pixels: NDArray[Any], asked: str | None) -> str:
    """NHW, NHWC or NCHW, asked for if both of these are possible."""
    shape = pixels.shape
    if pixels.dtype != np.uint8 and pixels.dtype.kind != "f":
        raise InputError(f"{where}: is {pixels.dtype}, expected uint8 or floats in [0, 1]")
    fits = []
    if len(shape) == 3:
        fits = ["NHW"]
    elif len(shape) == 4:
        fits = ["NHWC"] * (shape[3] in _CHANNELS) + ["NCHW"] * (shape[1] in _CHANNELS)
    if asked is not None and asked not in fits:
        raise InputError(f"{where}: is of shape {shape}, which cannot be {asked}")
    if not fits or 0 in shape:
        raise InputError(
            f"{where}: is of shape {shape}, expected (N, H, W), (N, H, W, C) or (N, C, H, W) with "
            "1, 3 or 4 channels"
        )
    if asked is None and len(fits) > 1:
        raise InputError(f"{where}: shape {shape} may be NHWC or NCHW; say which (layout=)")
    return asked or fits[0]


def _column(where: str, what: str, values: NDArray[Any], size: int) -> NDArray[Any]:
    if values.shape == (size, 1):
        values = values[:, 0]
    if values.shape != (size,):
        raise InputError(f"{where}: {what} are of shape {values.shape}, expected ({size},)")
    return values


LIMIT = 16 * 2**30
"""The most bytes to which a compressed array is unpacked."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, SyntaxError, TokenError),
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
        with zipfile.ZipFile(regular(path)) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except _DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise _refusal(path, None, error) from None


def open_array(path: Path, key: str | None) -> NDArray[Any]:
    """An array of an ``.npz`` file, or the one of an ``.npy`` file; one copy per process."""
    try:
        stat = regular(path).stat()
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
    text = brief(error)
    if "allow_pickle" in text or "bject arrays" in text:
        return InputError(
            f"{where}: holds Python objects, which are not read: they can run code; save numbers"
        )
    return InputError(f"{where}: cannot be read as a NumPy file: {text}")
