"""A share of every class: attacks are dear."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.errors import InputError


def balanced_subset(
    labels: ArrayLike, share: float, seed: int, ids: Sequence[str]
) -> NDArray[np.int64]:
    """Rows of a class-balanced subset, ascending: of a class with n examples, share · n (rounded,
    at least one).

    taori2020 attacked most models on 10 % of the set. Which examples are taken depends on their
    ids and the seed alone, not on the order of the rows, nor on the other classes; a smaller share
    is part of a larger one.

    >>> balanced_subset([0, 0, 0, 0, 1, 1], 0.5, seed=0, ids=list("abcdef")).size
    3
    """
    classes = np.asarray(labels)
    if classes.ndim != 1 or len(classes) != len(ids):
        raise InputError(f"{len(ids)} ids do not go with labels of shape {classes.shape}")
    if not np.issubdtype(classes.dtype, np.integer):
        raise InputError(f"labels must be whole numbers, got {classes.dtype}")
    if not 0 < share <= 1:
        raise InputError(f"share of a subset must be above 0 and at most 1, got {share}")
    if len(set(ids)) != len(ids):
        raise InputError("ids of a subset must be different from each other")
    ranks = np.array([_rank(seed, example) for example in ids], dtype=np.uint64)
    order = np.lexsort((ranks, classes))
    _, counts = np.unique(classes, return_counts=True)
    within = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.maximum(1, np.floor(share * counts + 0.5).astype(np.int64))
    return np.sort(order[within < np.repeat(taken, counts)]).astype(np.int64)


def _rank(seed: int, example: str) -> int:
    found = hashlib.blake2b(f"{seed}\0{example}".encode(), digest_size=8, person=b"subset")
    return int.from_bytes(found.digest(), "little")
