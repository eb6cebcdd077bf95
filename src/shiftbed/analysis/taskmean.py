"""Averages over (ID, OOD) pairs in which every task counts the same, with bootstrap intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskMean:
    """(quantities,): each quantity's mean over tasks of its mean over the task's pairs."""

    mean: Floats
    """NaN where no pair has a value."""
    low: Floats
    high: Floats
    """NaN where ``spread`` is 0: there is nothing to resample."""
    pairs: Integers
    """Pairs with a value."""
    tasks: Integers
    """Tasks with a value."""
    spread: Integers
    """Tasks with two or more units that differ: the others add nothing to the interval's width."""


def task_mean(
    values: Floats,
    tasks: Sequence[str],
    *,
    units: Sequence[str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> TaskMean:
    """Mean within each task, then over tasks, of (pairs, quantities) ``values``; NaN is left out.

    wenzel2022, Appendix A.2: Σ_i w_i·v_i with w_i = 1/|T_i|, here also divided by the number of
    tasks, which the printed formula forgets. The interval (none of the papers has one) resamples
    pairs within each task, percentiles of ``bootstrap`` draws. As a bootstrap of few values is too
    narrow, a task's deviations are widened by √(u/(u − 1)), u its number of units, and all by the
    quantile of Student's t over the normal one, with Welch's degrees of freedom of the tasks'
    variances v: (Σv)²/Σ(v²/(u − 1)). ``units`` names what is drawn instead of single pairs, such as
    the ID set: pairs that share one share networks. All draws are one matrix product per task.

    >>> found = task_mean(np.array([[0.2], [0.4], [0.9]]), ["a", "a", "b"])
    >>> round(float(found.mean[0]), 3), int(found.pairs[0]), int(found.tasks[0])
    (0.6, 3, 2)
    """
    check_level(level)
    if bootstrap < 1:
        raise InputError(f"an interval needs at least one resample, got {bootstrap}")
    if values.ndim != 2 or len(values) != len(tasks) or not len(values):
        raise InputError(f"values must be (pairs, quantities) of {len(tasks)} pairs")
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    parts = []
    for task in dict.fromkeys(tasks):
        rows = [i for i, one in enumerate(tasks) if one == task]
        names = [str(i) for i in rows] if units is None else [units[i] for i in rows]
        parts.append(_summed(filled[rows], there[rows].astype(np.float64), names))
    count = np.sum([part.varied > 0 for part in parts], axis=0)
    spread = np.sum([part.spread for part in parts], axis=0)
    drawn = _drawn(parts, bootstrap, np.random.default_rng(seed))
    tails = [(1 - level) / 2, (1 + level) / 2]
    with np.errstate(invalid="ignore"):
        mean = np.sum([part.mean for part in parts], axis=0) / count
        ends = np.quantile(drawn, tails, axis=0) * _student(parts, level) / count
        low, high = np.where(spread > 0, mean + ends, np.nan)
    pairs = there.sum(axis=0).astype(np.int64)
    return TaskMean(mean=mean, low=low, high=high, pairs=pairs, tasks=count, spread=spread)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task:
    """One task's units: what is drawn, its mean, and how it varies, for each quantity."""

    sizes: Floats
    """(units, quantities): pairs with a value."""
    off: Floats
    """(units, quantities): sums of the unit's values minus as many means."""
    mean: Floats
    """0 where the task has no value."""
    varied: Integers
    """Units with a value."""

    @property
    def spread(self) -> NDArray[np.bool_]:
        return np.asarray((self.varied > 1) & (np.abs(self.off).max(axis=0) > 1e-12))

    @property
    def widening(self) -> Floats:
        """√(u/(u − 1)), 0 for a single unit, which cannot be resampled."""
        more = np.maximum(self.varied, 2)
        return np.where(self.varied > 1, np.sqrt(more / (more - 1.0)), 0.0)


def _summed(values: Floats, there: Floats, units: Sequence[str]) -> _Task:
    sums, sizes = _by_unit(values, units), _by_unit(there, units)
    mean = sums.sum(axis=0) / np.maximum(sizes.sum(axis=0), 1.0)
    varied = (sizes > 0).sum(axis=0)
    return _Task(sizes=sizes, off=sums - mean * sizes, mean=mean, varied=varied)


def _by_unit(rows: Floats, units: Sequence[str]) -> Floats:
    """(units, quantities): sums of the rows of each unit."""
    at = {name: i for i, name in enumerate(dict.fromkeys(units))}
    if len(at) == len(units):
        return rows
    found = np.zeros((len(at), rows.shape[1]))
    np.add.at(found, [at[name] for name in units], rows)
    return found


def _drawn(parts: Sequence[_Task], draws: int, rng: np.random.Generator) -> Floats:
    """(draws, quantities): Σ over tasks of resampled means minus means, widened for few units.

    A draw without any value of a quantity deviates by nothing.
    """
    found = np.zeros((draws, len(parts[0].mean)))
    weights, moved = [], []
    for part in parts:
        units = len(part.sizes)
        if units < 2:
            continue
        drawn = rng.multinomial(units, np.full(units, 1.0 / units), size=draws).astype(np.float64)
        if (
            part.sizes == part.sizes[0, 0]
        ).all():  # every unit has every value: left for one product
            weights.append(drawn)
            moved.append(part.off * part.widening / (units * max(part.sizes[0, 0], 1.0)))
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            one = part.widening * (drawn @ part.off) / (drawn @ part.sizes)
        found += np.where(np.isfinite(one), one, 0.0)
    if weights:
        found += np.hstack(weights) @ np.vstack(moved)
    return found


def _student(parts: Sequence[_Task], level: float) -> Floats:
    """Student's quantile over the normal one, with Welch's degrees of freedom; 1 if unknown."""
    variance, weight = np.zeros(len(parts[0].mean)), np.zeros(len(parts[0].mean))
    for part in parts:
        size = np.maximum(part.sizes.sum(axis=0), 1.0)
        of_mean = (part.widening / size) ** 2 * (part.off**2).sum(axis=0)
        variance += of_mean
        weight += of_mean**2 / np.maximum(part.varied - 1, 1)
    dof = np.divide(variance**2, weight, out=np.full(len(weight), 1e9), where=weight > 0)
    return np.asarray(stdtrit(np.maximum(dof, 1.0), 0.5 + level / 2) / ndtri(0.5 + level / 2))
