"""Which models of two testbeds are the same."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SHARED = 3
"""Test sets that both must have been evaluated on."""
WITHIN = 0.002
"""Root mean square of the differences in accuracy that evaluating again makes at most."""


def same_models(
    value: Floats, families: Sequence[str | None], other: Floats, others: Sequence[str | None]
) -> list[int | None]:
    """For each of the other models the one that it is, judged by what both answer.

    ``value`` (M, S) and ``other`` (N, S) are accuracies on the same test sets. Two models are the
    same if they are of one architecture family and their accuracies on at least three shared test
    sets differ by at most 0.2 points (root mean square): the same weights, evaluated by other
    people. The nearest one counts.

    >>> here, there = np.array([[0.7613, 0.632, 0.241]]), np.array([[0.7615, 0.632, 0.2405]])
    >>> same_models(here, ["ResNet"], there, ["ResNet"]), same_models(here, ["A"], there, ["B"])
    ([0], [None])
    """
    found: list[int | None] = []
    architecture = np.array([_architecture(one) for one in families])
    for row, family in zip(other, others, strict=True):
        rows = np.flatnonzero((architecture == _architecture(family)) & (family is not None))
        gap = value[rows] - row
        shared = np.isfinite(gap).sum(axis=1)
        near = np.sqrt(np.nansum(gap**2, axis=1) / np.maximum(shared, 1))
        near[shared < SHARED] = np.inf
        best = int(near.argmin()) if len(near) else -1
        found.append(int(rows[best]) if best >= 0 and near[best] <= WITHIN else None)
    return found


def _architecture(family: str | None) -> str:
    """A family without its training source."""
    return "" if family is None else family.partition(" (")[0]
