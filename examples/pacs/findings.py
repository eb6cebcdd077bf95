"""wenzel2022's main findings on this store: holds, does not hold, or inconclusive, by stated rules.

Every rule looks at an interval of a result of the package, never at a point alone. Lower is better
for all metrics. ``n`` is how many networks a pair, or the comparison, has.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed.errors import InputError
from shiftbed.results.effects import effects
from shiftbed.results.factors import FactorStudy, factors
from shiftbed.results.pairs import Source
from shiftbed.results.patterns import patterns
from shiftbed.results.predictiveness import predictiveness

__all__ = ["HOLDS", "METRICS", "NOT", "OPEN", "Finding", "findings", "of_interval"]

HOLDS, NOT, OPEN = "holds", "does not hold", "inconclusive"
ALIKE = ["architecture", "training_data", "data_size", "tune", "start", "lr", "seed"]
"""What two networks have in common that differ in augmentation only."""
METRICS = ("error", "nll", "ece", "disparity")
SURE = 0.9
"""Share of resampled networks that must show the same pattern."""
AUGMENTED, PLAIN = ["randaugment", "augmix"], ["none"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One claim of the paper, and what this store says of it."""

    claim: str
    verdict: str
    evidence: str
    n: str


def of_interval(low: float | None, high: float | None, *, below: bool = True) -> str:
    """Whether an interval lies on the claimed side of 0, on the other one, or on both.

    >>> of_interval(-0.2, -0.1), of_interval(0.1, 0.2), of_interval(-0.1, 0.1)
    ('holds', 'does not hold', 'inconclusive')
    """
    if low is None or high is None:
        return OPEN
    if (high < 0) if below else (low > 0):
        return HOLDS
    return NOT if ((low > 0) if below else (high < 0)) else OPEN


def findings(pairs: Source, *, seed: int = 0, bootstrap: int = 1000) -> list[Finding]:
    """All of them, in the paper's order; what there are no networks for is inconclusive.

    ``pairs`` are a store, or what ``open_pairs`` made of it, which reads it once.
    """
    given = {"seed": seed, "bootstrap": bootstrap}
    makers: tuple[Callable[..., Iterator[Finding]], ...] = (
        _factor_structure,
        _patterns,
        _predictors,
        _augmentation,
        _few_shot,
        _head_or_whole,
        _architectures,
    )
    found: list[Finding] = []
    for make in makers:
        try:
            found += make(pairs, **given)
        except InputError as error:
            claim = str(make.__doc__).partition(":")[0]
            found.append(Finding(claim=claim, verdict=OPEN, evidence=str(error), n="0"))
    return found


def _predictors(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.3.1: ``more`` is r(metric) − r(id:error), resampled over ID and OOD sets."""
    frame = predictiveness(store, seed=seed, bootstrap=bootstrap).frame
    rows = {row["metric"]: row for row in frame.iter_rows(named=True)}
    n = _networks(rows["id:error"])
    names = [f"{place}:{metric}" for place in ("id", "corrupted") for metric in METRICS]
    rivals = [rows[name] for name in (*names, "id:adversarial") if name in rows][1:]
    better = [row for row in rivals if (row["more_low"] or 0) > 0]
    worse = [row for row in rivals if (row["more_high"] or 0) < 0]
    own = rows["id:error"]
    best = max(rivals, key=lambda row: row["more"] if row["more"] is not None else -9.0)
    verdict = HOLDS if len(worse) == len(rivals) else NOT if better else OPEN
    yield Finding(
        claim="ID error is the best ID predictor of OOD error (4.3.1)",
        verdict=verdict,
        evidence=f"r = {_of(own, 'r', 'low', 'high')}; surely behind it: {len(worse)} of "
        f"{len(rivals)} metrics, surely ahead: {len(better)}; nearest {best['metric']}, "
        f"{_of(best, 'more', 'more_low', 'more_high')} more",
        n=n,
    )
    for name, claim in (
        ("held-out:error", "error on held-out OOD data predicts better than ID error (4.3.1)"),
        ("held-out:error", "error on held-out OOD data adds to ID error (4.3.1)"),
        ("corrupted:error", "corrupted error adds to ID error (denied in 4.3.2)"),
        ("id:ece", "ID calibration adds to ID error (denied in 4.3.2)"),
    ):
        if name not in rows:
            continue
        row, denied = rows[name], "denied" in claim
        adds = " adds to " in claim
        ends = ("adjusted", "adjusted_low", "adjusted_high") if adds else _MORE
        sure = of_interval(row[ends[1]], row[ends[2]], below=False)
        verdict = {HOLDS: NOT, NOT: HOLDS}.get(sure, OPEN) if denied else sure
        what = "r with what ID error leaves" if adds else "r more than ID error has"
        yield Finding(claim=claim, verdict=verdict, evidence=f"{what}: {_of(row, *ends)}", n=n)


_MORE = ("more", "more_low", "more_high")


def _networks(row: dict[str, Any]) -> str:
    least, most = row["networks_least"], row["networks_most"]
    per = f"{least}" if least == most else f"{least}–{most}"
    return f"{per} a pair, {row['pairs']} pairs"


def _of(row: dict[str, Any], *names: str) -> str:
    value, low, high = (row[name] for name in names)
    if value is None:
        return "unknown"
    if low is None or high is None:
        return f"{value:.2f}"
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _study(store: Source, seed: int, bootstrap: int) -> FactorStudy:
    names = [f"{place}:{m}" for place in ("id", "corrupted", "ood") for m in METRICS]
    return factors(store, metric=names, factors=4, seed=seed, bootstrap=min(bootstrap, 200))


def _factor_structure(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.1: four factors; a metric belongs to the factor of its largest loading."""
    study = _study(store, seed, bootstrap)
    frame = study.frame.with_columns(size=pl.col("loading").abs())
    own: dict[str, dict[str, Any]] = {}
    for row in frame.sort("size").iter_rows(named=True):
        own[row["metric"]] = row  # the last is the largest
    n = f"{study.found.n} networks"

    def surely(metric: str) -> bool:
        row = own[metric]
        return row["low"] is not None and not row["low"] <= 0 <= row["high"]

    def together(claim: str, *metrics: str) -> Finding:
        there = [m for m in metrics if m in own]
        same = len({own[m]["factor"] for m in there}) == 1
        sure = all(map(surely, there))
        shown = ", ".join(
            f"{m}: F{own[m]['factor']} {_of(own[m], 'loading', 'low', 'high')}" for m in there
        )
        return Finding(
            claim=claim, verdict=(HOLDS if same else NOT) if sure else OPEN, evidence=shown, n=n
        )

    def apart(claim: str, first: str, second: str) -> Finding:
        found = together(claim, first, second)
        swap = {HOLDS: NOT, NOT: HOLDS}
        return Finding(
            claim=claim, verdict=swap.get(found.verdict, OPEN), evidence=found.evidence, n=n
        )

    yield together(
        "one factor has ID error, ID NLL and corrupted error (4.1)",
        "id:error",
        "id:nll",
        "corrupted:error",
    )
    yield apart("OOD error has a factor of its own (4.1)", "ood:error", "id:error")
    yield apart("calibration has a factor of its own (4.1)", "id:ece", "id:error")
    yield apart("disparity has a factor of its own (4.1)", "id:disparity", "id:error")


def _patterns(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.2, Figure S9a: in PACS lines that rise, or are vertical; none that falls."""
    frame = patterns(store, classes=7, seed=seed, bootstrap=min(bootstrap, 200)).frame
    sure = frame.filter(pl.col("share") >= SURE)
    counts = {
        row["pattern"]: row["len"]
        for row in frame.group_by("pattern").len().sort("pattern").iter_rows(named=True)
    }
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    shown += f"; sure ({SURE:g} of resamples): {len(sure)} of {len(frame)}"
    n = f"{frame['n'].min()}–{frame['n'].max()} a pair, {len(frame)} pairs"
    falls = "decreasing" in sure["pattern"].to_list()
    yield Finding(
        claim="no pair has a decreasing trend (4.2)",
        verdict=NOT if falls else HOLDS if "decreasing" not in counts else OPEN,
        evidence=shown,
        n=n,
    )
    others = [p for p in sure["pattern"].to_list() if p not in ("increasing", "vertical")]
    yield Finding(
        claim="PACS pairs are increasing or vertical lines (Figure S9a)",
        verdict=NOT if others else HOLDS if len(sure) == len(frame) else OPEN,
        evidence=shown,
        n=n,
    )


def _difference(
    store: Source, metric: str, only: list[str], unit: str = "id-set"
) -> dict[str, Any]:
    found = effects(
        store,
        column="augmentation",
        of=AUGMENTED,
        against=PLAIN,
        metric=[metric],
        match=ALIKE,
        unit=unit,
        only=only,
    )
    return found.frame.row(0, named=True)


def _augmentation(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 5.1: the median difference over ID sets, its interval (Wilcoxon)."""
    for size in ("few-shot-100", "few-shot-10"):
        for metric in ("id:error", "ood:error"):
            only = [f"data_size={size}"]
            row = _difference(store, metric, only)
            loose = _difference(store, metric, only, "network")
            yield Finding(
                claim=f"augmentation lowers {metric.partition(':')[0].upper()} error, {size} (5.1)",
                verdict=of_interval(row["low"], row["high"]),
                evidence=f"median {_signed(row)}, one-sided p = {_p(row['p_value'])}; as if "
                f"networks were independent {_signed(loose)}",
                n=f"{row['networks']} matched, {row['n']} ID sets",
            )


def _few_shot(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 5.1: fewer examples, larger errors."""
    for metric in ("id:error", "ood:error"):
        found = effects(
            store,
            column="data_size",
            of=["few-shot-10"],
            against=["few-shot-100"],
            metric=[metric],
            alternative="greater",
            match=[one for one in ALIKE if one != "data_size"] + ["augmentation"],
            unit="id-set",
        )
        row = found.frame.row(0, named=True)
        place = metric.partition(":")[0].upper()
        yield Finding(
            claim=f"{place} error is larger with 10 examples a class than with 100 (5.1)",
            verdict=of_interval(row["low"], row["high"], below=False),
            evidence=f"median {_signed(row)}, one-sided p = {_p(row['p_value'])}",
            n=f"{row['networks']} matched, {row['n']} ID sets",
        )


def _head_or_whole(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Appendix C.1: with 10 examples a class, the head alone is better on 40 % of the tasks."""
    found = effects(
        store,
        column="tune",
        of=["head"],
        against=["whole"],
        metric=["ood:error"],
        match=["architecture", "training_data", "data_size", "augmentation"],
        unit="id-set",
        only=["data_size=few-shot-10"],
    )
    row = found.frame.row(0, named=True)
    yield Finding(
        claim="with 10 examples a class, the head alone has lower OOD error than the whole (C.1)",
        verdict=of_interval(row["low"], row["high"]),
        evidence=f"median {_signed(row)}, one-sided p = {_p(row['p_value'])}",
        n=f"{row['networks']} matched, {row['n']} ID sets",
    )


def _architectures(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 5.2, Table 2: chosen on ID validation; apart means two standard errors over pairs."""
    tables = {
        chosen: effects(store, show="architectures", select=chosen)
        .frame.filter(pl.col("task") == "all")
        .sort("ood_error")
        for chosen in ("id-validation", "id-test")
    }
    frame = tables["id-validation"]
    first, *rest = frame.iter_rows(named=True)
    shown = ", ".join(
        f"{row['architecture']} {row['id_error']:.3f} → {row['ood_error']:.3f} ± {_se(row):.3f}"
        for row in (first, *rest)
    )
    n = f"{first['id_sets']} ID sets, {first['pairs']} pairs each"
    best_id = frame.sort("id_error")["architecture"][0]
    apart = [
        row
        for row in rest
        if row["ood_error"] - first["ood_error"] > 2 * float(np.hypot(_se(row), _se(first)))
    ]
    yield Finding(
        claim="architectures differ in OOD error under selection on ID validation (5.2)",
        verdict=HOLDS if len(apart) == len(rest) and rest else OPEN,
        evidence=f"ID → OOD error: {shown}",
        n=n,
    )
    yield Finding(
        claim="the architecture best on ID data is best on OOD data (Table 2)",
        verdict=NOT
        if best_id in [row["architecture"] for row in apart]
        else HOLDS
        if best_id == first["architecture"] and len(apart) == len(rest)
        else OPEN,
        evidence=f"best ID {best_id}, best OOD {first['architecture']}",
        n=n,
    )
    orders = [table["architecture"].to_list() for table in tables.values()]
    yield Finding(
        claim="the ranking is the same whether chosen on ID validation or ID test error",
        verdict=HOLDS if orders[0] == orders[1] and len(apart) == len(rest) else OPEN,
        evidence=f"validation: {' < '.join(orders[0])}; test: {' < '.join(orders[1])}",
        n=n,
    )


def _se(row: dict[str, Any]) -> float:
    return float(row["ood_error_se"] or 0.0)


def _signed(row: dict[str, Any]) -> str:
    if row["median"] is None:
        return "unknown"
    ends = "" if row["low"] is None else f" [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
    return f"{100 * row['median']:+.1f}{ends} points"


def _p(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
