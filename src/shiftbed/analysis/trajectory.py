"""ρ along training: runs of checkpoints, averaged over runs by ID accuracy (andreassen2021).

andreassen2021 (Section 4, Figures 1 and 2) draws effective robustness against ID accuracy along
fine-tuning, the mean over runs in 100 bins of ID accuracy with its standard deviation, and quotes
the maximum ρ (``peak``). That maximum is biased by its own noise; ``held_out_peak`` is not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level
from shiftbed.errors import InputError, unknown

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


def average_runs(
    x: ArrayLike, rho: ArrayLike, run: ArrayLike, *, bins: int = 100, fewest: int = 1
) -> Binned:
    """Mean and standard deviation of ρ in bins of equal width between the ends of x.

    As ``scipy.stats.binned_statistic`` bins: [a, b), the last one with its right end. Bins that
    fewer than ``fewest`` runs reach are left out.

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
    full = runs >= fewest
    return Binned(
        centre=centre[full], mean=mean[full], std=spread[full], n=n[used][full], runs=runs[full]
    )


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


@dataclass(frozen=True, kw_only=True)
class AlongTraining:
    """A mean with its interval."""

    value: float
    low: float
    high: float


RULES = {
    "runs": "step chosen on the other half of the runs",
    "images": "step chosen on the other half of the images",
}


@dataclass(frozen=True, kw_only=True)
class HeldOutPeak:
    """ρ at the start, at its peak and at the end, the peak where others have it."""

    start: AlongTraining
    peak: AlongTraining
    final: AlongTraining
    lost: AlongTraining
    """Peak minus final."""
    step: float
    """Where the mean of all rows is largest."""
    chosen: tuple[float, ...]
    """The step chosen for each half of the runs or images."""
    rule: str
    """How the step was chosen."""
    largest: float
    """The plain maximum of the mean ρ, which is biased upwards by its own noise."""
    n: int
    """Runs, or halves of the images."""


def held_out_peak(
    rho: ArrayLike,
    *,
    steps: ArrayLike | None = None,
    errors: ArrayLike | None = None,
    across: str = "runs",
    level: float = 0.95,
) -> HeldOutPeak:
    """The peak of ρ (K, steps) along training, without choosing its step by its own noise.

    The maximum over steps is too large: of 50 steps with no robustness at all the best looks 0.5 to
    2 points robust. So the step is chosen where the mean of one half of the rows is largest, and ρ
    is read there in the other half; then the halves change places, and the two means are averaged.
    ``across`` says what the K rows are. ``runs``: the interval is ± t·s√(1/n₁ + 1/n₂)/2, s the
    spread of runs about their half's mean, K − 2 degrees of freedom (from two runs the spread of
    these, with 1; no interval, NaN, where all are equal). ``images``: ρ on two halves of the test
    images, with ``errors`` (2, steps) its standard errors there: ± z·√(e₁² + e₂²)/2. (Leaving out
    one run at a time is unbiased too, but its runs all choose the same step for the same noise:
    84 % are covered with five runs.)

    >>> found = held_out_peak([[0.0, 0.3, 0.1], [0.0, 0.2, 0.1], [0.1, 0.1, 0.0], [0.0, 0.4, 0.1]])
    >>> round(found.peak.value, 3), found.chosen, found.rule
    (0.25, (1.0, 1.0), 'step chosen on the other half of the runs')
    """
    values = np.asarray(rho, dtype=np.float64)
    if across not in RULES:
        raise unknown("rule for the peak", across, RULES)
    if values.ndim != 2 or len(values) < 2 or not np.isfinite(values).all():
        raise InputError("a peak needs ρ of two or more runs or halves at the same steps")
    k, many = values.shape
    at = np.arange(many, dtype=np.float64) if steps is None else np.asarray(steps, np.float64)
    if at.shape != (many,):
        raise InputError(f"steps must have {many} entries, has shape {at.shape}")
    noise = None if errors is None else np.asarray(errors, np.float64)
    if across == "images" and (k != 2 or noise is None or noise.shape != values.shape):
        raise InputError("the peak on held-out images needs two halves, each with its errors")
    half = np.arange(k) % 2
    best = [int(values[half != h].mean(axis=0).argmax()) for h in (0, 1)]
    places = np.array(best)[half]
    rows, sizes = np.arange(k), np.bincount(half)

    def mean(of: Floats, where: NDArray[np.int64], also: bool = False) -> AlongTraining:
        means = np.array([of[half == h].mean() for h in (0, 1)])
        centre = float(means.mean())
        if across == "images":
            assert noise is not None
            variance = float((noise[rows, where] ** 2).sum() + also * (noise[:, -1] ** 2).sum()) / 4
            wide = float(ndtri(0.5 + check_level(level) / 2))
        else:
            off = of - (means[half] if k > 2 else centre)
            dof = max(k - 2, 1)
            variance = float((off**2).sum()) / dof * float((1 / sizes).sum()) / 4
            wide = float(stdtrit(dof, 0.5 + check_level(level) / 2))
        end = wide * variance**0.5 if variance > 0 else float("nan")
        return AlongTraining(value=centre, low=centre - end, high=centre + end)

    first, last = np.zeros(k, np.int64), np.full(k, many - 1)
    return HeldOutPeak(
        start=mean(values[:, 0], first),
        peak=mean(values[rows, places], places),
        final=mean(values[:, -1], last),
        lost=mean(values[rows, places] - values[:, -1], places, also=True),
        step=float(at[values.mean(axis=0).argmax()]),
        chosen=tuple(float(at[one]) for one in best),
        rule=RULES[across],
        largest=float(values.mean(axis=0).max()),
        n=k,
    )
