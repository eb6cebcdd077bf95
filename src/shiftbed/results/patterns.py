"""Patterns of all (ID, OOD) scatters of a study, and how often each occurs by task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.patterns import PATTERNS, Pattern, Rules, classify
from shiftbed.analysis.trust import Limits, Trust, trust_line
from shiftbed.errors import InputError, unknown
from shiftbed.testbed import choose

ALL = "all"


def pattern_table(
    pairs: Sequence[PairTable],
    *,
    classes: Mapping[str, int] | None = None,
    images: Mapping[str, int] | None = None,
    groups: str | None = None,
    scale: str = "logit",
    rules: Rules | None = None,
    limits: Limits | None = None,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """A row per pair: its pattern with margins and measures, and whether its line is trusted.

    ``classes`` is the number of classes by task ("" for all tasks), ``images`` the size of a test
    set by its name, ``groups`` a column of the networks' recipes that could have lines of its own.
    """
    rows = []
    for pair in pairs:
        x, y = accuracy_of(pair, "id"), accuracy_of(pair, "ood")
        count = (classes or {}).get(pair.task) or (classes or {}).get("")
        sizes = [(images or {}).get(name, 0) for name in (pair.source, pair.target)]
        both = (sizes[0], sizes[1]) if min(sizes) > 0 else None
        if groups is not None and groups not in pair.info:
            raise unknown(f"recipe column of {pair.name}", groups, pair.info)
        pattern = classify(
            x,
            y,
            chance=1.0 / count if count else None,
            sizes=both,
            scale=scale,
            rules=rules,
            bootstrap=bootstrap,
            level=level,
            seed=seed,
        )
        trust = trust_line(
            x,
            y,
            models=pair.models,
            groups=pair.info[groups] if groups else None,
            sizes=both,
            scale=scale,
            pattern=pattern.pattern,
            limits=limits,
        )
        rows.append(_row(pair, pattern, trust))
    if not rows:
        raise InputError("there is no (ID, OOD) pair to classify")
    return pl.DataFrame(rows, schema=_SCHEMA)


_TEXTS = ("task", "id", "ood", "kind", "pattern", "reason", "nearest", "margin_by")
_NUMBERS = ["margin", "share", "rank", "rank_low", "rank_high", "slope", "slope_low", "slope_high"]
_NUMBERS += ["spread_id", "spread_ood", "steepness", "kept", "chance", "r2"]
_SCHEMA: dict[str, Any] = dict.fromkeys(_TEXTS, pl.String)
_SCHEMA |= {"n": pl.Int64, "left_out": pl.Int64}
_SCHEMA |= dict.fromkeys(_NUMBERS, pl.Float64)
_SCHEMA |= {"trusted": pl.Boolean, "why_not": pl.String, "note": pl.String}


def _row(pair: PairTable, found: Pattern, trust: Trust) -> dict[str, Any]:
    measured = found.measures
    notes = list(found.notes)
    if found.pattern != "undecided" and np.isinf(found.margin):
        notes.append("no margin: no measure alone could change the pattern")
    if found.pattern != "undecided" and not found.draws:
        notes.append("no margin: no resampling was asked for")
    r2 = next((check.value for check in trust.checks if check.name == "r2"), None)
    row: dict[str, Any] = {
        "task": pair.task,
        "id": pair.source,
        "ood": pair.target,
        "kind": pair.kind,
        "pattern": found.pattern,
        "reason": found.reason,
        "nearest": found.nearest or None,
        "margin_by": found.margin_by or None,
        "n": found.n,
        "left_out": found.left_out,
        "margin": found.margin,
        "share": found.share,
        "rank": None if "no rank" in measured.undefined else measured.rank,
        "rank_low": found.rank_low,
        "rank_high": found.rank_high,
        "slope": measured.slope,
        "slope_low": measured.slope_low,
        "slope_high": measured.slope_high,
        "spread_id": measured.spread_id,
        "spread_ood": measured.spread_ood,
        "steepness": measured.steepness,
        "kept": measured.kept,
        "chance": found.chance,
        "r2": r2,
        "trusted": trust.trusted,
        "why_not": "; ".join(trust.reasons) or None,
        "note": "; ".join(notes) or None,
    }
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in row.items()
    }


def pattern_counts(table: pl.DataFrame, level: float = 0.95) -> pl.DataFrame:
    """How many pairs of each task have each pattern, with its share and exact interval.

    A row per task and pattern, and for all tasks together; pairs of a task share networks and
    test sets, so the intervals, which take pairs as independent, are too narrow if anything.
    """
    tasks = table["task"].unique(maintain_order=True).to_list()
    rows = []
    for task in [*tasks, ALL] if len(tasks) > 1 else tasks:
        part = table if task == ALL and len(tasks) > 1 else table.filter(pl.col("task") == task)
        for pattern in PATTERNS:
            pairs = part.filter(pl.col("pattern") == pattern)
            share = len(pairs) / len(part)
            low, high = clopper_pearson(share, len(part), level)
            rows.append(
                {
                    "task": task,
                    "pattern": pattern,
                    "pairs": len(pairs),
                    "of": len(part),
                    "share": share,
                    "low": float(low),
                    "high": float(high),
                    "trusted": int(pairs["trusted"].sum()),
                }
            )
    return pl.DataFrame(rows)


def chosen_networks(pairs: Sequence[PairTable], only: Sequence[str]) -> tuple[PairTable, ...]:
    """The pairs with those networks whose recipe has COLUMN=PATTERN (or !=), all that are given."""
    if not only:
        return tuple(pairs)
    for text in only:
        if "=" not in text:
            raise InputError(f"cannot choose networks by {text!r}; say COLUMN=PATTERN")
    frames = [pl.DataFrame({"model": p.models, **p.info}, strict=False) for p in pairs]
    mask = choose(pl.concat(frames, how="diagonal_relaxed"), list(only))
    found, at = [], 0
    for pair in pairs:
        rows = np.flatnonzero(mask[at : at + len(pair.models)])
        at += len(pair.models)
        found.append(
            replace(
                pair,
                models=tuple(pair.models[i] for i in rows),
                values=pair.values[rows],
                info={name: [of[int(i)] for i in rows] for name, of in pair.info.items()},
            )
        )
    if not mask.any():
        raise InputError(f"no network has {' and '.join(only)}")
    return tuple(found)


def accuracy_of(pair: PairTable, where: str) -> NDArray[np.float64]:
    """(models,): accuracy = 1 − error there."""
    if f"{where}:accuracy" in pair.metrics:
        return pair.column(f"{where}:accuracy")
    return np.asarray(1.0 - pair.column(f"{where}:error"))
