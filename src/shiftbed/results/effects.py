"""Effects of recipes as tables: differences, architectures, gaps and difficulty (wenzel2022)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shiftbed.analysis.effects import (
    choose_networks,
    id_sets,
    matched_differences,
    mean_over_targets,
    normalised_gap,
    signed_rank,
)
from shiftbed.analysis.intervals import benjamini_hochberg, check_level
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.predictiveness import average_ranks
from shiftbed.errors import InputError, unknown
from shiftbed.results.predictiveness import Study, by_group

Floats = NDArray[np.float64]
ALL = "all"
"""The row of an architecture table that is over all tasks."""


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame, NaN as null."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(cs.float().fill_nan(None))


def effects(
    pairs: Sequence[PairTable],
    column: str,
    of: Sequence[str],
    against: Sequence[str],
    *,
    metrics: Sequence[str] | None = None,
    alternative: str = "less",
    match: Sequence[str] | None = None,
    unit: str = "id-set",
    method: str = "auto",
    level: float = 0.95,
) -> pl.DataFrame:
    """Differences of each metric between recipes, with one-sided Wilcoxon p-values (Fig. 5).

    A row per metric: mean and median of metric(of) − metric(against), the median's interval, the
    rank-biserial effect size, ``p_value`` of the ``alternative``, ``q_value`` (Benjamini–Hochberg
    over the rows). Lower is better, so ``less`` asks whether ``of`` is better than ``against``.
    Metrics default to all measured on ID, corrupted and OOD data; held-out means over an ID set's
    OOD sets equal the OOD ones.
    """
    known = list(dict.fromkeys(m for pair in pairs for m in pair.metrics))
    wanted = metrics or [m for m in known if not m.startswith(("held-out:", "upstream:"))]
    rows: list[dict[str, Any]] = []
    for metric in wanted:
        if metric not in known:
            raise unknown("metric of the study", metric, known)
        found = matched_differences(pairs, metric, column, of, against, match=match, unit=unit)
        test = signed_rank(found.differences, alternative, method=method, level=level)
        rows.append(
            {
                "metric": metric,
                "mean": test.mean,
                "median": test.median,
                "low": test.low,
                "high": test.high,
                "rank_biserial": test.rank_biserial,
                "p_value": test.p_value,
                "n": test.n,
                "zeros": test.zeros,
                "networks": found.matched,
                "unmatched": found.unmatched,
                "alternative": alternative,
                "method": test.method,
                "note": test.note,
            }
        )
    frame = _frame(rows)
    q = benjamini_hochberg(frame["p_value"].cast(pl.Float64).fill_null(np.nan).to_numpy())
    at = frame.columns.index("p_value") + 1
    return frame.insert_column(at, pl.Series("q_value", q, nan_to_null=True))


# --- architectures -------------------------------------------------------------------------------


def architectures(
    pairs: Sequence[PairTable],
    *,
    column: str = "architecture",
    select: str | None = None,
    over: str = "pairs",
) -> pl.DataFrame:
    """Mean ± standard error of ID error, OOD error and gap of each architecture (Tables 2, S2).

    On every ID set the network with the lowest ``select`` is taken (default:
    ``id:validation_error`` if it is there, else ``id:error``, which flatters the ID column; see
    ``chosen_by``). A row per architecture and task, then one per architecture over ``all``: over
    ``pairs``, as Table 2 was made, or over ``tasks``, as its appendix says. Standard errors of ID
    errors are over ID sets, the others over pairs (or tasks); from one there is none.
    """
    if over not in ("pairs", "tasks"):
        raise unknown("average", over, ("pairs", "tasks"))
    known = {m for pair in pairs for m in pair.metrics}
    chosen_by = select or ("id:validation_error" if "id:validation_error" in known else "id:error")
    if chosen_by not in known:
        raise unknown("metric of the study", chosen_by, sorted(known))
    chosen, left_out = choose_networks(pairs, column, chosen_by)
    if not chosen:
        raise InputError(f"no network has a value of {column!r}, of {chosen_by} and both errors")
    frame = pl.DataFrame([vars(one) for one in chosen]).with_columns(
        gap=pl.col("ood_error") - pl.col("id_error")
    )
    rows = [
        _summary(part, str(name), str(task))
        for (name, task), part in frame.group_by("architecture", "task", maintain_order=True)
    ]
    for (name,), part in frame.group_by("architecture", maintain_order=True):
        mine = [row for row in rows if row["architecture"] == name]
        rows.append(_summary(part, str(name), ALL) if over == "pairs" else _over_tasks(mine))
    for row in rows:
        missing = left_out.get(row["architecture"], 0)
        if missing and row["task"] == ALL:
            lacking = f"{missing} pairs left out, as no network has every value there"
            row["note"] = "; ".join(part for part in (lacking, row["note"]) if part)
        row["chosen_by"] = chosen_by
    return _frame(rows)


def _summary(part: pl.DataFrame, name: str, task: str) -> dict[str, Any]:
    ids = part.unique(["task", "source"], maintain_order=True)["id_error"].to_numpy()
    row: dict[str, Any] = {"architecture": name, "task": task}
    errors = {"id_error": ids, "ood_error": part["ood_error"].to_numpy()}
    for column, values in (errors | {"gap": part["gap"].to_numpy()}).items():
        row[column] = float(part[column].to_numpy().mean())
        row[f"{column}_se"] = _standard_error(values)
    row |= {"id_sets": len(ids), "pairs": len(part)}
    lone = "no standard error from one pair" if len(part) == 1 else ""
    row["note"] = lone or ("no standard error of the ID error from one ID set" * (len(ids) == 1))
    return row


def _over_tasks(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"architecture": rows[0]["architecture"], "task": ALL}
    for column in ("id_error", "ood_error", "gap"):
        values = np.array([row[column] for row in rows])
        found |= {column: float(values.mean()), f"{column}_se": _standard_error(values)}
    found |= {key: sum(row[key] for row in rows) for key in ("id_sets", "pairs")}
    return found | {"note": "no standard error from one task" * (len(rows) == 1)}


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


# --- gaps and difficulty -------------------------------------------------------------------------


def difficulty(
    pairs: Sequence[PairTable], *, bootstrap: int = 1000, seed: int = 0, level: float = 0.95
) -> pl.DataFrame:
    """How hard each task's shifts are: (acc_ID − acc_OOD)/acc_ID of its mean accuracies (Eq. S2).

    Accuracies are averaged over a pair's networks, then over the task's pairs. The interval is from
    a bootstrap over pairs, widened as in ``task_mean``; ``deviation`` is the standard deviation of
    the pairs' own gaps, which Fig. S10 draws; ``scaled`` maps the gaps linearly to 0 … 1, as in
    Fig. S11 (null where all tasks are alike).
    """
    check_level(level)
    rows = []
    rng = np.random.default_rng(seed)
    for task in dict.fromkeys(pair.task for pair in pairs):
        means = np.array([_mean_accuracies(p) for p in pairs if p.task == task])
        means = means[np.isfinite(means).all(axis=1)]
        rows.append({"task": task, **_gap_row(means, bootstrap, rng, level)})
    frame = _frame(rows)
    gap = frame["gap"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    width = np.nanmax(gap) - np.nanmin(gap) if np.isfinite(gap).any() else 0.0
    scaled = (gap - np.nanmin(gap)) / width if width > 0 else np.full(len(gap), np.nan)
    at = frame.columns.index("gap") + 1
    frame = frame.insert_column(at, pl.Series("scaled", scaled, nan_to_null=True))
    return frame.rename({"better": "id_accuracy", "worse": "ood_accuracy"})


def _mean_accuracies(pair: PairTable) -> tuple[float, float]:
    """Of the networks with both: mean ID and OOD accuracy."""
    if not {"id:error", "ood:error"} <= set(pair.metrics):
        return float("nan"), float("nan")
    x, y = 1.0 - pair.column("id:error"), 1.0 - pair.column("ood:error")
    both = np.isfinite(x) & np.isfinite(y)
    return (float(x[both].mean()), float(y[both].mean())) if both.any() else (np.nan, np.nan)


def _gap_row(
    means: Floats, bootstrap: int, rng: np.random.Generator, level: float
) -> dict[str, Any]:
    """(pairs, 2) mean accuracies → their normalised gap with its interval."""
    nan, n = float("nan"), len(means)
    row: dict[str, Any] = {"better": nan, "worse": nan, "gap": nan, "low": nan, "high": nan}
    row |= {"deviation": nan, "pairs": n, "note": ""}
    if not n or means[:, 0].mean() <= 0:
        return row | {"note": "no pair has both accuracies" if not n else "the accuracy is zero"}
    better, worse = means.mean(axis=0).tolist()
    row |= {"better": better, "worse": worse, "gap": normalised_gap(better, worse)}
    if n == 1:
        return row | {"note": "no interval from one pair"}
    weights = rng.multinomial(n, np.full(n, 1 / n), size=bootstrap)
    drawn = (weights @ means) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = 1.0 - drawn[:, 1] / drawn[:, 0]
        own = 1.0 - means[:, 1] / means[:, 0]
    student = float(stdtrit(n - 1, 0.5 + level / 2) / ndtri(0.5 + level / 2))
    wide = row["gap"] + (gaps - row["gap"]) * np.sqrt(n / (n - 1)) * student
    low, high = np.nanquantile(wide, [(1 - level) / 2, (1 + level) / 2]).tolist()
    deviation = float(own[np.isfinite(own)].std(ddof=1)) if np.isfinite(own).sum() > 1 else nan
    return row | {"low": low, "high": high, "deviation": deviation}


def full_and_head(
    pairs: Sequence[PairTable],
    column: str,
    full: str,
    head: str,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> pl.DataFrame:
    """(acc_full − acc_head)/acc_full by task, on ID and on OOD data (Fig. S7).

    ``full`` and ``head`` are values of a recipe column. Accuracies are averaged over the networks
    of an ID set (OOD: over its OOD sets too), then over the task's ID sets, which the bootstrap
    draws.
    """
    check_level(level)
    rng, rows = np.random.default_rng(seed), []
    for task in dict.fromkeys(pair.task for pair in pairs):
        sets = [here for (t, _), here in id_sets(pairs).items() if t == task]
        for where in ("id", "ood"):
            means = np.array(
                [_by_value(here, f"{where}:error", column, (full, head)) for here in sets]
            )
            means = means[np.isfinite(means).all(axis=1)]
            row = _gap_row(means, bootstrap, rng, level)
            note = row["note"].replace("pair", "ID set")
            row = {("id_sets" if k == "pairs" else k): v for k, v in row.items()} | {"note": note}
            rows.append({"task": task, "where": where, **row})
    return _frame(rows).rename({"better": "full_accuracy", "worse": "head_accuracy"})


def _by_value(
    here: Sequence[PairTable], metric: str, column: str, wanted: Sequence[str]
) -> list[float]:
    """Mean accuracy of the networks with each of these values of a recipe column."""
    if column not in here[0].info:
        raise unknown(f"recipe column of {here[0].name}", column, here[0].info)
    of = {m: str(v) for m, v in zip(here[0].models, here[0].info[column], strict=True)}
    for value in wanted:
        if value not in of.values():
            raise unknown(f"value of {column} in {here[0].name}", value, sorted(set(of.values())))
    errors = mean_over_targets(here, metric)
    sides = [[1.0 - e for m, e in errors.items() if of.get(m) == value] for value in wanted]
    return [float(np.mean(side)) if side else float("nan") for side in sides]


def difficulty_effect(of: Study, hard: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Does predictiveness depend on how hard a task is? (Fig. S11)

    First a row per task and metric: the task's difficulty and the metric's r with the target there.
    Then a row per metric: Spearman's r of the two over tasks, with Fieller's interval
    tanh(artanh r ± z·√(1.06/(tasks − 3))).
    """
    by_task = by_group(of, "task").join(hard.select("task", "gap", "scaled"), on="task")
    points = by_task.select("task", "gap", "scaled", "metric", "r", "low", "high", "pairs", "note")
    rows = []
    for (metric,), part in points.group_by("metric", maintain_order=True):
        there = part.drop_nulls(["gap", "r"])
        rows.append({"metric": metric, **_over_difficulty(there["gap"], there["r"], of.level)})
    return points, _frame(rows)


def _over_difficulty(gap: pl.Series, r: pl.Series, level: float) -> dict[str, Any]:
    nan, n = float("nan"), len(gap)
    row: dict[str, Any] = {"r": nan, "low": nan, "high": nan, "tasks": n, "note": ""}
    if n < 3:
        return row | {"note": f"too few tasks ({n}) for a correlation"}
    x, y = average_ranks(gap.to_numpy()), average_ranks(r.to_numpy())
    x, y = x - x.mean(), y - y.mean()
    length = float(np.sqrt((x @ x) * (y @ y)))
    if length == 0:
        return row | {"note": "the same for all tasks"}
    value = round(float(np.clip((x @ y) / length, -1.0, 1.0)), 12)
    if n < 4 or abs(value) == 1.0:
        why = "of ±1" if abs(value) == 1.0 else "from three tasks"
        return row | {"r": value, "note": f"no interval of a correlation {why}"}
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(1.06 / (n - 3))
    ends = np.tanh(np.arctanh(value) + np.array([-half, half])).tolist()
    return row | {"r": value, "low": ends[0], "high": ends[1]}
