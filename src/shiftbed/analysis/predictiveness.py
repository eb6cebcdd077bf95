"""Which metric predicts how a network does on OOD data? (wenzel2022, Section 4.3 and Appendix A)

For every (ID, OOD) pair the correlation of every two metrics over its networks; then averages over
pairs in which every task counts the same, with bootstrap intervals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.pairs import WHERE, PairTable
from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
METHODS = ("spearman", "pearson")
FEW = 3
"""Fewer networks than this have no correlation: two always correlate perfectly."""
REASONS = (
    "",
    "not measured",
    f"fewer than {FEW} networks have both",
    "one of the two is the same for all networks",
)
"""Why a pair has no correlation of two metrics; the index is what ``Correlations.reason`` holds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlations:
    """Correlations of every two metrics, pair by pair."""

    method: str
    metrics: tuple[str, ...]
    pairs: tuple[str, ...]
    tasks: tuple[str, ...]
    sources: tuple[str, ...]
    kinds: tuple[str, ...]
    r: Floats
    """(pairs, metrics, metrics), NaN where there is none."""
    n: NDArray[np.int64]
    """(pairs, metrics, metrics): networks with both."""
    reason: NDArray[np.int8]
    """(pairs, metrics, metrics): index into ``REASONS``."""

    def where(self, rows: NDArray[Any]) -> "Correlations":
        """Only some of the pairs."""
        index = np.arange(len(self.pairs))[rows]

        def some(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names[i] for i in index)

        return replace(
            self,
            pairs=some(self.pairs),
            tasks=some(self.tasks),
            sources=some(self.sources),
            kinds=some(self.kinds),
            r=self.r[index],
            n=self.n[index],
            reason=self.reason[index],
        )

    def index(self, metric: str) -> int:
        if metric not in self.metrics:
            raise unknown("metric of the study", metric, self.metrics)
        return self.metrics.index(metric)

    def column(self, a: str, b: str) -> Floats:
        """(pairs,): r of two metrics."""
        return self.r[:, self.index(a), self.index(b)]


def residual_name(target: str, given: str) -> str:
    """The column of what is left of one metric given another.

    >>> residual_name("ood:error", "id:error")
    'ood:error|id:error'
    """
    return f"{target}|{given}"


def correlations(
    pairs: Sequence[PairTable],
    *,
    method: str = "spearman",
    target: str = "ood:error",
    given: str | None = "id:error",
) -> Correlations:
    """Spearman's (average ranks for ties) or Pearson's r of every two metrics of every pair.

    Where a cell is missing, r is over the networks that have both (ranked among themselves). With
    ``given`` there is one more column, ``target|given``: the residuals of the linear regression of
    the target on it over a pair's networks. A metric's correlation with them is its *adjusted*
    predictiveness (Appendix A.2): the metric itself is not adjusted, so for Pearson's r this is the
    semi-partial correlation. Spearman's r of n networks is on average a little nearer to 0 than its
    limit: for a normal pair 6/(π(n+1))·(asin ρ + (n−2)·asin(ρ/2)), not 6/π·asin(ρ/2).

    >>> pair = PairTable(task="t", source="a", target="b", models=("x", "y", "z", "w"),
    ...                  metrics=("id:error", "ood:error"),
    ...                  values=np.array([[0.1, 0.3], [0.2, 0.5], [0.3, 0.4], [0.4, 0.6]]))
    >>> round(float(correlations([pair]).column("id:error", "ood:error")[0]), 6)
    0.8
    """
    if method not in METHODS:
        raise unknown("correlation", method, METHODS)
    if not pairs:
        raise InputError("predictiveness needs at least one (ID, OOD) pair")
    names = list(dict.fromkeys(m for pair in pairs for m in pair.metrics))
    for name in (target,) if given is None else (target, given):
        if name not in names:
            raise unknown("metric of the study", name, names)
    names.sort(key=lambda name: WHERE.index(name.partition(":")[0]))
    tables = [_spread(pair, names) for pair in pairs]
    if given is not None:
        i, j = names.index(target), names.index(given)
        tables = [np.column_stack([t, _residuals(t[:, i], t[:, j])]) for t in tables]
        names.append(residual_name(target, given))
    size = (len(pairs), len(names), len(names))
    r, n, reason = np.full(size, np.nan), np.zeros(size, np.int64), np.zeros(size, np.int8)
    for rows, block in _whole(tables):
        r[rows], reason[rows] = _matrices(block, method)
        n[rows] = block.shape[1]
    for row, table in enumerate(tables):
        if not np.isfinite(table).all():
            r[row], n[row], reason[row] = _pairwise(table, method)
    alone = np.arange(len(names))
    r[:, alone, alone] = np.where(reason[:, alone, alone] > 0, np.nan, 1.0)  # not 1 − 1e-16
    return Correlations(
        method=method,
        metrics=tuple(names),
        pairs=tuple(pair.name for pair in pairs),
        tasks=tuple(pair.task for pair in pairs),
        sources=tuple(pair.source for pair in pairs),
        kinds=tuple(pair.kind for pair in pairs),
        r=r,
        n=n,
        reason=reason,
    )


def why_undefined(found: Correlations, a: str, b: str) -> str:
    """Why a correlation is missing in how many pairs, '' if it is missing in none."""
    code = found.reason[:, found.index(a), found.index(b)]
    counts = np.bincount(code, minlength=len(REASONS))
    parts = [f"{REASONS[i]} in {counts[i]}" for i in range(1, len(REASONS)) if counts[i]]
    return f"{'; '.join(parts)} of {len(code)} pairs" if parts else ""


def _spread(pair: PairTable, names: list[str]) -> Floats:
    """(networks, metrics) of the study's metrics, NaN where the pair has none of one."""
    if list(pair.metrics) == names:
        return pair.values
    table = np.full((len(pair.models), len(names)), np.nan)
    table[:, [names.index(m) for m in pair.metrics]] = pair.values
    return table


def _residuals(y: Floats, x: Floats) -> Floats:
    """y − ŷ of least squares of y on x where both are there; exactly 0 where nothing is left.

    If x is the same for all networks it explains nothing: y − ȳ.
    """
    both = np.isfinite(x) & np.isfinite(y)
    found = np.full(len(y), np.nan)
    if both.sum() < 2:
        return found
    dx, dy = x[both] - x[both].mean(), y[both] - y[both].mean()
    varied = np.abs(dx).max() > 1e-12 * max(1.0, float(np.abs(x[both]).max()))
    left = dy - (float(dx @ dy) / float(dx @ dx)) * dx if varied else dy
    found[both] = np.where(np.abs(left).max() > 1e-10 * np.abs(dy).max(), left, 0.0)
    return found


def _whole(tables: list[Floats]) -> Iterator[tuple[list[int], Floats]]:
    """Pairs without missing cells, together where they have as many networks."""
    groups: dict[int, list[int]] = {}
    for row, table in enumerate(tables):
        if np.isfinite(table).all():
            groups.setdefault(len(table), []).append(row)
    for rows in groups.values():
        yield rows, np.stack([tables[row] for row in rows])


def _matrices(block: Floats, method: str) -> tuple[Floats, NDArray[np.int8]]:
    """(pairs, metrics, metrics) correlations of (pairs, networks, metrics), and reasons."""
    columns = np.ascontiguousarray(block.transpose(0, 2, 1))
    z, constant = _standard(columns, method)
    r = np.clip(z @ z.transpose(0, 2, 1), -1.0, 1.0)
    reason = np.zeros(r.shape, np.int8)
    reason[constant[:, :, None] | constant[:, None, :]] = 3
    if block.shape[1] < FEW:
        reason[:] = 2
    r[reason > 0] = np.nan
    return r, reason


def _standard(columns: Floats, method: str) -> tuple[Floats, NDArray[np.bool_]]:
    """(…, n) values or ranks, centred and of length 1 along the last axis; which are constant.

    A column is constant if its spread is within rounding of its size.
    """
    size = np.abs(columns).max(axis=-1)
    constant = np.ptp(columns, axis=-1) <= 1e-13 * size
    values = average_ranks(columns) if method == "spearman" else columns
    z = values - values.mean(axis=-1, keepdims=True)
    length = np.sqrt(np.einsum("...i,...i->...", z, z))
    z /= np.where(constant | (length == 0.0), 1.0, length)[..., None]
    return z, constant | (length == 0.0)


def average_ranks(values: Floats) -> Floats:
    """Ranks from 1 along the last axis; equal values share the mean of their ranks.

    >>> average_ranks(np.array([[0.3, 0.1, 0.3, 0.2]])).tolist()
    [[3.5, 1.0, 3.5, 2.0]]
    """
    n = values.shape[-1]
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    ranks = np.empty(values.shape)
    tied = ordered[..., 1:] == ordered[..., :-1]
    place = np.broadcast_to(np.arange(1.0, n + 1.0), values.shape)
    if tied.any():
        edge = np.ones((*values.shape[:-1], 1), dtype=bool)
        starts, ends = np.concatenate([edge, ~tied], -1), np.concatenate([~tied, edge], -1)
        first = np.maximum.accumulate(np.where(starts, place, 0.0), axis=-1)
        behind = np.where(ends, place, n + 1.0)[..., ::-1]
        place = (first + np.minimum.accumulate(behind, axis=-1)[..., ::-1]) / 2.0
    np.put_along_axis(ranks, order, place, axis=-1)
    return ranks


def _pairwise(table: Floats, method: str) -> tuple[Floats, NDArray[np.int64], NDArray[np.int8]]:
    """One pair with missing cells: each two metrics over the networks that have both.

    Metrics with the same networks are done together, so there are as many matrix products as pairs
    of patterns of missing cells, not of metrics.
    """
    there = np.isfinite(table)
    k = table.shape[1]
    r, n = np.full((k, k), np.nan), np.zeros((k, k), np.int64)
    reason = np.full((k, k), 1, np.int8)
    patterns, which = np.unique(there, axis=1, return_inverse=True)
    which = which.reshape(-1)
    columns = [np.flatnonzero(which == p) for p in range(patterns.shape[1])]
    for p, a in enumerate(columns):
        for q, b in enumerate(columns[p:], p):
            if not patterns[:, p].any() or not patterns[:, q].any():
                continue
            rows = patterns[:, p] & patterns[:, q]
            here, mirrored = np.ix_(a, b), np.ix_(b, a)
            n[here] = n[mirrored] = rows.sum()
            if rows.sum() < FEW:
                reason[here] = reason[mirrored] = 2
                continue
            some, code = _matrices(table[np.ix_(rows, np.concatenate([a, b]))][None], method)
            part = np.s_[0, : len(a), len(a) :]
            r[here], reason[here] = some[part], code[part]
            r[mirrored], reason[mirrored] = some[part].T, code[part].T
    return r, n, reason


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
