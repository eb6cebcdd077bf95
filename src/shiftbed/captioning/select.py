"""From matches to a balanced test set: who is drawn does not depend on the order of the rows.

Every image has a rank, a keyed hash of its identity; a class's test images are those of the
smallest ranks. Which file or line a row is on plays no part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

Ranks = NDArray[np.uint64]
Codes = NDArray[np.int32]
_STEPS = 64
_SHIFT = np.uint64(58)


def ranks(identities: Iterable[str], seed: int) -> Ranks:
    """(n,) 64-bit ranks: BLAKE2b of the identity, keyed with the seed.

    >>> ranks(["path:a.jpg"], 0)
    array([2340582878342727136], dtype=uint64)
    """
    key = str(seed).encode()[:64]
    data = b"".join(
        blake2b(one.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for one in identities
    )
    return np.frombuffer(data, dtype=">u8").astype(np.uint64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Which images are drawn, and what the rows came to."""

    ranks: Ranks
    """(kept classes · per class,), ascending."""
    labels: Codes
    """Their classes."""
    matches: NDArray[np.int64]
    """(classes,): images of which exactly this class matches."""
    kept: NDArray[np.bool_]
    """(classes,): whether there are enough of them."""
    duplicates: int
    """Matched rows beyond the first of an image."""
    conflicts: int
    """Images that several rows give different classes; they get none."""


def select(
    pieces: Iterable[tuple[Ranks, Codes]],
    classes: int,
    *,
    min_matches: int = 100,
    per_class: int = 50,
) -> Selection:
    """Draw ``per_class`` images of every class that has at least ``min_matches``.

    ``pieces``: ranks and codes of matched rows, a code being their class or a negative number for
    several. shi2023, Appendix B.2: at least 100 labelled images, 50 of them held out. Ranks are
    gone through from small to large, a 64th of them at a time, to need little memory.
    """
    check_sizes(min_matches, per_class)
    given = list(pieces)
    matches = np.zeros(classes, dtype=np.int64)
    drawn: list[Ranks] = []
    labels: list[Codes] = []
    rows = images = conflicts = 0
    for step in range(_STEPS):
        rank, code = _between(given, step)
        if not len(rank):
            continue
        first = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1])))
        low, high = np.minimum.reduceat(code, first), np.maximum.reduceat(code, first)
        sure = (low == high) & (low >= 0)
        image, label = rank[first][sure], low[sure]
        place = matches[label] + _earlier(label, classes)
        drawn.append(image[place < per_class])
        labels.append(label[place < per_class])
        matches += np.bincount(label, minlength=classes)
        rows, images = rows + len(rank), images + len(first)
        conflicts += int((low != high).sum())
    kept = matches >= min_matches
    rank = np.concatenate([np.zeros(0, dtype=np.uint64), *drawn])
    code = np.concatenate([np.zeros(0, dtype=np.int32), *labels])
    return Selection(
        ranks=rank[kept[code]],
        labels=code[kept[code]],
        matches=matches,
        kept=kept,
        duplicates=rows - images,
        conflicts=conflicts,
    )


def _between(pieces: Sequence[tuple[Ranks, Codes]], step: int) -> tuple[Ranks, Codes]:
    """The rows whose ranks are in one of the ``_STEPS`` stretches, sorted by rank."""
    inside = [(rank >> _SHIFT) == step for rank, _ in pieces]
    rank = np.concatenate(
        [np.zeros(0, dtype=np.uint64), *(p[0][i] for p, i in zip(pieces, inside, strict=True))]
    )
    code = np.concatenate(
        [np.zeros(0, dtype=np.int32), *(p[1][i] for p, i in zip(pieces, inside, strict=True))]
    )
    order = np.argsort(rank)
    return rank[order], code[order]


def _earlier(labels: Codes, classes: int) -> NDArray[np.int64]:
    """How many of the same label stand before each.

    >>> _earlier(np.array([2, 0, 2, 2]), 3).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=classes)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    earlier = np.empty(len(labels), dtype=np.int64)
    earlier[order] = np.arange(len(labels)) - starts[labels[order]]
    return earlier


def check_sizes(min_matches: int, per_class: int) -> None:
    """A class that is kept must have as many images as are drawn."""
    if per_class < 1:
        raise InputError(f"--per-class must be at least 1, got {per_class}")
    if min_matches < per_class:
        raise InputError(
            f"--min-matches must be at least --per-class ({per_class}), got {min_matches}"
        )
