"""What recipes do: networks that differ in one thing, the choice on ID validation, and gaps.

wenzel2022, Sections 4.5 and 4.6, Tables 2 and S2, Appendices C and E. Paired differences are judged
by Wilcoxon's signed-rank test, its effect size, and the median's interval.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtr, ndtri

from shiftbed.analysis.dependence import task_mean
from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.predictiveness import average_ranks
from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
NAN = float("nan")
Value = str | float | None
UNITS = ("task", "id-set", "network")
"""What counts as one difference: a task (its ID sets averaged), an ID set (its networks averaged),
or a network on an ID set."""
DERIVED: tuple[str, ...] = ("parent", "model_kind", "run", "step", "epoch", "final", "grid")
DERIVED += ("stage", "setup", "in_fit_set", "loss", "n_train", "parameters", "training_data")
DERIVED += ("backbone", "called")
"""Recipe columns that follow from others or are measured: compared networks may differ in them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Matched:
    """Differences of one metric between networks that differ only in one column."""

    metric: str
    differences: Floats
    units: tuple[str, ...]
    """What each difference is of."""
    matched: int
    """Matched (network, ID set)s behind them."""
    unmatched: int
    """Left out, as one side was missing."""


def id_sets(pairs: Sequence[PairTable]) -> dict[tuple[str, str], list[PairTable]]:
    """The pairs of each (task, ID set): the same networks, met by several OOD sets."""
    found: dict[tuple[str, str], list[PairTable]] = {}
    for pair in pairs:
        found.setdefault((pair.task, pair.source), []).append(pair)
    return found


def mean_over_targets(pairs: Sequence[PairTable], metric: str) -> dict[str, float]:
    """Each network's mean of a metric over the pairs of one ID set, where all of them have it."""
    found: dict[str, list[float]] = {}
    there = [pair for pair in pairs if metric in pair.metrics]
    for pair in there:
        for name, value in zip(pair.models, pair.column(metric).tolist(), strict=True):
            found.setdefault(name, []).append(value)
    means = {name: float(np.mean(v)) for name, v in found.items() if len(v) == len(there)}
    return {name: value for name, value in means.items() if np.isfinite(value)}


def matched_differences(
    pairs: Sequence[PairTable],
    metric: str,
    column: str,
    of: Sequence[str],
    against: Sequence[str],
    *,
    match: Sequence[str] | None = None,
    unit: str | None = None,
) -> Matched:
    """metric(of) − metric(against) for networks alike in everything else.

    Networks are alike if they have the same ID set and agree in the ``match`` columns (default: all
    but ``column`` and those that follow from others); several alike ones are averaged. ``of`` and
    ``against`` are values of ``column``, averaged first: wenzel2022 averages RandAugment and
    AugMix, then compares with none. A metric measured on OOD data is averaged over an ID set's OOD
    sets, so that no network counts twice. Networks of one ID set, and related ID sets of one task,
    are no independent evidence: with ``unit`` id-set the differences of an ID set are averaged,
    with task (default where there are two tasks) then those of a task's ID sets. (The smallest
    p-value that Fig. 5 prints, 8e-8, is what 36 ID sets that all agree give with the normal limit;
    ID sets taken as independent though related reject a true null in 14 to 18 % of cases at 5 %.)
    """
    unit = unit or unit_of(pairs)
    if unit not in UNITS:
        raise unknown("unit", unit, UNITS)
    _check_values(pairs, column, (*of, *against))
    if set(of) & set(against):
        raise InputError(f"{column} {sorted(set(of) & set(against))[0]!r} is on both sides")
    found: list[tuple[str, str, str, float]] = []
    unmatched = 0
    for (task, source), here in id_sets(pairs).items():
        values = mean_over_targets(here, metric)
        first = next((pair for pair in here if metric in pair.metrics), here[0])
        cells = _cells(first, values, column, match)
        for key, by_value in cells.items():
            sides = [[by_value[v] for v in side if v in by_value] for side in (of, against)]
            if [len(side) for side in sides] != [len(of), len(against)]:
                unmatched += any(map(len, sides))
                continue
            left, right = (float(np.mean([np.mean(v) for v in side])) for side in sides)
            same = round(left - right, 12) + 0.0  # rounding must not break ties
            name = f"{task}: {source}"
            found.append((task, name, f"{name}: {', '.join(key)}", same))
    if unit == "network":
        names, differences = [name for *_, name, _ in found], [d for *_, d in found]
    else:
        named, differences = _averaged([(name, d) for _, name, _, d in found])
        names = list(named)
        if unit == "task":
            of_task = {name: task for task, name, *_ in found}
            some = [(of_task[n], d) for n, d in zip(names, differences, strict=True)]
            names, differences = _averaged(some)
    return Matched(
        metric=metric,
        differences=np.array(differences, dtype=np.float64),
        units=tuple(names),
        matched=len(found),
        unmatched=unmatched,
    )


def unit_of(pairs: Sequence[PairTable]) -> str:
    """What is independent: tasks, or ID sets where there is one task only."""
    return "task" if len({pair.task for pair in pairs}) > 1 else "id-set"


def _averaged(named: Sequence[tuple[str, float]]) -> tuple[list[str], list[float]]:
    """Means of the values of each name, in their order."""
    by_name: dict[str, list[float]] = {}
    for name, value in named:
        by_name.setdefault(name, []).append(value)
    return list(by_name), [float(np.mean(values)) for values in by_name.values()]


def text_of(value: Value) -> str:
    """A value of a recipe column as it is written on a command line; empty if there is none."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else value


def _check_values(pairs: Sequence[PairTable], column: str, wanted: Iterable[str]) -> None:
    columns = dict.fromkeys(name for pair in pairs for name in pair.info)
    if column not in columns:
        raise unknown("recipe column", column, columns)
    known = {text_of(v) for pair in pairs for v in pair.info.get(column, ())}
    for value in wanted:
        if value not in known:
            raise unknown(f"value of {column}", value, sorted(known))


def matched_columns(pair: PairTable, column: str, match: Sequence[str] | None = None) -> list[str]:
    """The recipe columns in which compared networks agree."""
    return [n for n in pair.info if n not in (column, *DERIVED)] if match is None else list(match)


def _cells(
    pair: PairTable, values: dict[str, float], column: str, match: Sequence[str] | None
) -> dict[tuple[str, ...], dict[str, list[float]]]:
    """What the networks agree in → value of the column → their metric."""
    if column not in pair.info:
        return {}
    for name in match or ():
        if name not in pair.info:
            raise unknown(f"recipe column of {pair.name}", name, pair.info)
    columns = matched_columns(pair, column, match)
    found: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for i, model in enumerate(pair.models):
        if model in values:
            key = tuple(text_of(pair.info[c][i]) for c in columns)
            side = found.setdefault(key, {}).setdefault(text_of(pair.info[column][i]), [])
            side.append(values[model])
    return found


@dataclass(frozen=True, kw_only=True)
class ChosenNetwork:
    """One architecture's network on one ID set, chosen on ID data, and its errors."""

    architecture: str
    task: str
    source: str
    target: str
    model: str
    id_error: float
    ood_error: float


def choose_networks(
    pairs: Sequence[PairTable], column: str = "architecture", select: str = "id:error"
) -> tuple[list[ChosenNetwork], dict[str, int]]:
    """For each ID set and architecture the network with the lowest ``select``, on every OOD set.

    wenzel2022, Table S2: hyper-parameters are chosen on ID validation data, per ID set. Ties go to
    the first network. Also how many pairs each architecture lacks for want of a value.
    """
    _check_values(pairs, column, ())
    found: list[ChosenNetwork] = []
    left_out: dict[str, int] = {}
    for (task, source), here in id_sets(pairs).items():
        scores = mean_over_targets(here, select)
        by_kind: dict[str, list[str]] = {}
        for pair in here:
            for model, value in zip(pair.models, pair.info.get(column, ()), strict=False):
                if value is not None and model not in by_kind.setdefault(text_of(value), []):
                    by_kind[text_of(value)].append(model)
        for kind, models in by_kind.items():
            known = [model for model in models if model in scores]
            best = min(known, key=lambda model: scores[model]) if known else ""
            for pair in here:
                errors = _errors(pair, best)
                if errors is None:
                    left_out[kind] = left_out.get(kind, 0) + 1
                    continue
                found.append(
                    ChosenNetwork(
                        architecture=kind,
                        task=task,
                        source=source,
                        target=pair.target,
                        model=best,
                        id_error=errors[0],
                        ood_error=errors[1],
                    )
                )
    return found, left_out


def _errors(pair: PairTable, model: str) -> tuple[float, float] | None:
    if model not in pair.models:
        return None
    i = pair.models.index(model)
    values = float(pair.column("id:error")[i]), float(pair.column("ood:error")[i])
    return values if np.isfinite(values).all() else None


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Normalised gap (a − b)/a of two mean accuracies: ID and OOD (Eq. S2), full and head."""

    better: float
    worse: float
    gap: float = NAN
    low: float = NAN
    high: float = NAN
    deviation: float = NAN
    """Standard deviation of the units' own gaps, which Fig. S10 draws."""
    n: int
    note: str = ""


def gap_of(
    means: Floats,
    *,
    units: Sequence[str] | None = None,
    crossed: Sequence[str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    unit: str = "pair",
) -> Gap:
    """The gap g = 1 − b̄/ā of the mean accuracies of n units (n, 2), with its interval.

    g is the mean of g − (b_i − (1 − g)·a_i)/ā, its first-order terms in each unit's accuracies
    (delta method), and their mean has the interval of ``task_mean``: over single units, or, where
    pairs share ID sets (``units``) and OOD sets (``crossed``), over both kinds of sets.

    >>> found = gap_of(np.array([[0.5, 0.25], [0.7, 0.35]]), bootstrap=100)
    >>> round(found.gap, 6), found.n
    (0.5, 2)
    """
    n = len(means)
    if not n or means[:, 0].mean() <= 0:
        note = "the accuracy is zero" if n else f"no {unit} has both accuracies"
        return Gap(better=NAN, worse=NAN, n=n, note=note)
    better, worse = means.mean(axis=0).tolist()
    gap = (better - worse) / better
    if n == 1:
        return Gap(better=better, worse=worse, gap=gap, n=n, note=f"no interval from one {unit}")
    terms = gap - (means[:, 1] - (1.0 - gap) * means[:, 0]) / better
    mean = task_mean(
        terms[:, None],
        [""] * n,
        units=units,
        crossed=crossed,
        bootstrap=bootstrap,
        seed=seed,
        level=level,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        own = 1.0 - means[:, 1] / means[:, 0]
    own = own[np.isfinite(own)]
    deviation = float(own.std(ddof=1)) if len(own) > 1 else NAN
    low, high = float(mean.low[0]), float(mean.high[0])
    found = Gap(better=better, worse=worse, gap=gap, low=low, high=high, deviation=deviation, n=n)
    return found if mean.spread[0] else replace(found, note=f"no interval: every {unit} is alike")


@dataclass(frozen=True, kw_only=True)
class RankTrend:
    """Spearman's r of two quantities over n tasks."""

    r: float = NAN
    low: float = NAN
    high: float = NAN
    n: int
    note: str = ""


def rank_trend(x: Floats, y: Floats, level: float = 0.95) -> RankTrend:
    """Spearman's r with Fieller's interval tanh(artanh r ± z·√(1.06/(n − 3))).

    >>> rank_trend(np.array([1.0, 2, 3]), np.array([2.0, 1, 3])).r
    0.5
    """
    n = len(x)
    if n < 3:
        return RankTrend(n=n, note=f"too few tasks ({n}) for a correlation")
    a, b = average_ranks(x), average_ranks(y)
    a, b = a - a.mean(), b - b.mean()
    length = float(np.sqrt((a @ a) * (b @ b)))
    if length == 0:
        return RankTrend(n=n, note="the same for all tasks")
    r = round(float(np.clip((a @ b) / length, -1.0, 1.0)), 12)
    if n < 4 or abs(r) == 1.0:
        why = "of ±1" if abs(r) == 1.0 else "from three tasks"
        return RankTrend(r=r, n=n, note=f"no interval of a correlation {why}")
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(1.06 / (n - 3))
    low, high = np.tanh(np.arctanh(r) + np.array([-half, half])).tolist()
    return RankTrend(r=r, low=low, high=high, n=n)


ALTERNATIVES = ("less", "greater")
EXACT = 50
"""Up to so many non-zero differences the p-value is exact."""
METHODS = ("auto", "exact", "normal")


@dataclass(frozen=True, kw_only=True)
class SignedRank:
    """What paired differences say. NaN only where ``note`` says why."""

    n: int
    zeros: int
    """Differences of exactly zero, which the test leaves out."""
    alternative: str
    statistic: float = NAN
    """W⁺, the sum of the ranks of positive differences."""
    p_value: float = NAN
    method: str = "exact"
    """exact or normal"""
    rank_biserial: float = NAN
    """(W⁺ − W⁻)/(W⁺ + W⁻), the matched-pairs rank-biserial correlation, from −1 to 1."""
    mean: float = NAN
    median: float = NAN
    low: float = NAN
    high: float = NAN
    note: str = ""


def signed_rank(
    differences: ArrayLike,
    alternative: str = "less",
    *,
    method: str = "auto",
    level: float = 0.95,
) -> SignedRank:
    """Wilcoxon's one-sided signed-rank test of differences symmetric about 0 (wenzel2022, Fig. 5).

    ``less`` asks whether differences tend to be negative. Zeros are left out, ties share the mean
    of their ranks. The p-value is exact (given the ranks, so with ties too) for up to 50
    differences, else from the normal limit with its variance corrected for ties and no continuity
    correction. Differences must be independent: differences of networks that share an ID set, or of
    related ID sets, are not, so average those first (``matched_differences``).

    >>> found = signed_rank([-0.02, -0.01, -0.03, 0.005, -0.04])
    >>> found.p_value, round(found.rank_biserial, 3), found.median
    (0.0625, -0.867, -0.02)
    """
    if alternative not in ALTERNATIVES:
        raise unknown("alternative", alternative, ALTERNATIVES)
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not np.isfinite(d).all():
        raise InputError("differences must be a list of finite numbers")
    if not len(d):
        why = "no network of one recipe matches one of the other"
        return SignedRank(n=0, zeros=0, alternative=alternative, note=why)
    low, high, note = median_interval(d, level)
    moved = d[d != 0.0]
    ranks = average_ranks(np.abs(moved)) if len(moved) else np.zeros(0)
    positive, total = float(ranks[moved > 0].sum()), float(ranks.sum())
    exact = method == "exact" or (method == "auto" and len(moved) <= EXACT)
    side = positive if alternative == "less" else total - positive
    if not len(moved):
        note = "; ".join(part for part in ("all differences are zero", note) if part)
    return SignedRank(
        n=len(d),
        zeros=len(d) - len(moved),
        alternative=alternative,
        statistic=positive,
        p_value=1.0 if not len(moved) else _exact(ranks, side) if exact else _normal(ranks, side),
        method="exact" if exact else "normal",
        rank_biserial=(2.0 * positive - total) / total if total else 0.0,
        mean=float(d.mean()),
        median=float(np.median(d)),
        low=low,
        high=high,
        note=note,
    )


def _exact(ranks: Floats, sum_: float) -> float:
    """P(W ≤ sum) when each rank is positive with probability ½, by convolution."""
    doubled = np.rint(2.0 * ranks).astype(np.int64)  # mean ranks are halves
    chance = np.zeros(int(doubled.sum()) + 1)
    chance[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[: len(chance) - rank]
        chance = (chance + moved) / 2.0
    return float(min(1.0, chance[: int(np.rint(2.0 * sum_)) + 1].sum()))


def _normal(ranks: Floats, sum_: float) -> float:
    """The same from the normal limit: mean Σr/2, variance Σr²/4."""
    return float(ndtr((sum_ - ranks.sum() / 2.0) / np.sqrt((ranks**2).sum() / 4.0)))


def median_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, str]:
    """Distribution-free interval of the median: two order statistics, and why there is none.

    x₍ₖ₎ and x₍ₙ₊₁₋ₖ₎ with the largest k such that P(Binomial(n, ½) < k) ≤ (1 − level)/2, so that
    it covers at least with ``level``. Fewer than six values have no 95 % interval.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    (1.0, 7.0, '')
    """
    tail = (1.0 - check_level(level)) / 2.0
    x = np.sort(np.asarray(values, dtype=np.float64))
    n = len(x)
    below = bdtr(np.arange(n), n, 0.5)  # P(at most k values lie below the median)
    k = int((below <= tail).sum())
    if k == 0:
        why = f"no interval: too few differences ({n}) for {100 * level:g} %"
        return float("nan"), float("nan"), why
    return float(x[k - 1]), float(x[n - k]), ""
