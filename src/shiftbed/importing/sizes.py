"""Test-set sizes from the intervals that are printed beside accuracies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level, clopper_pearson

Floats = NDArray[np.float64]
Interval = Callable[[Floats, Floats, float], tuple[Floats, Floats]]
_CELLS = 200
_LARGEST = 2.0**31 - 1


@dataclass(frozen=True, kw_only=True)
class RecoveredSize:
    """The number of images that explains the intervals of one setting."""

    n: int
    """The roundest number from ``least`` to ``most``, or the known one."""
    least: int
    most: int
    methods: tuple[str, ...]
    """The intervals that fit what is printed, to its last digit; none if only about."""


def wilson(p: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """Wilson's score interval: (p + z²/2n ± z√(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    z = float(ndtri(0.5 + level / 2))
    centre, scale = p + z**2 / (2 * n), 1 + z**2 / n
    half = z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    return (centre - half) / scale, (centre + half) / scale


def normal(p: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """The normal (Wald) interval p ± z√(p(1−p)/n)."""
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(p * (1 - p) / n)
    return p - half, p + half


METHODS: Mapping[str, Interval] = {
    "Clopper–Pearson": clopper_pearson,
    "Wilson": wilson,
    "normal": normal,
}


def recover_size(
    accuracy: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    resolution: float = 0.0,
    level: float = 0.95,
    known: int = 0,
) -> RecoveredSize | None:
    """The size of the test set on which models have these accuracies and intervals.

    For each kind of interval the width high − low, which falls with n, gives n; that n gives an
    interval, which must be the printed one up to ``resolution`` (a unit of its last digit). What
    all models allow together is the answer, or ``known`` if its intervals are that wide. None if no
    kind of interval fits, even within a twentieth of its width, the models disagree, or the digits
    leave a factor of two open.

    >>> low, high = clopper_pearson([0.76, 0.63], 10_000)
    >>> recover_size([0.76, 0.63], low, high).n
    10000
    >>> recover_size([0.76, 0.63], low.round(4), high.round(4), resolution=1e-4).methods
    ('Clopper–Pearson', 'Wilson', 'normal')
    """
    check_level(level)
    p, a, b = (np.asarray(one, np.float64).ravel() for one in (accuracy, low, high))
    there = np.flatnonzero(np.isfinite(p + a + b) & (b > a) & (a <= p) & (p <= b))
    there = there[np.linspace(0, len(there) - 1, min(len(there), _CELLS)).astype(int)]
    if not len(there):
        return None
    p, a, b = p[there], a[there], b[there]
    if known:
        fitting = [n for n, m in METHODS.items() if _allows(m, p, a, b, known, level, resolution)]
        if fitting:
            return RecoveredSize(n=known, least=known, most=known, methods=tuple(fitting))
    slack = resolution + 1e-12
    ranges, far = {}, {}
    for name, method in METHODS.items():
        middle = _solve(method, p, b - a, level)
        ends = [
            _solve(method, np.clip(p + at, 0.0, 1.0), np.maximum(b - a + wide, 1e-15), level)
            for at in (-slack / 2, slack / 2)
            for wide in (-slack, slack)
        ]
        lower, upper = method(p, middle, level)
        miss = np.maximum(np.abs(lower - a), np.abs(upper - b))
        if not np.isfinite(miss).all():
            continue
        ranges[name] = (np.min(ends, axis=0), np.max(ends, axis=0), middle)
        far[name] = miss
    exact = [name for name, miss in far.items() if (miss <= 1.5 * slack + 1e-9).all()]
    common = [(float(ranges[n][0].max()), float(ranges[n][1].min())) for n in exact]
    common = [(least, most) for least, most in common if least <= most * (1 + 1e-6)]
    if common:
        found = _whole(min(a for a, _ in common), max(b for _, b in common))
        if found is not None and found[2] <= 2 * found[1]:
            return RecoveredSize(n=found[0], least=found[1], most=found[2], methods=tuple(exact))
    near = {n: float(np.median(m / (b - a))) for n, m in far.items()}
    best = min(near, key=lambda name: near[name], default=None)
    if best is None or near[best] > 0.05:
        return None
    middle = ranges[best][2]
    if middle.max() > 1.2 * middle.min():
        return None
    found = _whole(float(middle.min()), float(middle.max()))
    if found is None:
        found = (round(float(np.median(middle))),) * 3
    return RecoveredSize(n=found[0], least=found[1], most=found[2], methods=())


def _allows(
    method: Interval, p: Floats, low: Floats, high: Floats, n: int, level: float, resolution: float
) -> bool:
    """Whether intervals of n images are as wide as the printed ones, of which each end may be
    rounded to the nearest digit or outwards."""
    lower, upper = method(p, np.full(len(p), float(n)), level)
    miss = np.abs((upper - lower) - (high - low))
    return bool((miss <= 2 * resolution + 1e-9).all() and (2 * resolution < high - low).all())


def _solve(method: Interval, p: Floats, width: Floats, level: float) -> Floats:
    """The n whose interval about p is that wide, by bisection of log n."""
    low, high = np.zeros(len(p)), np.full(len(p), np.log(_LARGEST))
    for _ in range(70):
        middle = (low + high) / 2
        lower, upper = method(p, np.exp(middle), level)
        wider = upper - lower > width
        low, high = np.where(wider, middle, low), np.where(wider, high, middle)
    return np.asarray(np.exp((low + high) / 2))


def _whole(least: float, most: float) -> tuple[int, int, int] | None:
    """The roundest whole number in the range, and the range."""
    low, high = int(np.ceil(least * (1 - 1e-6))), int(np.floor(most * (1 + 1e-6)))
    if low > high or low < 1:
        return None
    unit = 10 ** len(str(high))
    while (high // unit) * unit < low:
        unit //= 10
    middle = round((low + high) / 2 / unit) * unit
    return (middle if low <= middle <= high else (high // unit) * unit), low, high
