"""From an image file's pixels to the pixels a model sees, before normalisation.

What happens, in this order, as in the evaluation transforms of timm, torchvision and open_clip:

1. The image becomes 8-bit in the model's ``mode``. Alpha is dropped, not blended; palettes are
   looked up; CMYK is converted by Pillow; 16-bit values v become round(v / 257); floats must lie
   in [0, 1] and become round(255 v). EXIF orientation is ignored. All of it is what the libraries
   above do, except for 16 bits and floats, which they clip.
2. It is resized (Pillow, antialiased) and cropped as ``crop`` says:

   ========  ==========================================================================
   center    aspect ratio kept; the shorter side becomes ``resize`` (or the image just
             covers ``resize``, if that is a pair), then the central ``size`` is cut out
   squash    resized to exactly ``resize``, then the central ``size`` is cut out
   none      resized to exactly ``size``
   border    aspect ratio kept; the image just fits into ``resize``, then is cropped or
             padded to ``size`` with ``fill`` (the mean colour, if None)
   ========  ==========================================================================

   Where the resized image is smaller than ``size``, black is added around it.
   Images of one pixel are resized like any other. Where an extreme aspect ratio would make the
   resized image larger than 2²⁶ pixels, only the part that is kept is computed, which can differ
   by one level.

With ``decoding="draft"`` a JPEG file that is much larger than what it is resized to is decoded at a
half, a quarter or an eighth of its size (in the frequency domain, by libjpeg), but never below
``GAP`` times the resized image; that is then resized as above. It is faster and changes pixels
slightly, and so some answers: it is off unless asked for, and is part of what a model is.

Normalisation by ``mean`` and ``std`` is no part of this: models do it themselves, so that
corruptions and attacks act on pixels in [0, 1].
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError, unknown

Crop = Literal["center", "squash", "none", "border"]
Mode = Literal["RGB", "BGR", "L"]
CROPS: tuple[str, ...] = get_args(Crop)
MODES: tuple[str, ...] = get_args(Mode)
HALVES = ("even", "down")
DECODINGS = ("full", "draft")
GAP = 2
"""How many times larger than the resized image a draft is at least."""
INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
_LARGE = 2**26
"""Resized images of more pixels than this are not computed as a whole."""
Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How images are made ready for one model; written beside every result.

    >>> p = Preprocessing(size=(224, 224), resize=256, mean=(0.5,), std=(0.5,))
    >>> p.mean
    (0.5, 0.5, 0.5)
    >>> p.pixels(np.zeros((480, 640, 3), np.uint8)).shape
    (224, 224, 3)
    """

    size: Pair
    """(height, width) of what the model sees."""
    resize: int | Pair | None = None
    """Shorter side, or (height, width), before the crop; None: as ``size``."""
    interpolation: str = "bilinear"
    crop: str = "center"
    mean: tuple[float, ...] = (0.0,)
    """Per channel, in [0, 1] units; one value serves every channel."""
    std: tuple[float, ...] = (1.0,)
    mode: str = "RGB"
    """Channels and their order."""
    fill: int | None = None
    """Grey level of the border; None: the mean colour. For ``crop="border"`` only."""
    half: str = "even"
    """Where the crop begins if the margin is odd: at the even pixel (torchvision), or the lower
    one (transformers)."""
    decoding: str = "full"
    """Whether large JPEG files are decoded whole, or as a ``draft``: smaller, and faster."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("interpolation", self.interpolation, INTERPOLATIONS),
            ("crop", self.crop, CROPS),
            ("mode", self.mode, MODES),
            ("half", self.half, HALVES),
            ("decoding", self.decoding, DECODINGS),
        ):
            if value not in known:
                raise unknown(name, str(value), known)
        object.__setattr__(self, "size", _pair("size", self.size))
        if self.resize is not None and not isinstance(self.resize, int):
            object.__setattr__(self, "resize", _pair("resize", self.resize))
        elif self.resize is not None and (isinstance(self.resize, bool) or self.resize < 1):
            raise InputError(f"resize must be at least 1, got {self.resize}")
        if self.crop == "none" and self.resize not in (None, self.size):
            raise InputError(f"crop 'none' resizes to size; resize must be left out: {self.resize}")
        for name in ("mean", "std"):
            given = getattr(self, name)
            values = (given,) if isinstance(given, int | float) else tuple(given)
            values *= self.channels if len(values) == 1 else 1
            if len(values) != self.channels or not all(np.isfinite(v) for v in values):
                what = f"{self.channels} numbers, one per channel"
                raise InputError(f"{name} must be {what}, got {given!r}")
            object.__setattr__(self, name, tuple(float(v) for v in values))
        if min(self.std) <= 0:
            raise InputError(f"std must be positive, got {self.std}")

    @property
    def channels(self) -> int:
        return 1 if self.mode == "L" else 3

    def pixels(self, image: Image.Image | NDArray[Any]) -> NDArray[np.uint8]:
        """uint8 (height, width, channels) of an image: resized, cropped, in the model's mode.

        Arrays are (H, W), (H, W, 1), (H, W, 3) or (H, W, 4); uint8, uint16, bool, or floats in
        [0, 1].
        """
        picture = as_picture(image, "L" if self.mode == "L" else "RGB")
        array = np.asarray(self._cropped(picture))
        if self.mode == "L":
            return array[:, :, None]
        return np.ascontiguousarray(array[:, :, ::-1]) if self.mode == "BGR" else array

    @property
    def draft(self) -> Callable[[int, int], Pair] | None:
        """From a picture's (width, height) to the least at which it may be decoded; None: whole.

        >>> Preprocessing(size=(224, 224), resize=256, decoding="draft").draft(4000, 3000)
        (682, 512)
        """
        return self._least if self.decoding == "draft" else None

    def _least(self, width: int, height: int) -> Pair:
        down, across = self._resized(height, width)
        return GAP * across, GAP * down

    def _cropped(self, picture: Image.Image) -> Image.Image:
        """Resize and cut out the centre; padded where there is too little."""
        width, height = picture.size
        new_height, new_width = self._resized(height, width)
        top, rows, above = self._along(new_height, self.size[0])
        left, columns, before = self._along(new_width, self.size[1])
        sampling = INTERPOLATIONS[self.interpolation]
        if new_height * new_width > _LARGE:
            across, down = width / new_width, height / new_height
            box = (left * across, top * down, (left + columns) * across, (top + rows) * down)
            picture = picture.resize((columns, rows), sampling, box=box)
        else:
            if (new_width, new_height) != picture.size:
                picture = picture.resize((new_width, new_height), sampling)
            if (columns, rows) != picture.size:
                picture = picture.crop((left, top, left + columns, top + rows))
        if (rows, columns) == self.size:
            return picture
        level = 0 if self.crop != "border" else self.fill
        fill = [round(255 * m) if level is None else level for m in self.mean]
        if self.mode == "BGR":
            fill.reverse()
        canvas = Image.new(picture.mode, self.size[::-1], tuple(fill))
        canvas.paste(picture, (before, above))
        return canvas

    def _resized(self, height: int, width: int) -> Pair:
        """(height, width) after resizing an image of (height, width)."""
        target = self.size if self.resize is None else self.resize
        if self.crop == "none":
            return self.size
        if self.crop == "squash":
            return (target, target) if isinstance(target, int) else target
        if self.crop == "center" and self.resize is None and self.size[0] == self.size[1]:
            target = self.size[0]
        if self.crop == "center" and isinstance(target, int):  # torchvision rounds down
            if width <= height:
                return int(target * height / width), target
            return target, int(target * width / height)
        down, across = (target, target) if isinstance(target, int) else target
        choose = max if self.crop == "border" else min
        ratio = choose(height / down, width / across)  # timm rounds
        return max(1, round(height / ratio)), max(1, round(width / ratio))

    def _along(self, length: int, wanted: int) -> tuple[int, int, int]:
        """Along a side: where the middle part begins, its length, and the padding before it."""
        if length < wanted:
            return 0, length, (wanted - length) // 2
        margin = length - wanted
        return (round(margin / 2) if self.half == "even" else margin // 2), wanted, 0

    def describe(self) -> dict[str, Any]:
        """All of it as JSON types; ``from_dict`` reads it back. Whole decoding goes without saying,
        so that older records and identities hold."""
        found = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        if self.decoding == "full":
            del found["decoding"]
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Preprocessing":
        """Read what ``describe`` wrote, or a side-car file with some of it; ``size`` is needed."""
        if "size" not in values:
            raise InputError("preprocessing: 'size' is missing, (height, width) of the input")
        return cls(**_checked(values))

    def override(self, **changes: Any) -> "Preprocessing":
        """The same with some fields changed.

        A new ``size`` without a new ``resize`` keeps the fraction that the crop leaves;
        ``crop_pct`` sets that fraction, as in timm: resize = ⌊size / crop_pct⌋.

        >>> Preprocessing(size=(224, 224), resize=256).override(size=112).resize
        128
        """
        fraction = changes.pop("crop_pct", None)
        known = _checked(changes)
        size = known.get("size", self.size)
        if fraction is not None:
            if not 0 < float(fraction) <= 1:
                raise InputError(f"crop_pct must be above 0 and at most 1, got {fraction}")
            scaled = tuple(int(s / float(fraction)) for s in size)
            square = size[0] == size[1] and self.crop != "squash"
            known["resize"] = scaled[0] if square else scaled
        elif "resize" not in known and self.resize is not None and size != self.size:
            known["resize"] = _scaled(self.resize, self.size, size)
        if "mode" in known and (known["mode"] == "L") != (self.mode == "L"):
            known.setdefault("mean", (float(np.mean(self.mean)),))
            known.setdefault("std", (float(np.mean(self.std)),))
        return replace(self, **known)

    def changes_from(self, other: "Preprocessing") -> dict[str, Any]:
        """The fields that differ from ``other`` beyond what its change of size implies."""
        scaled = other if self.size == other.size else other.override(size=self.size)
        found: dict[str, Any] = {} if self.size == other.size else {"size": self.size}
        for name in (f.name for f in fields(self) if f.name != "size"):
            if getattr(self, name) != getattr(scaled, name):
                found[name] = getattr(self, name)
        return found


def _scaled(resize: int | Pair, old: Pair, new: Pair) -> int | Pair:
    if isinstance(resize, int) and new[0] == new[1]:
        return resize * new[0] // old[0]
    pair = (resize, resize) if isinstance(resize, int) else resize
    return pair[0] * new[0] // old[0], pair[1] * new[1] // old[1]


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    known = {f.name for f in fields(Preprocessing)}
    for name in values:
        if name not in known:
            raise unknown("field of preprocessing", name, sorted(known))
    found = dict(values)
    if "size" in found:
        found["size"] = _pair("size", found["size"])
    return found


def _pair(name: str, value: Any) -> Pair:
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if len(sides) != 2 or not all(isinstance(s, int) and s > 0 for s in sides):
        raise InputError(f"{name} must be (height, width), two positive integers, got {value!r}")
    return sides[0], sides[1]


def as_picture(image: Image.Image | NDArray[Any], mode: Literal["RGB", "L"]) -> Image.Image:
    """An 8-bit Pillow image in ``mode``; how is said at the top of this file.

    >>> as_picture(np.full((2, 3), 65535, np.uint16), "RGB").getpixel((0, 0))
    (255, 255, 255)
    """
    picture = _from_array(image) if isinstance(image, np.ndarray) else image
    if picture.mode == "F" or picture.mode.startswith("I"):
        picture = _from_array(np.asarray(picture))
    if picture.mode == mode:
        return picture
    if picture.mode in ("P", "PA") or picture.mode in ("RGBa", "La"):
        picture = picture.convert("LA" if picture.mode == "La" else "RGBA")
    try:
        return picture.convert(mode)
    except ValueError as error:
        raise InputError(f"an image of mode {picture.mode!r} cannot be used: {error}") from None


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.size == 0 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] > 4):
        raise InputError(
            f"an image must be (height, width) or (height, width, 1, 3 or 4), got {array.shape}"
        )
    return Image.fromarray(np.ascontiguousarray(_eight_bit(array)))


def _eight_bit(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind in "iu" and array.dtype.itemsize in (2, 4):
        wide: NDArray[np.uint32] = np.clip(array, 0, 65535).astype(np.uint32)
        return ((wide + 128) // 257).astype(np.uint8)
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):  # also false for nan
            raise InputError(
                "an image of floats must lie in [0, 1], got "
                f"[{float(array.min()):.4g}, {float(array.max()):.4g}]"
            )
        return np.rint(array.astype(np.float64) * 255).astype(np.uint8)
    raise InputError(f"an image cannot be made of {array.dtype} values; use uint8")
