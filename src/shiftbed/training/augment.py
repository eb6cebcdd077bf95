"""Augmentations by name: on whole batches, drawn per (seed, epoch, example).

``standard``       random resized crop and flip of the whole picture (ImageNet's usual one)
``crop-flip``      ``padding`` of 4 pixels, random crop, flip (CIFAR-10's usual one)
``flip``           horizontal flip
``randaugment``    torchvision's RandAugment; ``num_ops``, ``magnitude``
``augmix``         AugMix with torchvision's operations; ``severity``, ``mixture_width``; its
                   consistency loss is the objective ``augmix``
``gaussian-noise`` N(0, ``sigma``²) on [0, 1], σ = 0.1
``corruption``     one of ours drawn per image: ``names``, ``severities`` (taori2020, Section 6)
any class of ``torchvision.transforms.v2``, such as ``TrivialAugmentWide``, image by image

Steps are done in the order they are written, the first three before the others.
"""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.corruptions.philox import fill_normals, fill_words, image_keys
from shiftbed.evaluation.preprocessing import Preprocessing, as_picture
from shiftbed.training.arguments import STEPS, construct, share

Keys = NDArray[np.uint64]


def keys_of(rows: Iterable[int], seed: int, what: str, epoch: int, view: int = 0) -> Keys:
    """(B,) one key per example, for one use of randomness in one epoch."""
    return image_keys([str(int(row)) for row in rows], seed, f"{what}|{epoch}|{view}", 0)


def uniforms(keys: Keys, count: int) -> NDArray[np.float64]:
    """(B, count) numbers strictly between 0 and 1."""
    words = np.empty((len(keys), count), np.uint32)
    for key, row in zip(keys, words, strict=True):
        fill_words(key, 0, row)
    found: NDArray[np.float64] = (words.astype(np.float64) + 0.5) / 2.0**32
    return found


def normals(keys: Keys, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """(B, *shape) standard normals."""
    found = np.empty((len(keys), int(np.prod(shape))), np.float32)
    for key, row in zip(keys, found, strict=True):
        fill_normals(key, 0, row)
    return found.reshape(len(keys), *shape)


class Step(ABC):
    """One step of an augmentation: batches in [0, 1] to batches in [0, 1] of the same shape."""

    name: ClassVar[str]
    basic: ClassVar[bool] = False
    """Whether it is a crop or flip, which the views of one example share (AugMix)."""

    @property
    def label(self) -> str:
        """What the model's info says it was trained with."""
        return self.name

    @abstractmethod
    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        """Augment (B, C, H, W) float32; an image's draws come from its key alone."""


@final
@dataclass(frozen=True, kw_only=True)
class Flip(Step):
    """The mirror image, with probability ``p``."""

    name: ClassVar[str] = "flip"
    basic: ClassVar[bool] = True
    p: float = 0.5

    def __post_init__(self) -> None:
        share(self.p, "augmentation flip: p")

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


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Augmentation:
    """A crop of the whole picture, perhaps, and steps on batches."""

    steps: tuple[Step, ...] = ()
    seed: int = 0
    preprocessing: Preprocessing | None = None
    whole: Callable[[Image.Image], Tensor] | None = None
    """Crops the whole picture; None: the model's own crop."""

    @property
    def label(self) -> str:
        """All of it as one text: ``none``, ``crop-flip+augmix``, ``fog:3``."""
        first = [] if self.whole is None else ["standard"]
        return "+".join(first + [step.label for step in self.steps]) or "none"

    def picture(self, image: Image.Image, row: int, epoch: int, view: int = 0) -> Tensor:
        """(C, H, W) uint8 of a picture; call it within ``keeping_generators``."""
        if self.whole is not None:
            seed_all(example_seed(self.seed, epoch, row, view))
            return self.whole(image)
        assert self.preprocessing is not None
        return torch.from_numpy(self.preprocessing.pixels(image).copy()).permute(2, 0, 1)

    def __call__(
        self,
        pixels: Tensor,
        rows: NDArray[np.int64],
        epoch: int,
        view: int = 0,
        *,
        of_one_crop: bool = False,
        basic_only: bool = False,
    ) -> Tensor:
        """Augment a batch (B, C, H, W), uint8 or float32 in [0, 1]; ``rows`` name its examples.

        ``view`` counts versions of one example. ``of_one_crop``: they share crop and flip.
        ``basic_only``: crop and flip alone, which is what AugMix's views are views of.
        """
        pixels = fractions(pixels)
        for place, step in enumerate(self.steps):
            if basic_only and not step.basic:
                break
            which = 0 if of_one_crop and step.basic else view
            about = f"augment|{step.name}|{place}"
            pixels = step(pixels, keys_of(rows.tolist(), self.seed, about, epoch, which))
        return pixels


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _ImageByImage(Step):
    """Any transform of torchvision, which draws from torch's generator."""

    transform: Any
    known_as: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.known_as

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        out = torch.empty_like(pixels)
        with keeping_generators():
            for at, key in enumerate(keys.tolist()):
                seed_all(key >> 1)
                out[at] = self.transform(pixels[at])
        return out


def make_augmentation(
    steps: str | Sequence[Mapping[str, Any]],
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
) -> Augmentation:
    """An augmentation from a recipe's steps, ``[{"name": "flip"}, …]``, or ``"flip+augmix"``."""
    whole: Callable[[Image.Image], Tensor] | None = None
    made: list[Step] = []
    for at, (name, options) in enumerate(_named(steps)):
        if name == "standard":
            if at or preprocessing is None:
                raise InputError("augmentation 'standard' must be the first step, of pictures")
            whole = whole_picture_crop(preprocessing, options)
            continue
        step = _step(name, options)
        if step.basic and made and not made[-1].basic:
            raise InputError(f"augmentation {name!r} must come before {made[-1].name!r}")
        made.append(step)
    return Augmentation(steps=tuple(made), seed=seed, preprocessing=preprocessing, whole=whole)


def _named(steps: str | Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Name and options of every step but ``none``."""
    given = [{"name": one} for one in steps.split("+")] if isinstance(steps, str) else steps
    tables = [dict(one) for one in given if one["name"] != "none"]
    return [(str(one.pop("name")), one) for one in tables]


def label_of(steps: Sequence[Mapping[str, Any]]) -> str:
    """What a model's info says of its augmentation; see ``Augmentation.label``.

    >>> label_of([{"name": "standard"}, {"name": "corruption", "names": "fog"}])
    'standard+fog'
    """
    named = _named(steps)
    labels = [name if name == "standard" else _step(name, own).label for name, own in named]
    return "+".join(labels) or "none"


def _step(name: str, options: Mapping[str, Any]) -> Step:
    if name in STEPS:
        made: Step = construct(STEPS, name, options, "augmentation")
        return made
    ensure_torchvision()
    from torchvision.transforms import v2

    kind = getattr(v2, name, None)
    if not (isinstance(kind, type) and issubclass(kind, v2.Transform)):
        classes = [n for n in dir(v2) if isinstance(getattr(v2, n), type)]
        raise unknown("augmentation", name, ("none", "standard", *STEPS, *classes))
    try:
        return _ImageByImage(transform=kind(**options), known_as=name)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("__init__() ")[2] or error
        raise InputError(f"augmentation {name!r}: {reason}") from None


def fractions(x: Tensor) -> Tensor:
    """Pixels in [0, 1] from uint8; others are left as they are."""
    return x.to(torch.float32).div_(255) if x.dtype == torch.uint8 else x


def example_seed(*parts: int) -> int:
    """A seed of 63 bits from whole numbers: the run's seed, the epoch, the row, the view."""
    packed = b"".join(part.to_bytes(8, "little") for part in parts)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") >> 1


def seed_all(seed: int) -> None:
    """Set the generators of torch, NumPy and Python, which augmentations draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def keeping_generators() -> Iterator[None]:
    """What is drawn inside leaves the generators outside as they were."""
    mine, numpys, pythons = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(mine)
        np.random.set_state(numpys)
        random.setstate(pythons)
