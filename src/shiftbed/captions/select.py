"""From matches to a balanced test set: who is drawn does not depend on the order of the rows.

Every image has a rank, a keyed hash of its identity; a class's test images are those of the
smallest ranks. Which file or line a row is on plays no part.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

__all__ = ["Selection", "check_sizes", "ranks", "select"]

Ranks = NDArray[np.uint64]


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
    labels: NDArray[np.int32]
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
    rank: Ranks,
    code: NDArray[np.int32],
    classes: int,
    *,
    min_matches: int = 100,
    per_class: int = 50,
) -> Selection:
    """Draw ``per_class`` images of every class that has at least ``min_matches``.

    ``rank`` and ``code`` (n,): the matched rows, with their class or a negative number for
    several. shi2023, Appendix B.2: at least 100 labelled images, 50 of them held out.
    """
    check_sizes(min_matches, per_class)
    order = np.argsort(rank, kind="stable")
    rank, code = rank[order], code[order]
    first = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1]))) if len(rank) else order
    if not len(rank):
        low = high = np.zeros(0, dtype=np.int32)
    else:
        low, high = np.minimum.reduceat(code, first), np.maximum.reduceat(code, first)
    sure = (low == high) & (low >= 0)
    image, label = rank[first][sure], low[sure]
    matches = np.bincount(label, minlength=classes).astype(np.int64)
    kept = matches >= min_matches
    by_class = np.argsort(label, kind="stable")  # ranks stay ascending within a class
    starts = np.concatenate(([0], np.cumsum(matches)[:-1]))
    place = np.arange(len(label)) - starts[label[by_class]]
    drawn = np.sort(by_class[(place < per_class) & kept[label[by_class]]])
    return Selection(
        ranks=image[drawn],
        labels=label[drawn],
        matches=matches,
        kept=kept,
        duplicates=len(rank) - len(first),
        conflicts=int((low != high).sum()),
    )


def check_sizes(min_matches: int, per_class: int) -> None:
    """A class that is kept must have as many images as are drawn."""
    if per_class < 1:
        raise InputError(f"--per-class must be at least 1, got {per_class}")
    if min_matches < per_class:
        raise InputError(
            f"--min-matches must be at least --per-class ({per_class}), got {min_matches}"
        )
