"""Who was right together on which example: counts of two and three models, one bit an answer.

A row of 50,000 answers is 782 words of 64 bits. Two models are right together as often as the AND
of their rows has ones; nothing else is needed for dominance, κ and McNemar's test, and triplets
need only the AND of three. Rows are taken in tiles that stay in the second-level cache, and tiles
are counted by threads, as numpy lets go of the interpreter inside.

Triplets: for every three models and each of the eight patterns of right and wrong, the pattern's
probability under the ID distribution is set against that under the OOD distribution. Distributional
closeness, the other premise of the linear trend, holds where these points lie in a cone around
y = x (andreassen2021, Appendix C.10 and Figure 20, after Mania and Sra). The original definition of
the triplet events and of the cone could not be checked. The rule here: a point (p, q) is inside the
cone of factor c if p/c ≤ q ≤ c·p, so that (0, 0) is inside and (0, q) is not. Its share depends on
c, which is reported with it.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level
from shiftbed.errors import InputError

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

TILE = 1 << 16
"""Words of a tile, 512 KiB: larger leaves the cache, smaller keeps threads waiting in turn."""
LONGEST = 1 << 11
"""Words of a row that are taken at once, so that a tile has several rows."""
AT_ONCE = 1 << 24
"""Answers that are compared at once with those of one model."""
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


def same_with(classes: NDArray[np.integer[Any]], others: NDArray[np.integer[Any]]) -> Counts:
    """(M, K): the same of M models with K others, from classes (M, N) and (K, N).

    >>> same_with(np.array([[0, 4, 5]]), np.array([[0, 3, 5], [0, 4, 5]])).tolist()
    [[2, 3]]
    """
    rows, narrow = _narrow(classes), _narrow(others)
    step = max(1, AT_ONCE // max(1, len(narrow) * _cores()))

    def count(at: int) -> Counts:
        block = narrow[:, at : at + step]
        found = [np.count_nonzero(block == row, axis=1) for row in rows[:, at : at + step]]
        return np.array(found, dtype=np.int64).reshape(len(rows), len(narrow))

    with ThreadPoolExecutor(_cores()) as pool:
        whole = sum(pool.map(count, range(0, narrow.shape[1], step)), np.int64(0))
    return np.zeros((len(rows), len(narrow)), dtype=np.int64) + whole


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


Floats = NDArray[np.float64]
PATTERNS = ("000", "001", "010", "011", "100", "101", "110", "111")
"""Right (1) and wrong (0) of the first, second and third model."""
_BINS = np.geomspace(1.0, 1e4, 4001)
"""Factors by which probabilities may differ, finely, so that any share's cone can be told."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Triplets:
    """All triplets of some models, ID against OOD."""

    models: int
    triplets: int
    events: int
    """8 patterns of each triplet."""
    factor: float
    """c of the cone p/c ≤ q ≤ c·p."""
    inside: int
    clearly_outside: int
    """Events that image noise alone does not put outside, at ``level`` each."""
    level: float
    n_id: int
    n_ood: int
    by_pattern: NDArray[np.int64]
    """(4,): events inside, by how many of the three are right."""
    ratios: NDArray[np.int64]
    """Events by the factor between their two probabilities, over ``_BINS``; the last are more."""
    sample_id: Floats
    sample_ood: Floats
    sample_right: NDArray[np.int64]
    """A bounded random sample of events, for drawing, with how many of the three are right."""

    @property
    def share_inside(self) -> float:
        return self.inside / self.events

    def factor_for(self, share: float) -> float:
        """The smallest factor (to 0.3 %) whose cone holds that share of events; ∞ if none."""
        at = int(np.searchsorted(np.cumsum(self.ratios), share * self.events))
        return float(_BINS[at + 1]) if at + 1 < len(_BINS) else float("inf")


def pattern_counts(single: Counts, pair: Counts, first: int, triple: Counts, n: int) -> Counts:
    """(8, T) counts of ``PATTERNS`` for the triplets (first, j, k), first < j < k, in order.

    ``single`` (M,) and ``pair`` (M, M) count right answers, ``triple`` (R, R) those of ``first``
    with later ones, R = M − first − 1 (see ``triple_counts``). Inclusion and exclusion: nothing
    beyond the triple ANDs is counted.
    """
    size = len(triple)
    j, k = np.triu_indices(size, 1)
    all_three = triple[j, k]
    later = first + 1
    ij, ik, jk = pair[first, later + j], pair[first, later + k], pair[later + j, later + k]
    i, j, k = np.broadcast_to(single[first], ij.shape), single[later + j], single[later + k]
    out = np.empty((8, len(all_three)), dtype=np.int64)
    out[7] = all_three
    out[6], out[5], out[3] = ij - all_three, ik - all_three, jk - all_three
    out[4], out[2], out[1] = (
        i - ij - ik + all_three,
        j - ij - jk + all_three,
        k - ik - jk + all_three,
    )
    out[0] = n - out[1:].sum(axis=0)
    return out


_RIGHT = np.array([name.count("1") for name in PATTERNS])


def triplets(
    right_id: NDArray[np.bool_],
    right_ood: NDArray[np.bool_],
    *,
    factor: float = 2.0,
    level: float = 0.95,
    sample: int = 4000,
    seed: int = 0,
) -> Triplets:
    """All triplets of the M models of (M, N_id) and (M, N_ood); memory grows with M², not M³.

    ``clearly_outside`` allows for image noise: the logarithm of (k+½)/(n+½) on either side has
    variance of about 1/(k+½) − 1/(n+½), and an event is clearly outside if its log ratio exceeds
    log c by more than z times the root of their sum.
    """
    m = len(right_id)
    if m != len(right_ood):
        raise InputError(f"{m} models on ID but {len(right_ood)} on OOD data")
    if m < 3:
        raise InputError(f"triplets need at least three models, got {m}")
    if not right_id.shape[1] or not right_ood.shape[1]:
        raise InputError("triplets need at least one example on either side")
    if not factor > 1.0:
        raise InputError(f"the factor of the cone must be above 1, got {factor:g}")
    z = float(ndtri(0.5 + check_level(level) / 2))
    sides = [(pack(right), right.shape[1]) for right in (right_id, right_ood)]
    pairs = [joint_counts(words) for words, _ in sides]
    total = m * (m - 1) * (m - 2) // 6
    rng = np.random.default_rng(seed)
    tally = _Tally(factor=factor, z=z, keep=min(1.0, sample / (8 * total)), rng=rng)
    streams = [triple_counts(words) for words, _ in sides]
    for (first, a), (_, b) in zip(*streams, strict=True):
        counts = [
            pattern_counts(np.diag(pair), pair, first, triple, n)
            for pair, triple, (_, n) in zip(pairs, (a, b), sides, strict=True)
        ]
        tally.add(counts[0], counts[1], sides[0][1], sides[1][1])
    return Triplets(
        models=m,
        triplets=total,
        events=8 * total,
        factor=factor,
        inside=int(tally.inside.sum()),
        clearly_outside=tally.outside,
        level=level,
        n_id=sides[0][1],
        n_ood=sides[1][1],
        by_pattern=tally.inside,
        ratios=tally.ratios,
        sample_id=np.concatenate([s[0] for s in tally.kept]),
        sample_ood=np.concatenate([s[1] for s in tally.kept]),
        sample_right=np.concatenate([s[2] for s in tally.kept]),
    )


class _Tally:
    """Running counts over triplets; one first model's at a time."""

    def __init__(self, *, factor: float, z: float, keep: float, rng: np.random.Generator) -> None:
        self.factor, self.z, self.keep, self.rng = factor, z, keep, rng
        self.inside = np.zeros(4, dtype=np.int64)
        self.outside = 0
        self.ratios = np.zeros(len(_BINS), dtype=np.int64)
        self.kept: list[tuple[Floats, Floats, NDArray[np.int64]]] = []

    def add(self, k_id: Counts, k_ood: Counts, n_id: int, n_ood: int) -> None:
        p, q = k_id / n_id, k_ood / n_ood
        inside = (q <= self.factor * p) & (p <= self.factor * q)
        for ones in range(4):
            self.inside[ones] += int(inside[ones == _RIGHT].sum())
        log = np.log((k_ood + 0.5) / (n_ood + 0.5)) - np.log((k_id + 0.5) / (n_id + 0.5))
        variance = 1 / (k_id + 0.5) - 1 / (n_id + 0.5) + 1 / (k_ood + 0.5) - 1 / (n_ood + 0.5)
        beyond = np.abs(log) - np.log(self.factor) > self.z * np.sqrt(np.maximum(variance, 0))
        self.outside += int((beyond & ~inside).sum())
        low, high = np.minimum(p, q), np.maximum(p, q)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(high == 0, 1.0, high / low)
        where = np.searchsorted(_BINS[1:], ratio.ravel())
        self.ratios += np.bincount(where, minlength=len(_BINS))
        chosen = self.rng.random(p.shape) < self.keep
        self.kept.append((p[chosen], q[chosen], np.repeat(_RIGHT, chosen.sum(axis=1))))
