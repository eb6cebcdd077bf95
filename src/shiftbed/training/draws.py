"""Random numbers of training examples: functions of (seed, epoch, example), not of an order.

A key per example hashes all that its draws may depend on; Philox turns key and position into words,
as for corruptions. So batch size, order and the number of workers change nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.evaluation.corruptions.philox import fill_normals, fill_words, image_keys

Keys = NDArray[np.uint64]


def keys_of(rows: Iterable[int], seed: int, what: str, epoch: int, view: int = 0) -> Keys:
    """(B,) one key per example, for one use of randomness in one epoch.

    >>> a, b = keys_of([3, 5], 0, "flip", 1), keys_of([5, 3], 0, "flip", 1)
    >>> (a == b[::-1]).all(), (a != keys_of([3, 5], 0, "flip", 2)).all()
    (np.True_, np.True_)
    """
    return image_keys([str(int(row)) for row in rows], seed, f"{what}|{epoch}|{view}", 0)


def uniforms(keys: Keys, count: int) -> NDArray[np.float64]:
    """(B, count) numbers strictly between 0 and 1.

    >>> u = uniforms(keys_of(range(1000), 0, "doctest", 0), 2)
    >>> u.shape, bool(abs(u.mean() - 0.5) < 0.03)
    ((1000, 2), True)
    """
    words = np.empty((len(keys), count), np.uint32)
    for key, row in zip(keys, words, strict=True):
        fill_words(key, 0, row)
    found: NDArray[np.float64] = (words.astype(np.float64) + 0.5) / 2.0**32
    return found


def normals(keys: Keys, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """(B, *shape) standard normals.

    >>> normals(keys_of([1, 2], 0, "doctest", 0), (3, 8, 8)).shape
    (2, 3, 8, 8)
    """
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
