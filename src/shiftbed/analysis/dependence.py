"""Averages and correlations of units that are not independent.

Pairs of a task share ID sets and OOD sets (wenzel2022, Section 3), checkpoints share a run. Taking
such units as independent gives intervals that are too narrow: here whole ID sets, OOD sets and runs
are drawn or left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level, pearson
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
    crossed: Sequence[str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> TaskMean:
    """Mean within each task, then over tasks, of (pairs, quantities) ``values``; NaN is left out.

    wenzel2022, Appendix A.2: Σ_i w_i·v_i with w_i = 1/|T_i|, here also divided by the number of
    tasks, which the printed formula forgets. The interval (none of the papers has one) resamples
    within each task, percentiles of ``bootstrap`` draws. As a bootstrap of few values is too
    narrow, a task's deviations are widened by √(u/(u − 1)), u its number of units, and all by the
    quantile of Student's t over the normal one, with Welch's degrees of freedom of the tasks'
    variances v: (Σv)²/Σ(v²/(u − 1)). All draws are one matrix product.

    What is drawn: single pairs; or all pairs of one of ``units``, such as an ID set; or, with
    ``crossed`` (OOD sets) beside ``units`` (ID sets), both. Then v_ij = m + a_i + b_j + c_ij is
    fitted by least squares; the a's and the b's, as they move the mean, are drawn with replacement
    (a test set that is ID in one pair and OOD in another is drawn once, with both of its effects)
    and scaled to

        Var(m̂) = Σ_g u_g² G/(G − 1) summed over the sets' effects + σ_c²·(1/pairs − κ),

    κ being how much of c's noise is in the fitted effects: unbiased for independent a, b and c, and
    never less than taking pairs as independent (Owen 2007, for two-way resampling; Cameron, Gelbach
    and Miller 2011, for the variance).

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
        here = filled[rows], there[rows].astype(np.float64)
        beside = None if crossed is None else [crossed[i] for i in rows]
        parts.append(_one_way(*here, names) if beside is None else _two_way(*here, names, beside))
    count = np.sum([part.there for part in parts], axis=0)
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
class _Block:
    """Units drawn together: a draw moves the task's mean by Σ w·moves / Σ w·sizes."""

    moves: Floats
    """(units, quantities)"""
    sizes: Floats | None
    """(units, quantities) where units count differently, else None: moves are shares already."""
    dof: Floats
    """(quantities,): units that have a value, minus 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task:
    """One task's mean of each quantity, and what moves it."""

    mean: Floats
    """0 where the task has no value."""
    there: NDArray[np.bool_]
    spread: NDArray[np.bool_]
    blocks: tuple[_Block, ...]
    variance: tuple[Floats, ...]
    """Of the mean, by block."""


def _one_way(values: Floats, there: Floats, units: Sequence[str]) -> _Task:
    sums, sizes = _by_unit(values, units), _by_unit(there, units)
    size = np.maximum(sizes.sum(axis=0), 1.0)
    mean = sums.sum(axis=0) / size
    off = sums - mean * sizes
    varied = (sizes > 0).sum(axis=0)
    more = np.maximum(varied, 2)
    widening = np.where(varied > 1, np.sqrt(more / (more - 1.0)), 0.0)
    alike = bool((sizes == sizes[0, 0]).all())
    block = _Block(
        moves=off * widening / (size if alike else 1.0),
        sizes=None if alike else sizes,
        dof=varied - 1.0,
    )
    return _Task(
        mean=mean,
        there=varied > 0,
        spread=np.asarray((varied > 1) & (np.abs(off).max(axis=0) > 1e-12)),
        blocks=(block,) if len(sizes) > 1 else (),
        variance=(((widening / size) ** 2 * (off**2).sum(axis=0)),) if len(sizes) > 1 else (),
    )


def _by_unit(rows: Floats, units: Sequence[str]) -> Floats:
    """(units, quantities): sums of the rows of each unit."""
    at = {name: i for i, name in enumerate(dict.fromkeys(units))}
    if len(at) == len(units):
        return rows
    found = np.zeros((len(at), rows.shape[1]))
    np.add.at(found, [at[name] for name in units], rows)
    return found


def _two_way(values: Floats, there: Floats, first: Sequence[str], second: Sequence[str]) -> _Task:
    """ID sets × OOD sets; with one set on a side there is nothing to cross."""
    sides = [list(dict.fromkeys(side)) for side in (first, second)]
    if min(map(len, sides)) < 2:
        return _one_way(values, there, first if len(sides[0]) > 1 else second)
    quantities = values.shape[1]
    shared = bool(set(first) & set(second))
    groups = [[*sides[0], *sides[1]]] if shared else sides
    unit = [{name: i for i, name in enumerate(dict.fromkeys(group))} for group in groups]
    moves = [np.zeros((len(of), quantities)) for of in unit]
    dof = [np.ones(quantities) for _ in unit]
    mean, spread = np.zeros(quantities), np.zeros(quantities, dtype=bool)
    patterns, which = np.unique(there, axis=1, return_inverse=True)
    for p in range(patterns.shape[1]):
        rows = np.flatnonzero(patterns[:, p]).tolist()
        columns = np.flatnonzero(which.reshape(-1) == p)
        if not len(rows):
            continue
        here = values[rows][:, columns]
        mean[columns] = here.mean(axis=0)
        off = here - mean[columns]
        spread[columns] = (len(rows) > 1) & (np.abs(off).max(axis=0) > 1e-12)
        of = [first[i] for i in rows], [second[i] for i in rows]
        found, variance = _effects(off, of, shared)
        square = sum((np.array(list(part.values())) ** 2).sum(axis=0) for part in found)
        scale = np.sqrt(variance / np.where(square > 0, square, 1.0))
        for part, to, free, at in zip(found, moves, dof, unit, strict=True):
            for name, effect in part.items():
                to[at[name], columns] = effect * scale
            free[columns] = max(len(part) - 1, 1)
    blocks = [_Block(moves=m, sizes=None, dof=d) for m, d in zip(moves, dof, strict=True)]
    return _Task(
        mean=mean,
        there=np.asarray(there.any(axis=0)),
        spread=spread,
        blocks=tuple(blocks),
        variance=tuple((m**2).sum(axis=0) for m in moves),
    )


def _effects(
    off: Floats, sides: tuple[Sequence[str], Sequence[str]], shared: bool
) -> tuple[list[dict[str, Floats]], Floats]:
    """How much each set moves the mean of ``off`` (pairs, quantities), and that mean's variance."""
    pairs = len(off)
    names = [list(dict.fromkeys(side)) for side in sides]
    columns = [np.array([[one == name for name in n] for one in s], float)
               for s, n in zip(sides, names, strict=True)]  # fmt: skip
    design = np.hstack(columns)
    inverse = np.linalg.pinv(design)
    share = (design.sum(axis=0) / pairs)[:, None] * (inverse - inverse.mean(axis=1, keepdims=True))
    every = [*names[0], *names[1]]
    groups = [list(dict.fromkeys(every))] if shared else names
    rows = (
        [range(len(every))] if shared else [range(len(names[0])), range(len(names[0]), len(every))]
    )
    found, variance, noise = [], np.zeros(off.shape[1]), 0.0
    for group, mine in zip(groups, rows, strict=True):
        summed = np.array([share[[k for k in mine if every[k] == g]].sum(axis=0) for g in group])
        summed -= summed.mean(axis=0)
        widened = len(group) / (len(group) - 1) if len(group) > 1 else 0.0
        effects = summed @ off
        variance += widened * (effects**2).sum(axis=0)
        noise += widened * float((summed**2).sum())
        found.append(dict(zip(group, effects, strict=True)))
    free = pairs - int(np.linalg.matrix_rank(design))
    left = ((off - design @ (inverse @ off)) ** 2).sum(axis=0) / free if free > 0 else 0.0
    alone = (off**2).sum(axis=0) / max(pairs * (pairs - 1), 1)
    return found, np.maximum(variance + left * (1 / pairs - noise), alone)


def _drawn(parts: Sequence[_Task], draws: int, rng: np.random.Generator) -> Floats:
    """(draws, quantities): Σ over tasks of resampled means minus means, widened for few units.

    A draw without any value of a quantity deviates by nothing.
    """
    found = np.zeros((draws, len(parts[0].mean)))
    weights, moved = [], []
    for block in (block for part in parts for block in part.blocks):
        units = len(block.moves)
        drawn = rng.multinomial(units, np.full(units, 1.0 / units), size=draws).astype(np.float64)
        if block.sizes is None:  # every unit counts the same: left for one product
            weights.append(drawn)
            moved.append(block.moves)
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            one = (drawn @ block.moves) / (drawn @ block.sizes)
        found += np.where(np.isfinite(one), one, 0.0)
    if weights:
        found += np.hstack(weights) @ np.vstack(moved)
    return found


def _student(parts: Sequence[_Task], level: float) -> Floats:
    """Student's quantile over the normal one, with Welch's degrees of freedom; 1 if unknown."""
    variance, weight = np.zeros(len(parts[0].mean)), np.zeros(len(parts[0].mean))
    for part in parts:
        for block, of_mean in zip(part.blocks, part.variance, strict=True):
            variance += of_mean
            weight += of_mean**2 / np.maximum(block.dof, 1)
    dof = np.divide(variance**2, weight, out=np.full(len(weight), 1e9), where=weight > 0)
    return np.asarray(stdtrit(np.maximum(dof, 1.0), 0.5 + level / 2) / ndtri(0.5 + level / 2))


def clustered_pearson(
    a: ArrayLike, b: ArrayLike, units: Sequence[str], level: float = 0.95
) -> tuple[float, float, float, int, int]:
    """Pearson's r, the ends of its interval, n and the number of units that are independent.

    Rows of one unit (checkpoints of a run) are not independent: the standard error of artanh r is
    the jackknife's that leaves out whole units, (U − 1)/U·Σ(z_u − z̄)², with U − 1 degrees of
    freedom. Where every row is a unit of its own it is Fisher's 1/√(n − 3), as in ``pearson``.
    Fewer than four units have no interval.

    >>> x, y = [1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 6]
    >>> clustered_pearson(x, y, list("abcdef"))[3:], clustered_pearson(x, y, list("aabbcc"))[3:]
    ((6, 6), (6, 3))
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not len(x) == len(y) == len(units):
        raise InputError(f"{len(units)} units for {len(x)} and {len(y)} values")
    both = np.isfinite(x) & np.isfinite(y)
    x, y, of = x[both], y[both], np.array([str(u) for u in units])[both]
    r, low, high, n = pearson(x, y, level)
    names = np.unique(of)
    count = len(names)
    if count == n or not np.isfinite(r):
        return r, low, high, n, count
    with np.errstate(divide="ignore"):
        left = np.arctanh([pearson(x[of != u], y[of != u], level)[0] for u in names])
        centre = float(np.arctanh(r))
    if count < 4 or not np.isfinite([*left, centre]).all():
        return r, float("nan"), float("nan"), n, count
    error = np.sqrt((count - 1) / count * float(((left - left.mean()) ** 2).sum()))
    half = float(stdtrit(count - 1, 0.5 + check_level(level) / 2)) * error
    return r, float(np.tanh(centre - half)), float(np.tanh(centre + half)), n, count
