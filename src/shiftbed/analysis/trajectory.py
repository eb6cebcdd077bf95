"""ρ along training: runs of checkpoints, averaged over runs by ID accuracy (andreassen2021).

andreassen2021 (Section 4, Figures 1 and 2) draws effective robustness against ID accuracy along
fine-tuning, the mean over runs in 100 bins of ID accuracy with its standard deviation, and quotes
the maximum ρ.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Binned:
    """Runs averaged in bins of ID accuracy that hold something."""

    centre: Floats
    mean: Floats
    std: Floats
    """Standard deviation over the checkpoints of a bin, 0 where there is one."""
    n: NDArray[np.int64]
    """Checkpoints in a bin."""
    runs: NDArray[np.int64]
    """Runs in a bin."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The maximum of the binned ρ, with both errors that are quoted for it."""

    value: float
    at: float
    """ID accuracy of the bin."""
    std_there: float
    """Standard deviation in that bin."""
    std_largest: float
    """Largest standard deviation over all bins, the error andreassen2021 quotes."""
    n: int


def average_runs(x: ArrayLike, rho: ArrayLike, run: ArrayLike, *, bins: int = 100) -> Binned:
    """Mean and standard deviation of ρ in bins of equal width between the ends of x.

    As ``scipy.stats.binned_statistic`` bins: [a, b), the last one with its right end.

    >>> found = average_runs([0.1, 0.1, 0.9], [0.0, 0.2, 0.1], ["a", "b", "a"], bins=2)
    >>> found.mean.round(3).tolist(), found.std.round(3).tolist(), found.runs.tolist()
    ([0.1, 0.1], [0.1, 0.0], [2, 1])
    """
    at, y, who = np.asarray(x, float), np.asarray(rho, float), np.asarray(run)
    if not (at.ndim == 1 and at.shape == y.shape == who.shape):
        raise InputError("x, rho and run must be lists of one length")
    there = np.isfinite(at) & np.isfinite(y)
    at, y, who = at[there], y[there], who[there]
    if not at.size:
        raise InputError("no checkpoint has both an ID accuracy and ρ")
    if bins < 1:
        raise InputError(f"bins must be at least 1, is {bins}")
    first, last = float(at.min()), float(at.max())
    if first == last:
        first, last = first - 0.5, last + 0.5
    edges = np.linspace(first, last, bins + 1)
    place = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, bins - 1)
    n = np.bincount(place, minlength=bins)
    used = np.flatnonzero(n)
    mean = np.bincount(place, weights=y, minlength=bins)[used] / n[used]
    spread = np.array([y[place == b].std() for b in used])
    runs = np.array([len(np.unique(who[place == b])) for b in used])
    centre = (edges[used] + edges[used + 1]) / 2
    return Binned(centre=centre, mean=mean, std=spread, n=n[used], runs=runs)


def peak(binned: Binned) -> Peak:
    """The bin with the largest mean ρ.

    >>> round(peak(average_runs([0.1, 0.5, 0.9], [0.0, 0.3, 0.1], list("aaa"), bins=3)).value, 2)
    0.3
    """
    best = int(np.argmax(binned.mean))
    return Peak(
        value=float(binned.mean[best]),
        at=float(binned.centre[best]),
        std_there=float(binned.std[best]),
        std_largest=float(binned.std.max()),
        n=int(binned.n[best]),
    )
