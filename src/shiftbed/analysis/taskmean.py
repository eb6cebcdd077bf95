"""Averages over (ID, OOD) pairs in which every task counts the same, with bootstrap intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level
from shiftbed.errors import InputError

__all__ = ["TaskMean", "task_mean"]

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
    if values.ndim != 2 or len(values) != len(tasks) or not len(values):
        raise InputError(f"values must be (pairs, quantities) of {len(tasks)} pairs")
    rng = np.random.default_rng(seed)
    width = values.shape[1]
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    total, drawn = np.zeros(width), np.zeros((bootstrap, width))
    count, spread = np.zeros(width, np.int64), np.zeros(width, np.int64)
    variance, weight = np.zeros(width), np.zeros(width)
    for task in dict.fromkeys(tasks):
        rows = np.array([i for i, one in enumerate(tasks) if one == task])
        names = [str(i) for i in rows] if units is None else [units[i] for i in rows]
        sums, sizes = _by_unit(filled[rows], names), _by_unit(there[rows].astype(float), names)
        known = sizes.sum(axis=0) > 0
        with np.errstate(invalid="ignore"):
            mean = np.where(known, sums.sum(axis=0) / sizes.sum(axis=0), 0.0)
        total += mean
        count += known
        varied = (sizes > 0).sum(axis=0)
        off = np.where(sizes > 0, sums - mean * sizes, 0.0)
        spread += (varied > 1) & (np.abs(off).max(axis=0) > 1e-12)
        with np.errstate(invalid="ignore", divide="ignore"):
            of_mean = (off**2).sum(axis=0) / sizes.sum(axis=0) ** 2 * varied / (varied - 1)
            of_mean = np.where(varied > 1, of_mean, 0.0)
            variance += of_mean
            weight += np.where(varied > 1, of_mean**2 / (varied - 1), 0.0)
        drawn += _deviations(sums, sizes, mean, varied, bootstrap, rng)
    with np.errstate(invalid="ignore"):
        mean = total / count
        tails = [(1 - level) / 2, (1 + level) / 2]
        ends = np.quantile(drawn, tails, axis=0) if bootstrap else np.full((2, width), np.nan)
        ends = ends * _student(variance**2 / weight, level)
        ends = np.where(spread > 0, mean + ends / count, np.nan)
    pairs = there.sum(axis=0).astype(np.int64)
    return TaskMean(mean=mean, low=ends[0], high=ends[1], pairs=pairs, tasks=count, spread=spread)


def _student(dof: Floats, level: float) -> Floats:
    """Student's quantile over the normal one, 1 where the degrees of freedom are unknown."""
    known = np.where(np.isfinite(dof), np.maximum(dof, 1.0), 1e9)
    return np.asarray(stdtrit(known, 0.5 + level / 2) / ndtri(0.5 + level / 2))


def _by_unit(rows: Floats, units: Sequence[str]) -> Floats:
    """(units, quantities): sums of the rows of each unit."""
    at = {name: i for i, name in enumerate(dict.fromkeys(units))}
    if len(at) == len(units):
        return rows
    found = np.zeros((len(at), rows.shape[1]))
    np.add.at(found, [at[name] for name in units], rows)
    return found


def _deviations(
    sums: Floats,
    sizes: Floats,
    mean: Floats,
    varied: Integers,
    draws: int,
    rng: np.random.Generator,
) -> Floats:
    """(draws, quantities): resampled task means minus the task mean, widened for few units.

    A draw without any value of a quantity deviates by nothing.
    """
    units = len(sums)
    if units < 2 or not draws:
        return np.zeros((draws, sums.shape[1]))
    weights = rng.multinomial(units, np.full(units, 1.0 / units), size=draws).astype(np.float64)
    alike = (sizes == sizes[0, 0]).all()
    if alike:  # every unit has every value: one scale for all
        scale = np.sqrt(units / (units - 1.0)) / (units * max(sizes[0, 0], 1.0))
        return np.asarray(weights @ ((sums - mean * sizes) * scale))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = weights @ (sums - mean * sizes) / (weights @ sizes)
        widened = np.sqrt(varied / (varied - 1.0)) * drawn
    return np.where((varied > 1) & np.isfinite(widened), widened, 0.0)
