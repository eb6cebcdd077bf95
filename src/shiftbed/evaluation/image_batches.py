"""What a batch of images may be, said in one line where it is not.

Eight bits have their channels last, uint8 (N, H, W, C) or (N, H, W), as pictures have; fractions
have them second, float (N, C, H, W) in [0, 1], as networks take them. Perturbations compute on
float32 fractions, whichever they are given.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

Floats = NDArray[np.float32]
ROUNDING = 1e-5
"""So far beyond 0 or 1 a value is taken for rounding."""


def as_fractions(images: NDArray[Any]) -> Floats:
    """The batch as float32 (N, C, H, W): eight bits divided by 255, fractions as they are."""
    if not isinstance(images, np.ndarray):
        raise InputError(f"images must be an array or a tensor, got {type(images).__name__}")
    if images.dtype == np.uint8:
        whole = images[..., None] if images.ndim == 3 else images
        if whole.ndim != 4:
            raise InputError(
                f"uint8 images must have shape (N, H, W, C) or (N, H, W), got {images.shape}"
            )
        divided: Floats = np.divide(whole, np.float32(255), dtype=np.float32)
        return divided.transpose(0, 3, 1, 2)
    if images.dtype.kind != "f":
        raise InputError(f"images must be uint8, or float in [0, 1], got {images.dtype}")
    if images.ndim != 4:
        raise InputError(f"float images must have shape (N, C, H, W), got {images.shape}")
    return images.astype(np.float32, copy=False)


def as_given(fractions: Floats, images: NDArray[Any]) -> NDArray[Any]:
    """Perturbed fractions in the type and layout of the batch they were made of."""
    if images.dtype == np.uint8:
        return eight_bits(fractions).reshape(images.shape)
    return fractions.astype(images.dtype, copy=False)


def eight_bits(fractions: Floats) -> NDArray[np.uint8]:
    """(N, C, H, W) in [0, 1] to (N, H, W, C) in 0 … 255: ⌊255 x⌋, as ImageNet-C's script cuts.

    Values that are a level but for float32's rounding stay that level.

    >>> eight_bits(np.float32([[[[0.999, 1.0, 100 / 255]]]])).ravel().tolist()
    [254, 255, 100]
    """
    levels = np.clip(fractions * np.float32(255) + np.float32(1e-3), 0, 255)
    return np.ascontiguousarray(levels.astype(np.uint8).transpose(0, 2, 3, 1))


def ids_of(ids: Sequence[str] | None, count: int) -> list[str]:
    """One id per image; the positions 0, 1, … if none are given."""
    if ids is None:
        return [str(i) for i in range(count)]
    if isinstance(ids, str):
        raise InputError(f"images need one id each, got the text {ids!r}")
    listed = list(ids)
    if len(listed) != count:
        raise InputError(f"{count} images need {count} ids, got {len(listed)}")
    for i in listed:
        if not isinstance(i, str):
            raise InputError(f"image ids must be strings, got {type(i).__name__}: {i!r}")
    return listed


def check_values(lowest: float, highest: float, finite: bool) -> None:
    """Refuse a batch of fractions by its extremes."""
    if not finite:
        raise InputError("images must be finite, got NaN or infinity")
    if highest > 2:
        raise InputError(
            f"images must lie in [0, 1], got values up to {highest:g}: divide 0–255 by 255"
        )
    if lowest < -ROUNDING or highest > 1 + ROUNDING:
        raise InputError(f"images must lie in [0, 1], got {lowest:g} to {highest:g}")
