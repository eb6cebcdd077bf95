"""Crops and flips: what every example gets before the rest of an augmentation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.preprocessing import Preprocessing, as_picture
from shiftbed.training.draws import Keys, Step, uniforms


@final
@dataclass(frozen=True, kw_only=True)
class Flip(Step):
    """The mirror image, with probability ``p``."""

    name: ClassVar[str] = "flip"
    basic: ClassVar[bool] = True
    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InputError(f"augmentation flip: p must lie between 0 and 1, got {self.p!r}")

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        at = torch.from_numpy(np.flatnonzero(uniforms(keys, 1)[:, 0] < self.p)).to(pixels.device)
        out = pixels.clone()
        out[at] = pixels[at].flip(-1)
        return out


@final
@dataclass(frozen=True, kw_only=True)
class CropFlip(Step):
    """A crop of the image with ``padding`` black pixels around it, mirrored half of the time.

    CIFAR-10's usual augmentation. ``flip = false`` for digits and letters.
    """

    name: ClassVar[str] = "crop-flip"
    basic: ClassVar[bool] = True
    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise InputError(f"augmentation crop-flip: padding must be ≥ 0, got {self.padding!r}")

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        n, channels, height, width = pixels.shape
        draws = uniforms(keys, 3)
        flipped = (draws[:, :1] < 0.5) & self.flip
        top, left = (draws[:, 1:] * (2 * self.padding + 1)).astype(np.int64).T[:, :, None]
        rows = top + np.arange(height)
        columns = left + np.where(flipped, np.arange(width)[::-1], np.arange(width))
        places = rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]
        at = torch.from_numpy(places.reshape(n, 1, -1)).to(pixels.device)
        padded = functional.pad(pixels, (self.padding,) * 4).contiguous()
        found = padded.view(n, channels, -1).gather(2, at.expand(-1, channels, -1))
        return torch.empty_like(pixels).copy_(found.view(pixels.shape))


def whole_picture_crop(
    preprocessing: Preprocessing, options: Mapping[str, Any]
) -> Callable[[Image.Image], Tensor]:
    """torchvision's RandomResizedCrop of the whole picture and a flip: (C, H, W) uint8.

    Draws from torch's generator. Options are those of RandomResizedCrop.
    """
    ensure_torchvision()
    from torchvision.transforms import v2

    mode: Literal["RGB", "L"] = "L" if preprocessing.mode == "L" else "RGB"
    interpolation = v2.InterpolationMode[preprocessing.interpolation.upper()]
    try:
        crop = v2.RandomResizedCrop(preprocessing.size, interpolation=interpolation, **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"augmentation 'standard': {error}") from None
    flip = v2.RandomHorizontalFlip()

    def whole(image: Image.Image) -> Tensor:
        array = np.array(flip(crop(as_picture(image, mode))))
        array = array[:, :, None] if array.ndim == 2 else array
        if preprocessing.mode == "BGR":
            array = np.ascontiguousarray(array[:, :, ::-1])
        return torch.from_numpy(array).permute(2, 0, 1)

    return whole
