"""Which images make paths: pairs of rows of a test set, seeded, and the same however many.

The first k pairs are the same whatever number is asked for, so that a run can be continued and
made longer. Images are drawn without replacement: no image is in two pairs of any classes, nor
in two pairs of one class (within), nor twice on its side of a pair of classes (between).
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

Rows = NDArray[np.int64]
EACH = 200
"""Pixel paths per class within, and per pair of classes between (fridovich2022's code)."""
MOST = 10_000
"""Pixel paths unless more are asked for: CIFAR-10 has 2,000 within and 9,000 between; ImageNet
would have 25,000 and a hundred million."""
_CLASSES = 2000
"""Of more classes than this, so many are drawn for paths between them."""


def any_pairs(images: int, pairs: int | None = None, seed: int = 0) -> Rows:
    """(P, 2) rows of images of any classes; at most ⌊images/2⌋ pairs.

    >>> any_pairs(10, 2, seed=0).tolist() == any_pairs(10, 5, seed=0)[:2].tolist()
    True
    """
    there = images // 2
    wanted = there if pairs is None else pairs
    if not 1 <= wanted <= there:
        raise InputError(
            f"pairs must be between 1 and {there}, is {wanted}: {images} images are drawn "
            "without replacement"
        )
    order = np.random.default_rng((seed, 0)).permutation(images)
    return order[: 2 * wanted].reshape(wanted, 2).astype(np.int64)


def some_rows(images: int, count: int, seed: int = 0) -> Rows:
    """(min(count, images),) rows of single images, as for the Jacobian."""
    if count < 1:
        raise InputError(f"at least 1 image is needed, not {count}")
    return np.random.default_rng((seed, 1)).permutation(images)[:count].astype(np.int64)


def within_pairs(labels: NDArray[np.int64], pairs: int | None = None, seed: int = 0) -> Rows:
    """(P, 2) rows of images of one class, as many of each class as there are.

    By default 200 per class, at most half of a class's images and 10,000 in all.

    >>> labels = np.repeat([0, 1], 50)
    >>> found = within_pairs(labels, 6)
    >>> bool((labels[found[:, 0]] == labels[found[:, 1]]).all()), labels[found[:, 0]].tolist()
    (True, [0, 1, 0, 1, 0, 1])
    """
    classes = _classes(labels)
    sizes = [min(EACH, int((labels == c).sum()) // 2) for c in classes]

    def draw(at: int) -> Rows:
        rows = np.flatnonzero(labels == classes[at])
        order = np.random.default_rng((seed, 2, classes[at])).permutation(rows)
        return order[: len(order) // 2 * 2].reshape(-1, 2)

    return _in_turn(range(len(classes)), sizes, draw, pairs)


def between_pairs(labels: NDArray[np.int64], pairs: int | None = None, seed: int = 0) -> Rows:
    """(P, 2) rows of images of two classes, as many of each pair of classes as there are.

    By default 200 per pair of classes, at most the images of the smaller one and 10,000 in all.

    >>> labels = np.repeat([0, 1, 2], 5)
    >>> found = labels[between_pairs(labels, 3)]
    >>> sorted(map(tuple, found.tolist()))
    [(0, 1), (0, 2), (1, 2)]
    """
    classes = _classes(labels)
    if len(classes) < 2:
        raise InputError("paths between classes need images of two classes")
    rng = np.random.default_rng((seed, 3))
    if len(classes) > _CLASSES:
        classes = sorted(rng.permutation(classes)[:_CLASSES].tolist())
    first, second = np.triu_indices(len(classes), 1)
    order = rng.permutation(len(first))
    count = np.array([int((labels == c).sum()) for c in classes])
    sizes = np.minimum(EACH, np.minimum(count[first], count[second])).tolist()

    def draw(at: int) -> Rows:
        sides = []
        for side, which in enumerate((first[at], second[at])):
            pair = (seed, 4 + side, classes[first[at]], classes[second[at]])
            rows = np.flatnonzero(labels == classes[which])
            sides.append(np.random.default_rng(pair).permutation(rows))
        shorter = min(map(len, sides))
        return np.stack([side[:shorter] for side in sides], axis=1)

    return _in_turn(order.tolist(), sizes, draw, pairs)


def _classes(labels: NDArray[np.int64]) -> list[int]:
    classes = np.unique(labels[labels >= 0]).tolist()
    if not classes:
        raise InputError("pixel paths need labels: within a class, or between two")
    return [int(c) for c in classes]


def _in_turn(
    order: "list[int] | range", sizes: list[int], draw: Callable[[int], Rows], pairs: int | None
) -> Rows:
    """One pair of each group in turn, until ``pairs`` or all of them are drawn."""
    there = sum(sizes)
    wanted = min(there, MOST) if pairs is None else pairs
    if not 1 <= wanted <= there:
        raise InputError(f"pairs must be between 1 and {there}, is {wanted}, for these classes")
    drawn: dict[int, Rows] = {}
    found = np.empty((wanted, 2), dtype=np.int64)
    for at, (group, turn) in zip(range(wanted), _turns(order, sizes), strict=False):
        if group not in drawn:
            drawn[group] = draw(group)
        found[at] = drawn[group][turn]
    return found


def _turns(order: "list[int] | range", sizes: list[int]) -> Iterator[tuple[int, int]]:
    for turn in range(max(sizes)):
        yield from ((group, turn) for group in order if sizes[group] > turn)
