"""Factor analysis of metrics over networks: which few things do many metrics measure?

wenzel2022 (Section 4.1, Appendix B): rows are networks, columns the metrics on ID data, on
corrupted ID data and, averaged over the OOD data sets of the task, on OOD data. NLL goes through
10(1 − e^{−x/10}), columns are standardised, factors with an eigenvalue ≥ 1 kept and rotated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.loadings import (
    EXTRACTIONS,
    ROTATIONS,
    Extraction,
    correlation,
    eigenvalues,
    extract,
    gamma_of,
    in_order,
    leading,
    match,
    minimum_residual,
    parallel_analysis,
    procrustes,
    rotate,
    turn_planes,
    unit_rows,
)
from shiftbed.analysis.pairs import NetworkTable
from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
RULES = ("eigenvalue", "parallel")
UNITS = ("network", "model", "source")


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """Factors of p metrics over n networks. Intervals: percentiles over resampled networks."""

    columns: tuple[str, ...]
    """The p metrics."""
    n: int
    """Networks used."""
    left_out: int
    """Networks left out because a cell is missing."""
    dropped: tuple[tuple[str, str], ...]
    """Metrics not used, each with the reason."""
    extraction: str
    rotation: str
    kaiser: bool
    chosen_by: str
    """How the number of factors was chosen: eigenvalue, parallel or given."""
    eigenvalues: Floats
    """(p,): of the correlation matrix, the largest first."""
    eigenvalues_low: Floats
    eigenvalues_high: Floats
    chance: Floats
    """(p,): the eigenvalues that uncorrelated data reach (parallel analysis)."""
    loadings: Floats
    """(p, k): correlation of each metric with each factor."""
    low: Floats
    high: Floats
    """(p, k): ends of the loadings' intervals, NaN without resampling (see ``interval_note``)."""
    communality: Floats
    """(p,): share of each metric's variance that the factors explain, Σ_j l_ij²."""
    communality_low: Floats
    communality_high: Floats
    uniqueness: Floats
    """(p,): 1 − communality."""
    heywood: NDArray[np.bool_]
    """(p,): Heywood cases, metrics whose unique variance ran into its lower bound of 0.005."""
    variance_low: Floats
    variance_high: Floats
    """(k,): ends of the interval of ``variance``."""
    rmsr: float
    """Root mean square of the correlations that the factors leave unexplained, off the diagonal."""
    converged: bool
    level: float
    resampled: str
    """What was drawn at random: networks, models (all their rows), or sources (ID data sets)."""
    units: int
    """How many of these there are."""
    draws: int
    """Resamples that gave a solution, of those asked for."""
    interval_note: str
    """Why there are no intervals, or what is to be known about them."""
    warnings: tuple[str, ...]

    @property
    def k(self) -> int:
        return int(self.loadings.shape[1])

    @property
    def by_eigenvalue(self) -> int:
        """Number of eigenvalues ≥ 1 (Kaiser's rule; wenzel2022 keeps these)."""
        return int((self.eigenvalues >= 1.0).sum())

    @property
    def by_parallel(self) -> int:
        """Number of leading eigenvalues above chance (Horn's rule)."""
        return _leading(self.eigenvalues > self.chance)

    @property
    def variance(self) -> Floats:
        """(k,): share of the variance of all metrics that each factor explains, Σ_i l_ij²/p."""
        return np.asarray((self.loadings**2).sum(axis=0) / len(self.columns))


def squash_nll(values: Floats) -> Floats:
    """10(1 − e^{−x/10}): nearly x for small NLL, never above 10 (wenzel2022, Appendix B).

    >>> squash_nll(np.array([0.0, 1.0, 1e10])).round(3).tolist()
    [0.0, 0.952, 10.0]
    """
    return np.asarray(-10.0 * np.expm1(-values / 10.0))


def factor_analysis(
    table: NetworkTable,
    *,
    factors: int | None = None,
    choose_by: str = "eigenvalue",
    extraction: str = "minimum-residual",
    rotation: str = "equamax",
    kaiser: bool = True,
    bootstrap: int = 500,
    resample: str | None = None,
    level: float = 0.95,
    parallel_draws: int = 500,
    seed: int = 0,
) -> Factors:
    """Factors of the columns of a table of networks (``shiftbed.analysis.pairs``).

    The number of factors is ``factors``, or the number of eigenvalues ≥ 1, or of those above
    chance (``choose_by="parallel"``). Columns without spread, or missing in more than half of
    the networks, are dropped with a reason; then networks with a missing cell are left out.
    Resamples of the networks are extracted again, laid over the loadings (Procrustes), rotated
    again from there, and matched in sign and order. Networks of one model are not independent, so
    ``resample`` draws each ``model`` with all its rows (default, where there are two or more);
    ``source`` draws ID data sets, ``network`` takes rows as independent (which covers 72 % where
    95 % is said and a model has five rows). With u units, ends are moved away from the draws'
    median by √(u/(u − 1)) and Student's quantile over the normal one.
    """
    resample = resample or ("model" if len(set(table.models)) > 1 else "network")
    for what, name, known in (
        ("extraction", extraction, EXTRACTIONS),
        ("rotation", rotation, ROTATIONS),
        ("rule for the number of factors", choose_by, RULES),
        ("unit of resampling", resample, UNITS),
    ):
        if name not in known:
            raise unknown(what, name, known)
    check_level(level)
    columns, values, dropped, complete = _usable(table)
    n, p = values.shape
    matrix = correlation(values)
    spectrum = eigenvalues(matrix)
    chance = parallel_analysis(n, p, draws=parallel_draws, seed=seed)
    counts = {"eigenvalue": int((spectrum >= 1.0).sum()), "parallel": _leading(spectrum > chance)}
    warnings = _collinear(columns, matrix)
    k = counts[choose_by] if factors is None else factors
    if factors is None and k == 0:
        raise InputError(
            f"no eigenvalue of {p} metrics over {n} networks is above chance: there is no "
            "factor to extract; ask for a number of factors"
        )
    k, fewer = _determined(k, p, extraction, given=factors is not None)
    warnings += fewer
    found = extract(matrix, k, extraction)
    if not found.converged:
        warnings.append(
            f"{extraction} extraction of {k} factors did not converge: try fewer factors"
        )
    loadings = in_order(rotate(found.loadings, rotation, kaiser=kaiser, seed=seed)[0])
    units = _units(table, resample, complete)
    drawn = resampled_loadings(
        values, units, found, loadings, extraction, rotation, kaiser, bootstrap, seed
    )
    low, high = drawn.ends(drawn.loadings, level, least=-1.0)
    spectrum_low, spectrum_high = drawn.ends(drawn.eigenvalues, level, most=float(p))
    communality = (loadings**2).sum(axis=1)
    communality_low, communality_high = drawn.ends((drawn.loadings**2).sum(axis=2), level)
    variance_low, variance_high = drawn.ends((drawn.loadings**2).mean(axis=1), level)
    residual = matrix - loadings @ loadings.T
    return Factors(
        columns=columns,
        n=n,
        left_out=int((~complete).sum()),
        dropped=dropped,
        extraction=extraction,
        rotation=rotation if k > 1 else "none",
        kaiser=kaiser,
        chosen_by="given" if factors is not None else choose_by,
        eigenvalues=spectrum,
        eigenvalues_low=spectrum_low,
        eigenvalues_high=spectrum_high,
        chance=chance,
        loadings=loadings,
        low=low,
        high=high,
        communality=communality,
        communality_low=communality_low,
        communality_high=communality_high,
        uniqueness=1.0 - communality,
        heywood=found.heywood,
        variance_low=variance_low,
        variance_high=variance_high,
        rmsr=float(np.sqrt((residual[~np.eye(p, dtype=bool)] ** 2).mean())),
        converged=found.converged,
        level=level,
        resampled=resample,
        units=int(units.max()) + 1,
        draws=drawn.n,
        interval_note=drawn.note(resample),
        warnings=tuple(warnings),
    )


def _leading(above: NDArray[np.bool_]) -> int:
    """How many are true before the first that is not."""
    return len(above) if above.all() else int(np.argmin(above))


def _units(table: NetworkTable, resample: str, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n,): number of the network, model or source that each row belongs to."""
    names = {"network": table.networks, "model": table.models, "source": table.sources}[resample]
    kept = np.array(names)[rows]
    units = np.unique(kept, return_inverse=True)[1]
    if int(units.max()) < 1:
        raise InputError(f"all networks have the same {resample}: there is nothing to resample")
    return np.asarray(units, dtype=np.int64)


def _usable(
    table: NetworkTable,
) -> tuple[tuple[str, ...], Floats, tuple[tuple[str, str], ...], NDArray[np.bool_]]:
    """Columns that vary and are mostly there, over networks that have them all."""
    values = table.values.copy()
    for j, column in enumerate(table.columns):
        if column.partition(":")[2].partition("@")[0] == "nll":
            values[:, j] = squash_nll(values[:, j])
    values[~np.isfinite(values)] = np.nan
    there = np.isfinite(values)
    dropped, keep = [], []
    for j, column in enumerate(table.columns):
        share = float(there[:, j].mean()) if len(values) else 0.0
        if share < 0.5:
            dropped.append((column, f"missing in {1 - share:.0%} of the networks"))
        elif np.ptp(values[there[:, j], j]) <= 1e-12:
            dropped.append((column, "the same in all networks"))
        else:
            keep.append(j)
    complete = np.asarray(there[:, keep].all(axis=1), dtype=bool)
    rows = values[complete][:, keep]
    for i in reversed(range(len(keep))):  # constant over what is left
        if len(rows) and np.ptp(rows[:, i]) <= 1e-12:
            dropped.append((table.columns[keep[i]], "the same in all complete networks"))
            rows = np.delete(rows, i, axis=1)
            del keep[i]
    _check_table(rows, [table.columns[j] for j in keep], dropped, int((~complete).sum()))
    return (
        tuple(table.columns[j] for j in keep),
        rows,
        tuple(dropped),
        complete,
    )


def _check_table(
    rows: Floats, columns: Sequence[str], dropped: Sequence[tuple[str, str]], left_out: int
) -> None:
    n, p = rows.shape
    why = "; ".join(f"{name}: {reason}" for name, reason in dropped[:4])
    lost = f" (dropped: {why})" if why else ""
    if p < 3:
        names = ", ".join(columns) or "none"
        raise InputError(
            f"a factor analysis needs at least 3 metrics that vary, got {p}: {names}{lost}"
        )
    if n <= p + 1:
        missing = f", {left_out} more have a missing cell" if left_out else ""
        raise InputError(
            f"a factor analysis of {p} metrics needs at least {p + 2} networks, "
            f"got {n}{missing}{lost}"
        )


def _determined(k: int, p: int, extraction: str, *, given: bool) -> tuple[int, list[str]]:
    """k, or fewer with a warning: k factors of p metrics need (p − k)² ≥ p + k (Ledermann)."""
    if k < 1 or k > p:
        raise InputError(f"the number of factors must be between 1 and {p}, got {k}")
    most = p
    if extraction != "components":
        most = max(m for m in range(p + 1) if (p - m) ** 2 >= p + m)
    if k <= most:
        return k, []
    few = f"{p} metrics determine at most {most} factor{'s' if most != 1 else ''}"
    if given or not most:
        raise InputError(f"{few}, {k} asked for; extract components instead, or ask for fewer")
    return most, [f"{few}: {most} extracted, though {k} have an eigenvalue that large"]


def _collinear(columns: Sequence[str], matrix: Floats) -> list[str]:
    found = []
    for i, j in zip(*np.nonzero(np.triu(np.abs(matrix) > 1.0 - 1e-9, 1)), strict=True):
        found.append(f"{columns[i]} and {columns[j]} are the same up to scale: leave one out")
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class FactorDraws:
    """Loadings and eigenvalues of resampled networks."""

    asked: int
    units: int
    """How many units were drawn from."""
    loadings: Floats
    """(n, p, k)"""
    eigenvalues: Floats
    """(n, p)"""

    @property
    def n(self) -> int:
        """Resamples that gave a solution."""
        return len(self.loadings)

    def ends(
        self, draws: Floats, level: float, *, least: float = 0.0, most: float = 1.0
    ) -> tuple[Floats, Floats]:
        """Percentiles over the first axis, widened for few units; NaN without two resamples."""
        if self.n < 2:
            nothing = np.full(draws.shape[1:], np.nan)
            return nothing, nothing
        tail = (1.0 - level) / 2.0
        low, middle, high = np.quantile(draws, [tail, 0.5, 1.0 - tail], axis=0)
        wider = np.sqrt(self.units / (self.units - 1)) * stdtrit(self.units - 1, 1.0 - tail)
        wider /= ndtri(1.0 - tail)
        ends = (middle + wider * (end - middle) for end in (low, high))
        low, high = (np.clip(end, least, most) for end in ends)
        return np.asarray(low), np.asarray(high)

    def note(self, unit: str) -> str:
        """What the intervals are, or why there are none."""
        if self.asked <= 0:
            return "no intervals: no resampling was asked for"
        if self.n < 2:
            return f"no intervals: {self.n} of {self.asked} resamples gave a solution"
        lost = f"; {self.asked - self.n} more gave no solution" if self.n < self.asked else ""
        return f"percentiles over {self.n} resamples of the {unit}s, taken as independent{lost}"


def resampled_loadings(
    values: Floats,
    units: NDArray[np.int64],
    found: Extraction,
    loadings: Floats,
    extraction: str,
    rotation: str,
    kaiser: bool,
    draws: int,
    seed: int,
) -> FactorDraws:
    """Extract and rotate again on ``draws`` resamples of the units that rows of values belong to.

    Each solution is laid over ``loadings`` (Procrustes), rotated by the criterion from there, and
    matched in sign and order, so that the intervals include the rotation's own uncertainty. A
    resample in which a column is constant, or whose extraction does not converge, has no loadings
    to give and is left out. Principal axis and minimum residual share their solutions; the
    quicker one does the resamples of both.
    """
    p = values.shape[1]
    stack = _resampled_correlations(values, units, draws, seed)
    k = loadings.shape[1]
    if extraction != "components":
        psi, _, converged = minimum_residual(stack, k, found.uniqueness, tolerance=1e-6)
        stack = stack[converged]
        reduced = stack - psi[converged][:, :, None] * np.eye(p)
    else:
        reduced = stack
    near = leading(reduced, k)
    near = near @ procrustes(near, loadings)
    if rotation != "none" and k > 1:
        rows = unit_rows(near) if kaiser else near
        near = near @ turn_planes(rows, np.eye(k), gamma_of(rotation, k), tolerance=1e-6)
    return FactorDraws(
        asked=draws,
        units=int(units.max()) + 1,
        loadings=np.array([match(one, loadings) for one in near]).reshape(-1, p, k),
        eigenvalues=eigenvalues(stack),
    )


def _resampled_correlations(
    values: Floats, units: NDArray[np.int64], draws: int, seed: int
) -> Floats:
    """(≤ draws, p, p): correlations of resamples, without those in which a column is constant.

    How often each unit is drawn weighs the moments of its rows, so a matrix product does many
    resamples.
    """
    (n, p), count = values.shape, int(units.max()) + 1
    rng = np.random.default_rng([seed, n, p, max(draws, 0)])
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    squares = (standard[:, :, None] * standard[:, None, :]).reshape(n, p * p)
    found = [np.empty((0, p, p))]
    step = max(1, 4_000_000 // n)
    for first in range(0, draws, step):
        several = range(first, min(first + step, draws))
        drawn = [np.bincount(rng.integers(0, count, count), minlength=count) for _ in several]
        weights = np.array(drawn, dtype=np.float64)[:, units]
        weights /= weights.sum(axis=1, keepdims=True)
        mean = weights @ standard
        covariance = (weights @ squares).reshape(-1, p, p) - mean[:, :, None] * mean[:, None, :]
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        varied = (variance > 1e-12).all(axis=1)
        length = np.sqrt(variance[varied])
        matrices = covariance[varied] / (length[:, :, None] * length[:, None, :])
        matrices[:, np.arange(p), np.arange(p)] = 1.0
        found.append(np.clip(matrices, -1.0, 1.0))
    return np.concatenate(found)
