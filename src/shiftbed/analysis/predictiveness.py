"""Which metric predicts how a network does on OOD data? (wenzel2022, Section 4.3 and Appendix A)

For every (ID, OOD) pair the correlation of every two metrics over its networks. Averages over pairs
and their intervals are in ``dependence``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    targets: tuple[str, ...]
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
            targets=some(self.targets),
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
        targets=tuple(pair.target for pair in pairs),
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

    Values are equal if they differ by no more than rounding (1e-13 of their size): the mean of two
    errors does not depend on their order.

    >>> average_ranks(np.array([[0.3, 0.1, 0.3, 0.2]])).tolist()
    [[3.5, 1.0, 3.5, 2.0]]
    >>> average_ranks(np.array([0.1 + 0.2, 0.3])).tolist()
    [1.5, 1.5]
    """
    n = values.shape[-1]
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    ranks = np.empty(values.shape)
    tied = np.diff(ordered, axis=-1) <= 1e-13 * np.abs(ordered[..., 1:])
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
