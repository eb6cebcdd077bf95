"""Who was right on which example, one bit each: counting together without multiplying.

A row of 50,000 answers is 782 words of 64 bits. Two models are right together as often as the AND
of their rows has ones; nothing else is needed for dominance, κ and McNemar's test, and triplets
need only the AND of three. Rows are taken in tiles that stay in the second-level cache, and tiles
are counted by threads, as numpy lets go of the interpreter inside.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

TILE = 1 << 16
"""Words of a tile, 512 KiB: larger leaves the cache, smaller keeps threads waiting in turn."""
LONGEST = 1 << 11
"""Words of a row that are taken at once, so that a tile has several rows."""
_LANES = 255
"""Bytes of 0 or 1 that can be added up in a byte."""
_EVEN = np.uint64(0x00FF00FF00FF00FF)
_SPREAD = np.uint64(0x0001000100010001)


def pack(right: NDArray[np.bool_]) -> Words:
    """(M, N) booleans as (M, ⌈N/64⌉) words; bits past N are 0.

    >>> pack(np.array([[True, False, True]])).shape
    (1, 1)
    >>> ones(pack(np.array([[True, False, True]]))).tolist()
    [2]
    """
    if right.ndim != 2:
        raise InputError(f"results must be (models, examples), have shape {right.shape}")
    m, n = right.shape
    width = -(-n // 64)
    padded = np.zeros((m, width * 8), dtype=np.uint8)
    padded[:, : -(-n // 8)] = np.packbits(right, axis=1)
    return padded.view(np.uint64)


def ones(words: Words) -> Counts:
    """Ones in each row."""
    total: Counts = np.bitwise_count(words).sum(axis=-1, dtype=np.int64)
    return total


def joint_counts(words: Words, *, threads: int | None = None) -> Counts:
    """(M, M): ones in the AND of every two rows; on the diagonal the rows' own ones.

    >>> joint_counts(pack(np.array([[1, 1, 0], [1, 0, 1]], dtype=bool))).tolist()
    [[2, 1], [1, 2]]
    """
    block = max(1, min(words.shape[1], LONGEST))
    out = _upper(_and_tile, words, max(1, TILE // block), block, threads)
    out[np.diag_indices(len(words))] = ones(words)
    return out


def _and_tile(words: Words, start: int) -> NDArray[np.uint32]:
    """(M − 1, R): joint counts of rows i < j, for the rows j from ``start`` on."""
    m = len(words)
    both = np.empty((m - start, words.shape[1]), dtype=np.uint64)
    counted = np.empty(both.shape, dtype=np.uint8)
    sums = np.zeros((m - 1, m - start), dtype=np.uint32)
    for i in range(m - 1):
        first = max(i + 1, start)
        some = m - first
        np.bitwise_and(words[first:], words[i], out=both[:some])
        np.bitwise_count(both[:some], out=counted[:some])
        np.add.reduce(counted[:some], axis=1, dtype=np.uint32, out=sums[i, first - start :])
    return sums


def triple_counts(words: Words) -> Iterator[tuple[int, Counts]]:
    """For each first row i, (R, R): ones in the AND of rows i, i+1+j and i+1+k, R = M − i − 1.

    On the diagonal are the counts of rows i and i+1+j. One i is in memory at a time.

    >>> rows = pack(np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=bool))
    >>> [(i, both.tolist()) for i, both in triple_counts(rows)]
    [(0, [[1, 1], [1, 2]]), (1, [[2]])]
    """
    for i in range(len(words) - 1):
        yield i, joint_counts(words[i + 1 :] & words[i])


def same_counts(classes: NDArray[np.integer[Any]], *, threads: int | None = None) -> Counts:
    """(M, M): examples for which two models answer the same class, from classes (M, N).

    Class numbers are made as narrow as they allow and compared directly: one comparison of bytes
    or 16-bit numbers is cheaper than ten bit planes.

    >>> same_counts(np.array([[0, 3, 5], [0, 4, 5]])).tolist()
    [[3, 2], [2, 3]]
    """
    if classes.ndim != 2:
        raise InputError(f"classes must be (models, examples), have shape {classes.shape}")
    narrow = _narrow(classes)
    out = _upper(_equal_tile, narrow, 128, 8 * 8 * _LANES, threads)
    out[np.diag_indices(len(classes))] = classes.shape[1]
    return out


def _equal_tile(classes: NDArray[Any], start: int) -> NDArray[np.uint32]:
    """(M − 1, R): examples where rows i < j are equal, for the rows j from ``start`` on."""
    m, n = classes.shape
    same = np.zeros((m - start, -(-n // (8 * _LANES)) * 8 * _LANES), dtype=np.bool_)
    lanes = same.view(np.uint64).reshape(m - start, -1, _LANES)
    eight = np.zeros((m - 1, *lanes.shape[:2]), dtype=np.uint64)  # sums of ≤ 255, side by side
    for i in range(m - 1):
        first = max(i + 1, start)
        some = m - first
        np.equal(classes[first:], classes[i], out=same[:some, :n])
        np.add.reduce(lanes[:some], axis=2, out=eight[i, first - start :])
    four = (eight & _EVEN) + ((eight >> np.uint64(8)) & _EVEN)
    sums: NDArray[np.uint32] = ((four * _SPREAD) >> np.uint64(48)).sum(axis=2, dtype=np.uint32)
    return sums


def _narrow(classes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    if not classes.size:
        return classes
    low, high = int(classes.min()), int(classes.max())
    for kind in (np.uint8, np.int16, np.uint16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.ascontiguousarray(classes, dtype=kind)
    return np.ascontiguousarray(classes)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _upper(
    count: Callable[[NDArray[Any], int], NDArray[np.uint32]],
    rows: NDArray[Any],
    height: int,
    block: int,
    threads: int | None,
) -> Counts:
    """(M, M), symmetric: ``count`` of all pairs, tile by tile and block of columns by block."""
    m, width = rows.shape
    out = np.zeros((m, m), dtype=np.int64)
    tiles = [
        (start, min(start + height, m), at)
        for start in reversed(range(0, m, height))  # the last have the most rows before them
        for at in range(0, width, block)
    ]

    def work(tile: tuple[int, int, int]) -> NDArray[np.uint32]:
        start, stop, at = tile
        return count(rows[:stop, at : at + block], start)

    workers = min(len(tiles), threads or _cores())
    if workers <= 1:
        for tile in tiles:
            out[: tile[1] - 1, tile[0] : tile[1]] += work(tile)
    else:
        with ThreadPoolExecutor(workers) as pool:
            for tile, sums in zip(tiles, pool.map(work, tiles), strict=True):
                out[: tile[1] - 1, tile[0] : tile[1]] += sums
    out += np.triu(out, 1).T
    return out
