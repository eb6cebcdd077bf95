"""Which architecture is best, chosen on ID data: ID error, OOD error, gap and rank of each.

wenzel2022, Tables 2 and S2. A table of ``effects``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.effects import choose_networks
from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs.averages import frame_of
from shiftbed.results.pairs.networks import CHOICES

Floats = NDArray[np.float64]
ALL = "all"
"""The row of an architecture table that is over all tasks."""


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
