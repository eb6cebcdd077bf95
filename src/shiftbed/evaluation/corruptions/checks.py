"""What a batch of images must be, said in one line where it is not."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions.jit import kernel

SMALLEST = 8
ONE = np.uint32(0x3F800000)


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse what is not (N, C, H, W) with 1 or 3 channels and sides of at least 8 pixels.

    >>> check_shape((2, 3, 224, 224))
    """
    if len(shape) != 4:
        raise InputError(f"images must have shape (N, C, H, W), got {shape}")
    if shape[1] not in (1, 3):
        hint = "; channels come second" if shape[3] in (1, 3) else ""
        raise InputError(f"images must have 1 or 3 channels, got {shape[1]} in {shape}{hint}")
    if min(shape[2:]) < SMALLEST:
        raise InputError(
            f"images must be at least {SMALLEST} pixels high and wide, got {shape[2]}×{shape[3]}"
        )


def check_ids(ids: Sequence[str], count: int) -> list[str]:
    """The ids as a list of strings, one per image."""
    if isinstance(ids, str):
        raise InputError("ids must be a sequence with one id per image, got one string")
    listed = list(ids)
    if len(listed) != count:
        raise InputError(f"{count} images need {count} ids, got {len(listed)}")
    for i in listed:
        if not isinstance(i, str):
            raise InputError(f"image ids must be strings, got {type(i).__name__}: {i!r}")
    return listed


@kernel
def out_of_range(bits: NDArray[np.uint32]) -> bool:
    """Whether a float32, given as its bits, lies outside [0, 1] or is not a number.

    Bits order like values from 0 to 1; everything above is larger, negative or NaN.
    """
    most = np.uint32(0)
    for i in range(bits.size):
        most = max(most, bits[i])
    return bool(most > ONE)


def check_array(x: NDArray[np.float32]) -> None:
    """Refuse an array that is not float32 (N, C, H, W)."""
    if x.dtype == np.uint8:
        raise InputError("images must be float32 in [0, 1], got uint8: divide by 255")
    if x.dtype != np.float32:
        raise InputError(f"images must be float32 in [0, 1], got {x.dtype}")
    check_shape(x.shape)


def check_range(x: NDArray[np.float32]) -> None:
    """Refuse values outside [0, 1]; a hundred-thousandth beyond is taken for rounding."""
    if not x.size:
        return
    values = x if x.flags.c_contiguous else x.transpose(0, 2, 3, 1)
    if out_of_range(np.ascontiguousarray(values).view(np.uint32).reshape(-1)):
        check_values(float(x.min()), float(x.max()), bool(np.isfinite(x).all()))


def check_values(lowest: float, highest: float, finite: bool) -> None:
    """Refuse a batch by its extremes."""
    if not finite:
        raise InputError("images must be finite, got NaN or infinity")
    if highest > 2:
        raise InputError(
            f"images must lie in [0, 1], got values up to {highest:g}: divide 0–255 by 255"
        )
    if lowest < -1e-5 or highest > 1 + 1e-5:
        raise InputError(f"images must lie in [0, 1], got {lowest:g} to {highest:g}")
