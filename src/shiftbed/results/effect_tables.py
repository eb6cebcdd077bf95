"""Tables of ``effects`` (wenzel2022): which architecture is best, how hard a task's shifts are.

Architectures are chosen on ID data (Tables 2 and S2). Gaps are normalised ones of mean accuracies
(Equations S1 and S2, Figures S7, S10 and S11): of ID and OOD, and of whole model and head. Means
are of recipes themselves (Figures S6 and S8).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.effects import (
    choose_networks,
    gap_of,
    id_sets,
    mean_over_targets,
    rank_trend,
)
from shiftbed.analysis.pairs import PairTable
from shiftbed.display import between, counted, number, percent, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs.averages import UNITS, Averaged, by_group, frame_of
from shiftbed.results.pairs.networks import CHOICES
from shiftbed.testbed.labels import natural

Floats = NDArray[np.float64]
ALPHA = 0.05
"""Differences with a q-value up to this are told in words."""
ALL = "all"
"""The row of an architecture table that is over all tasks."""


def effect_answer(show: str, frame: pl.DataFrame, claim: str | None) -> Iterator[str]:
    """What a table of effects comes to, in words."""
    if show == "differences":
        held = frame.filter(pl.col("q_value") <= ALPHA)["metric"].to_list()
        total = counted(len(frame), "metric")
        if held:
            yield f"{claim} in {len(held)} of {total} (q ≤ {ALPHA:g}): {', '.join(held)}."
        else:
            yield f"No evidence in any of {total} that {claim} (q ≤ {ALPHA:g})."
    elif show == "architectures":
        for row in records(frame.filter(pl.col("task") == ALL).sort("ood_error").head(1)):
            error = f" ± {number(row['ood_error_se'], 3)}" if row["ood_error_se"] else ""
            yield f"Lowest OOD error: {row['architecture']}, {number(row['ood_error'], 3)}{error}."
    elif show == "means":
        of_ood = frame.filter(pl.col("where") == "ood").sort("accuracy", descending=True)
        column = frame.columns[frame.columns.index("where") + 1]
        for row in records(of_ood.head(1)):
            where = ", ".join(str(row[name]) for name in ("task", "data_size"))
            found = f"{row[column]}, {percent(row['accuracy'])} %"
            yield f"Most accurate on OOD data: {found} ({where})."
    else:
        there = frame.filter(pl.col("where") == "ood") if show == "head" else frame
        for row in records(there.drop_nulls("gap").sort("gap", descending=True).head(1)):
            ends = between(row["low"], row["high"], partial(number, digits=3))
            around = f" ({ends})" if ends else ""
            what = "Largest gap to the whole network" if show == "head" else "Hardest"
            yield f"{what}: {row['task']}, normalised gap {number(row['gap'], 3)}{around}."


def architectures(
    pairs: Sequence[PairTable],
    *,
    column: str = "architecture",
    select: str | None = None,
    over: str = "pairs",
) -> pl.DataFrame:
    """Mean ± standard error of ID error, OOD error and gap of each architecture (Tables 2, S2).

    On every ID set the network with the lowest ``select`` is taken: a metric, ``id-validation``
    (``id:validation_error``, the default if it is there) or ``id-test`` (``id:error``, the default
    else, which flatters the ID column); ``chosen_by`` says which. ``rank`` is 1 for the lowest OOD
    error of a task. A row per architecture and task, then one per architecture over ``all``: over
    ``pairs``, as Table 2 was made, or over ``tasks``, as its appendix says. Standard errors of ID
    errors are over ID sets, the others over pairs (or tasks); from one there is none.
    """
    if over not in ("pairs", "tasks"):
        raise unknown("average", over, ("pairs", "tasks"))
    known = {m for pair in pairs for m in pair.metrics}
    chosen_by = (
        CHOICES.get(select or "")
        or select
        or ("id:validation_error" if "id:validation_error" in known else "id:error")
    )
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
    found = frame_of(rows)
    rank = pl.col("ood_error").rank("min").over("task").cast(pl.Int64).alias("rank")
    return found.insert_column(found.columns.index("gap_se") + 1, found.select(rank)["rank"])


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


def difficulty(
    pairs: Sequence[PairTable],
    *,
    unit: str = "two-way",
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> pl.DataFrame:
    """How hard each task's shifts are: (acc_ID − acc_OOD)/acc_ID of its mean accuracies (Eq. S2).

    Accuracies are averaged over a pair's networks, then over the task's pairs (see ``gap_of``); the
    interval resamples what ``unit`` says, as in ``predictiveness``. ``scaled`` maps the gaps
    linearly to 0 … 1, as in Fig. S11 (null where all tasks are alike). ``networks`` are those of
    all pairs of the task, each counted once.
    """
    if unit not in UNITS:
        raise unknown("unit of the bootstrap", unit, UNITS)
    rows = []
    for task in dict.fromkeys(pair.task for pair in pairs):
        here = [pair for pair in pairs if pair.task == task]
        means = np.array([_mean_accuracies(pair) for pair in here])
        both = np.isfinite(means).all(axis=1)
        some = [pair for pair, there in zip(here, both, strict=True) if there]
        found = gap_of(
            means[both],
            units=None if unit == "pair" else [pair.source for pair in some],
            crossed=[pair.target for pair in some] if unit == "two-way" else None,
            bootstrap=bootstrap,
            seed=seed,
            level=level,
        )
        networks = len({(pair.source, model) for pair in some for model in pair.models})
        rows.append({"task": task, **vars(found), "networks": networks})
    frame = frame_of(rows)
    gap = frame["gap"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    width = np.nanmax(gap) - np.nanmin(gap) if np.isfinite(gap).any() else 0.0
    scaled = (gap - np.nanmin(gap)) / width if width > 0 else np.full(len(gap), np.nan)
    at = frame.columns.index("gap") + 1
    frame = frame.insert_column(at, pl.Series("scaled", scaled, nan_to_null=True))
    return frame.rename({"better": "id_accuracy", "worse": "ood_accuracy", "n": "pairs"})


def _mean_accuracies(pair: PairTable) -> tuple[float, float]:
    """Of the networks with both: mean ID and OOD accuracy."""
    if not {"id:error", "ood:error"} <= set(pair.metrics):
        return float("nan"), float("nan")
    x, y = 1.0 - pair.column("id:error"), 1.0 - pair.column("ood:error")
    both = np.isfinite(x) & np.isfinite(y)
    return (float(x[both].mean()), float(y[both].mean())) if both.any() else (np.nan, np.nan)


def full_and_head(
    pairs: Sequence[PairTable],
    column: str,
    of: Sequence[str],
    against: Sequence[str],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> pl.DataFrame:
    """(acc_full − acc_head)/acc_full by task, on ID and on OOD data (Fig. S7).

    ``of`` and ``against`` are one value each of a recipe column, the full model's and the head's.
    Accuracies are averaged over the networks of an ID set (OOD: over its OOD sets too), then over
    the task's ID sets, which the bootstrap draws.
    """
    if len(of) != 1 or len(against) != 1:
        raise InputError("head compares one value (--of, the full model) with one (--against)")
    rows = []
    for task in dict.fromkeys(pair.task for pair in pairs):
        sets = [here for (t, _), here in id_sets(pairs).items() if t == task]
        for where in ("id", "ood"):
            means = np.array(
                [_by_value(here, f"{where}:error", column, (of[0], against[0])) for here in sets]
            )
            means = means[np.isfinite(means).all(axis=1)]
            found = gap_of(means, unit="ID set", bootstrap=bootstrap, seed=seed, level=level)
            rows.append({"task": task, "where": where, **vars(found)})
    names = {"better": "full_accuracy", "worse": "head_accuracy", "n": "id_sets"}
    return frame_of(rows).rename(names)


def recipe_means(pairs: Sequence[PairTable], *, column: str = "tune") -> pl.DataFrame:
    """Mean ID and OOD accuracy of each value of a recipe column, by task (Figures S6 and S8).

    A row per size of the training data, task, place (ID or OOD) and value, of which at least two
    must be there. OOD accuracies are averaged over the OOD sets of an ID set, so that each network
    counts once for each of its ID sets; the standard error is over these, none from one.
    """
    if column in ("data_size", "task", "where"):
        raise InputError(f"means are by size and task already: give another column than {column!r}")
    sizes: dict[str, dict[tuple[str, str, str], list[float]]] = {}
    for (task, _), here in id_sets(pairs).items():
        if column not in here[0].info:
            raise unknown(f"recipe column of {here[0].name}", column, here[0].info)
        models = here[0].models
        of = dict(zip(models, here[0].info[column], strict=True))
        size = dict(zip(models, here[0].info.get("data_size", ["all"] * len(models)), strict=True))
        for where in ("id", "ood"):
            for model, error in mean_over_targets(here, f"{where}:error").items():
                if of.get(model) is not None and np.isfinite(error):
                    cell = sizes.setdefault(str(size[model]), {})
                    cell.setdefault((task, where, str(of[model])), []).append(1.0 - error)
    known = {value for cells in sizes.values() for _, _, value in cells}
    if len(known) < 2:
        there = f"{known.pop()!r} alone" if known else "nothing"
        raise InputError(f"means compare values of {column!r}, of which the networks have {there}")
    rows = [
        {"data_size": size, "task": task, "where": where, column: value}
        | {"accuracy": float(np.mean(some)), "standard_error": _standard_error(np.array(some))}
        | {"networks": len(some), "note": "no standard error from one network" * (len(some) == 1)}
        for size, cells in sorted(sizes.items(), key=lambda one: natural(one[0]), reverse=True)
        for (task, where, value), some in sorted(cells.items())
    ]
    return frame_of(rows)


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


def difficulty_effect(of: Averaged, hard: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
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
        found = rank_trend(there["gap"].to_numpy(), there["r"].to_numpy(), of.level)
        rows.append({"metric": metric, **vars(found)})
    return points, frame_of(rows).rename({"n": "tasks"})
