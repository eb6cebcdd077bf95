"""Images the corruption tests share."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.photographs import pictures


def batch(count: int, height: int, width: int, channels: int = 3) -> NDArray[np.float32]:
    """[0, 1] images (N, C, H, W) as the pipeline hands them over: rows of pixels in memory."""
    size = max(height, width)
    pixels = pictures(count, size, seed=1)[:, :height, :width, :channels]
    return (np.ascontiguousarray(pixels) * np.float32(1 / 255)).transpose(0, 3, 1, 2)


def names(count: int) -> list[str]:
    return [f"image {i}" for i in range(count)]
