"""wenzel2022's main findings on this store: holds, does not hold, or inconclusive, by stated rules.

Every rule looks at an interval of a result of the package, never at a point alone. Lower is better
for all metrics. ``networks`` is how many a pair, or the comparison, has.

Four ID sets cannot reach p < 0.05, so what a recipe does is a statement on these four domains: it
holds if the difference has the claimed sign on all four (one-sided p = 1/16) and the interval over
matched networks, taken as independent, lies on that side as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.pairs import PairTable
from shiftbed.display import Result, Table, records
from shiftbed.errors import InputError
from shiftbed.results.effects import effects
from shiftbed.results.factors import FactorStudy, factors
from shiftbed.results.pairs import Source, open_pairs
from shiftbed.results.pairs.networks import keep
from shiftbed.results.patterns import patterns
from shiftbed.results.predictiveness import predictiveness

__all__ = ["AUGMENTED", "COLUMNS", "HOLDS", "METRICS", "NOT", "OPEN", "PLAIN", "Finding"]
__all__ += ["Verdicts", "attack_study", "factor_study", "findings", "of_interval", "of_sets"]

HOLDS, NOT, OPEN = "holds", "does not hold", "inconclusive"
ALIKE = ["architecture", "training_data", "data_size", "tune", "start", "lr", "seed"]
"""What two networks have in common that differ in augmentation only."""
METRICS = ("error", "nll", "ece", "disparity")
COLUMNS = [f"{place}:{metric}" for place in ("id", "corrupted", "ood") for metric in METRICS]
SURE = 0.9
"""Share of resampled networks that must show the same pattern."""
AUGMENTED, PLAIN = ["randaugment", "augmix"], ["none"]
SIZES = {
    "full": "the whole training part",
    "few-shot-100": "100 examples a class",
    "few-shot-10": "10 examples a class",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One claim of the paper, and what this store says of it."""

    verdict: str
    claim: str
    evidence: str
    networks: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Verdicts(Result):
    """All findings, a row each in ``frame``."""

    title: str

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "rows": records(self.frame)}

    def tables(self) -> Iterator[Table]:
        yield Table.of(self.title, self.frame, {name: name for name in self.frame.columns}, left=4)


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


def findings(pairs: Sequence[PairTable], *, seed: int = 0, bootstrap: int = 1000) -> Verdicts:
    """All of them, in the paper's order; what there are no networks for is inconclusive."""
    given = {"seed": seed, "bootstrap": bootstrap}
    makers: tuple[Callable[..., Iterator[Finding]], ...] = (
        _factor_structure,
        _factors_under_attack,
        _patterns,
        _predictors,
        _augmentation,
        _few_shot,
        _head_or_whole,
        _pre_training,
        _architectures,
    )
    found: list[Finding] = []
    for make in makers:
        try:
            found += make(pairs, **given)
        except InputError as error:
            claim = str(make.__doc__).partition(":")[0]
            found.append(Finding(claim=claim, verdict=OPEN, evidence=str(error), networks="0"))
    models = {name for pair in pairs for name in pair.models}
    return Verdicts(
        frame=pl.DataFrame([vars(one) for one in found]),
        title=f"wenzel2022 on PACS: {len(models)} networks, {len(pairs)} pairs, 95 % intervals",
    )


def _predictors(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.3.1: ``more`` is r(metric) − r(id:error), resampled over ID and OOD sets."""
    frame = predictiveness(store, seed=seed, bootstrap=bootstrap).frame
    rows = {row["metric"]: row for row in frame.iter_rows(named=True)}
    n = _networks(rows["id:error"])
    names = [f"{place}:{metric}" for place in ("id", "corrupted") for metric in METRICS]
    rivals = [rows[name] for name in names if name in rows][1:]
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
        networks=n,
    )
    for name, claim in (
        ("held-out:error", "error on held-out OOD data predicts better than ID error (4.3.1)"),
        ("held-out:error", "error on held-out OOD data adds to ID error (4.3.1)"),
        ("corrupted:error", "corrupted error adds to ID error (denied in 4.3.2)"),
        ("id:ece", "ID calibration adds to ID error (denied in 4.3.2)"),
        ("id:adversarial", "error under attack adds to ID error (denied in 4.3.1)"),
        ("upstream:imagenet", "ImageNet error of the backbone adds to ID error (4.3.2)"),
    ):
        if name not in rows:
            continue
        row, denied = rows[name], "denied" in claim
        adds = " adds to " in claim
        ends = ("adjusted", "adjusted_low", "adjusted_high") if adds else _MORE
        sure = of_interval(row[ends[1]], row[ends[2]], below=False)
        verdict = {HOLDS: NOT, NOT: HOLDS}.get(sure, OPEN) if denied else sure
        what = "r with what ID error leaves" if adds else "r more than ID error has"
        shown = f"{what}: {_of(row, *ends)}"
        yield Finding(claim=claim, verdict=verdict, evidence=shown, networks=_networks(row))


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


def factor_study(store: Source, *, seed: int, bootstrap: int) -> FactorStudy:
    """Four factors of the metrics that all networks have (Figure 1)."""
    return factors(store, metric=COLUMNS, factors=4, seed=seed, bootstrap=min(bootstrap, 200))


def attack_study(store: Source, *, seed: int, bootstrap: int) -> FactorStudy:
    """The same with errors under attack, each size a column (Appendix B): attacked networks."""
    pairs = open_pairs(store, attacks="apart")
    names = {n for pair in pairs for n in pair.metrics if n.startswith(("id:", "ood:"))}
    attacks = sorted(name for name in names if ":adversarial@" in name)
    if not attacks:
        raise InputError("no network was attacked")
    some = []
    for pair in pairs:
        met = np.isfinite(np.stack([pair.column(name) for name in attacks], axis=1)).all(axis=1)
        left = tuple(name for name, here in zip(pair.models, met, strict=True) if not here)
        some.append(keep(pair, met, {"networks that were not attacked": left}))
    columns = [*COLUMNS, *attacks]
    return factors(some, metric=columns, factors=4, seed=seed, bootstrap=min(bootstrap, 200))


class _Loadings:
    """A metric belongs to the factor of its largest loading; surely, if that is not 0."""

    def __init__(self, study: FactorStudy) -> None:
        frame = study.frame.with_columns(size=pl.col("loading").abs())
        self.own: dict[str, dict[str, Any]] = {}
        for row in frame.sort("size").iter_rows(named=True):
            self.own[row["metric"]] = row  # the last is the largest
        self.n = f"{study.found.n} networks"

    def _surely(self, metric: str) -> bool:
        row = self.own[metric]
        return row["low"] is not None and not row["low"] <= 0 <= row["high"]

    def together(self, claim: str, *metrics: str) -> Finding:
        there = [m for m in metrics if m in self.own]
        same = len({self.own[m]["factor"] for m in there}) == 1
        sure = all(map(self._surely, there))
        shown = ", ".join(
            f"{m}: F{self.own[m]['factor']} {_of(self.own[m], 'loading', 'low', 'high')}"
            for m in there
        )
        verdict = (HOLDS if same else NOT) if sure else OPEN
        return Finding(claim=claim, verdict=verdict, evidence=shown, networks=self.n)

    def apart(self, claim: str, first: str, second: str) -> Finding:
        found = self.together(claim, first, second)
        return replace(found, verdict={HOLDS: NOT, NOT: HOLDS}.get(found.verdict, OPEN))


def _factor_structure(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.1: four factors; a metric belongs to the factor of its largest loading."""
    found = _Loadings(factor_study(store, seed=seed, bootstrap=bootstrap))
    together, apart = found.together, found.apart
    yield together(
        "one factor has ID error, ID NLL and corrupted error (4.1)",
        "id:error",
        "id:nll",
        "corrupted:error",
    )
    yield apart("OOD error has a factor of its own (4.1)", "ood:error", "id:error")
    yield apart("calibration has a factor of its own (4.1)", "id:ece", "id:error")
    yield apart("disparity has a factor of its own (4.1)", "id:disparity", "id:error")


def _factors_under_attack(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.1: one factor has ID error and errors under attacks of both sizes."""
    study = attack_study(store, seed=seed, bootstrap=bootstrap)
    names = [name for name in study.found.columns if name.startswith("id:adversarial")]
    claim = "one factor has ID error and ID errors under attacks of both sizes (4.1)"
    yield _Loadings(study).together(claim, "id:error", *names)


def _patterns(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 4.2, Figure S9a: in PACS lines that rise, or are vertical; none that falls."""
    frame = patterns(store, seed=seed, bootstrap=min(bootstrap, 200)).frame
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
        networks=n,
    )
    others = [p for p in sure["pattern"].to_list() if p not in ("increasing", "vertical")]
    yield Finding(
        claim="PACS pairs are increasing or vertical lines (Figure S9a)",
        verdict=NOT if others else HOLDS if len(sure) == len(frame) else OPEN,
        evidence=shown,
        networks=n,
    )


def _recipe(
    store: Source, claim: str, metric: str, *, below: bool = True, **compared: Any
) -> Finding:
    """One difference between recipes: on each ID set, and over matched networks."""
    given = compared | {"metric": [metric], "alternative": "less" if below else "greater"}
    by_set, by_network = (
        effects(store, unit=unit, **given).frame.row(0, named=True)
        for unit in ("id-set", "network")
    )
    return Finding(
        claim=claim,
        verdict=of_sets(by_set, by_network, below=below),
        evidence=f"median over ID sets {_signed(by_set)}, one-sided p = {_p(by_set['p_value'])}; "
        f"over matched networks {_signed(by_network)}",
        networks=f"{by_network['networks']} matched, {by_set['n']} ID sets",
    )


def of_sets(by_set: dict[str, Any], by_network: dict[str, Any], *, below: bool = True) -> str:
    """The networks' interval, if every ID set agrees with it; else nothing is decided."""
    found = of_interval(by_network["low"], by_network["high"], below=below)
    agree = by_set["rank_biserial"]
    side = -1.0 if (found == HOLDS) == below else 1.0
    same = agree is not None and abs(agree - side) < 1e-9 and not by_set["zeros"]
    return found if same else OPEN


def _augmentation(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 5.1: RandAugment and AugMix, averaged, against none."""
    for size, name in SIZES.items():
        for metric in ("id:error", "ood:error"):
            yield _recipe(
                store,
                f"augmentation lowers {_place(metric)} error, {name} (5.1)",
                metric,
                column="augmentation",
                of=AUGMENTED,
                against=PLAIN,
                match=ALIKE,
                only=[f"data_size={size}", "start=pretrained", "tune=head"],
            )


def _few_shot(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 5.1: fewer examples, larger errors."""
    match = [one for one in ALIKE if one != "data_size"] + ["augmentation"]
    for fewer, more in (("few-shot-10", "few-shot-100"), ("few-shot-100", "full")):
        for metric in ("id:error", "ood:error"):
            yield _recipe(
                store,
                f"{_place(metric)} error is larger with {SIZES[fewer]} than with {SIZES[more]} "
                "(5.1)",
                metric,
                below=False,
                column="data_size",
                of=[fewer],
                against=[more],
                match=match,
                only=["start=pretrained", "tune=head"],
            )


def _head_or_whole(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Appendix C.1: with 10 examples a class, the head alone is better on 40 % of the tasks."""
    yield _recipe(
        store,
        "with 10 examples a class the head alone has lower OOD error than the whole (C.1)",
        "ood:error",
        column="tune",
        of=["head"],
        against=["whole"],
        match=["architecture", "training_data", "data_size", "augmentation"],
        only=["data_size=few-shot-10", "start=pretrained"],
    )


def _pre_training(store: Source, *, seed: int, bootstrap: int) -> Iterator[Finding]:
    """Section 2: all networks there are pre-trained; here some are not."""
    for metric in ("id:error", "ood:error"):
        yield _recipe(
            store,
            f"pre-trained networks have lower {_place(metric)} error than small ones from nothing "
            "(not in the paper)",
            metric,
            column="start",
            of=["pretrained"],
            against=["random"],
            match=["training_data", "data_size", "augmentation"],
        )


def _place(metric: str) -> str:
    return metric.partition(":")[0].upper()


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
        networks=n,
    )
    yield Finding(
        claim="the architecture best on ID data is best on OOD data (Table 2)",
        verdict=NOT
        if best_id in [row["architecture"] for row in apart]
        else HOLDS
        if best_id == first["architecture"] and len(apart) == len(rest)
        else OPEN,
        evidence=f"best ID {best_id}, best OOD {first['architecture']}",
        networks=n,
    )
    orders = [table["architecture"].to_list() for table in tables.values()]
    yield Finding(
        claim="the ranking is the same whether chosen on ID validation or ID test error",
        verdict=HOLDS if orders[0] == orders[1] and len(apart) == len(rest) else OPEN,
        evidence=f"validation: {' < '.join(orders[0])}; test: {' < '.join(orders[1])}",
        networks=n,
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
