"""Parts of a data set: held out for testing, kept for validation, and the rest to train on.

Examples are ranked by a keyed hash of their ids, and a part is the first of that ranking. So it
depends on which examples there are, not on their order, and a smaller part is part of a larger one.
"""

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from shiftbed.catalogue.entries import PARTS
from shiftbed.errors import unknown

Rows = NDArray[np.int64]
TRAINING, VALIDATION, HELD_OUT = PARTS
SHARES = {HELD_OUT: 0.2, VALIDATION: 0.1}
"""Of every class, where nothing else is said: ``pacs/photo/validation@DIR``."""


def ranked(examples: Sequence[str], key: str) -> Rows:
    """Rows in the order of the keyed hash of their ids (BLAKE2b, 64 bits)."""
    own = hashlib.blake2b(key.encode(), digest_size=16).digest()
    digests = b"".join(
        hashlib.blake2b(one.encode(), digest_size=8, key=own).digest() for one in examples
    )
    return np.argsort(np.frombuffer(digests, dtype=">u8"), kind="stable").astype(np.int64)


def exact(share: float, n: int) -> int:
    """⌊share · n + ½⌋ in exact arithmetic on the share as it is written.

    >>> exact(0.1, 5), exact(0.05, 7291), exact(1.0, 3)
    (1, 365, 3)
    """
    return floor(Fraction(repr(float(share))) * n + Fraction(1, 2))


def of_each_class(order: Rows, labels: Rows, size: Callable[[int], int]) -> Rows:
    """The first ``size(n)`` of each class's n rows, in the order given."""
    own = labels[order]
    taken = np.zeros(len(order), dtype=bool)
    for label in np.unique(own):
        at = np.flatnonzero(own == label)
        taken[at[: size(len(at))]] = True
    return order[taken]


def held_out_rows(examples: Sequence[str], labels: Rows, share: float) -> Rows:
    """``exact(share, n)`` of the n examples of every class, to be kept out of training."""
    return of_each_class(ranked(examples, "held-out"), labels, lambda n: exact(share, n))


def part_rows(
    examples: Sequence[str],
    labels: Rows,
    part: str,
    held_out: float | None = None,
    validation: float | None = None,
) -> Rows:
    """Rows of one part, in order; both shares are of every class's examples.

    What is held out is drawn first, whatever is kept for validation: the test part stays the same.

    >>> examples, labels = [f"{i}.png" for i in range(10)], np.repeat([0, 1], 5)
    >>> [len(part_rows(examples, labels, part, 0.2, 0.2)) for part in PARTS]
    [6, 2, 2]
    """
    if part not in PARTS:
        raise unknown("part", part, PARTS)
    free = np.ones(len(examples), dtype=bool)
    rows = {HELD_OUT: held_out_rows(examples, labels, held_out or 0.0)}
    free[rows[HELD_OUT]] = False
    sizes = {
        int(label): int(n) for label, n in zip(*np.unique(labels, return_counts=True), strict=True)
    }
    order = ranked(examples, "validation")
    order = order[free[order]]
    kept = [
        of[: exact(validation or 0.0, sizes[label])]
        for label in sizes
        for of in [order[labels[order] == label]]
    ]
    rows[VALIDATION] = np.concatenate([*kept, np.empty(0, np.int64)])
    free[rows[VALIDATION]] = False
    rows[TRAINING] = np.flatnonzero(free)
    return np.sort(rows[part])
