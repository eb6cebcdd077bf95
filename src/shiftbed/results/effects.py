"""What does a recipe do? ``effects``: differences, architectures, gaps, difficulty (wenzel2022)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from shiftbed.analysis.effects import (
    choose_networks,
    gap_of,
    id_sets,
    matched_differences,
    mean_over_targets,
    rank_trend,
    signed_rank,
    unit_of,
)
from shiftbed.analysis.intervals import benjamini_hochberg, check_level
from shiftbed.analysis.pairs import PairTable
from shiftbed.display import Table, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.charts import Charted
from shiftbed.results.pairs import Source, name_of, notes_of, open_pairs
from shiftbed.results.predictiveness import Study, by_group, interval_table, study

if TYPE_CHECKING:
    from shiftbed.figures.charts import Bars, Dots, Panels

Floats = NDArray[np.float64]
ALL = "all"
"""The row of an architecture table that is over all tasks."""


def effects(
    source: Source,
    *,
    show: str = "differences",
    column: str | None = None,
    of: Sequence[str] | None = None,
    against: Sequence[str] | None = None,
    metric: Sequence[str] | None = None,
    alternative: str | None = None,
    match: Sequence[str] | None = None,
    unit: str | None = None,
    select: str | None = None,
    over: str | None = None,
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    bootstrap: int | None = None,
    seed: int | None = None,
    level: float = 0.95,
) -> "RecipeEffects":
    """What does a recipe do? Paired differences, architectures, normalised gaps, difficulty.

    ``show`` is one of ``differences`` (see ``differences``), ``architectures``, ``difficulty`` and
    ``head`` (``full_and_head``), which take the options of these functions; any other is refused.
    ``kind`` and ``task`` as in ``open_pairs``.
    """
    if show not in _TABLES:
        raise unknown("table", show, _TABLES)
    takes = signature(_TABLES[show]).parameters
    given: dict[str, Any] = {
        "column": column,
        "of": of,
        "against": against,
        "metric": metric,
        "alternative": alternative,
        "match": match,
        "unit": unit,
        "select": select,
        "over": over,
        "bootstrap": bootstrap,
        "seed": seed,
    }
    options = {name: one for name, one in given.items() if one is not None and one != []}
    for name in options:
        if name not in takes:
            raise InputError(f"--{name} does not go with --show {show}")
    if "of" in takes and not {"column", "of", "against"} <= set(options):
        raise InputError(f"{show} needs --column with --of and --against, values of that column")
    pairs = open_pairs(source, kind=kind, task=task)
    options |= {"level": level} if "level" in takes else {}
    used = {name: one.default for name, one in takes.items()} | options
    frame = _TABLES[show](pairs, **options)
    sides = {name: " + ".join(given[name] or ()) for name in ("of", "against")}
    claim = by_task = trend = None
    if show == "differences":
        better = "lower (better)" if used["alternative"] == "less" else "higher (worse)"
        claim = f"{sides['of']} is {better} than {sides['against']}"
    if show == "difficulty":
        by_task, trend = difficulty_effect(study(pairs, **options), frame)
    return RecipeEffects(
        frame=frame,
        notes=(*_remarks(show, frame, used, claim), *notes_of(pairs, held_out=False)),
        source=name_of(source),
        show=show,
        title=_TITLES[show].format_map(used | sides),
        alternative=claim,
        by_task=by_task,
        trend=trend,
    )


_UNITS = {"network": "Networks of one ID set", "id-set": "ID sets of one task"}
_TITLES = {
    "differences": "{column}, {of} minus {against}",
    "architectures": "errors by {column}",
    "difficulty": "how hard each task's shifts are",
    "head": "normalised gap between {of} and {against}",
}


def _remarks(
    show: str, frame: pl.DataFrame, used: Mapping[str, Any], claim: str | None
) -> Iterable[str]:
    """How to read a table."""
    if show == "differences":
        unit = used["unit"] or frame["unit"][0]
        yield (
            f"One-sided Wilcoxon signed-rank p-values; alternative: {claim}. q: Benjamini–Hochberg "
            f"over the rows. One difference per {unit}; the median with its "
            f"{100 * used['level']:g} % interval."
        )
        if unit == "task" and max(frame["n"].to_list(), default=0) < 5:
            yield (
                "Fewer than five tasks cannot reach p < 0.05; --unit id-set takes the ID sets of a "
                "task as independent."
            )
        if used["unit"] in _UNITS:
            yield f"{_UNITS[unit]} are not independent: the p-values are too small."
    elif show == "architectures":
        chosen_by = frame["chosen_by"][0]
        yield (
            f"On each ID set the network with the lowest {chosen_by}; mean and standard error; "
            f"all: over {used['over']}. The gap is OOD − ID error."
        )
        if chosen_by == "id:error":
            yield "Chosen on the ID test error itself, which flatters the ID column."
    else:
        drawn = f"{100 * used['level']:g} % intervals from {used['bootstrap']} resamples of"
        if show == "head":
            full, head = used["of"][0], used["against"][0]
            yield f"gap: ({full} − {head})/{full} accuracy; {drawn} ID sets."
        else:
            yield (
                f"gap: (ID − OOD)/ID accuracy; {drawn} pairs; deviation: of the pairs' own gaps; "
                "scaled: 0 for the easiest task, 1 for the hardest."
            )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecipeEffects(Charted):
    """One of the four tables of ``effects``, in ``frame``."""

    source: str
    show: str
    title: str
    alternative: str | None
    """What the p-values of differences speak for."""
    by_task: pl.DataFrame | None
    """With difficulty: the predictiveness of each metric in each task."""
    trend: pl.DataFrame | None
    """With difficulty: does predictiveness depend on it?"""

    def to_dict(self) -> dict[str, Any]:
        more: dict[str, Any] = {"alternative": self.alternative} if self.alternative else {}
        if self.by_task is not None and self.trend is not None:
            more |= {"predictiveness": records(self.by_task), "trend": records(self.trend)}
        found = {"source": self.source, "show": self.show, "rows": records(self.frame)}
        return found | more | {"notes": list(self.notes)}

    def tables(self) -> Iterable[Table]:
        title = f"{self.source}: {self.title}"
        yield interval_table(title, self.frame, self.notes)
        if self.trend is not None:
            title = "Does predictiveness depend on it? Spearman's r over tasks"
            yield interval_table(title, self.trend)

    def chart(self) -> "Bars | Dots | Panels":
        """Bars of differences and gaps, dots of architectures, panels of difficulty."""
        from shiftbed.results.charts import predictiveness as charts

        title = f"{self.source}: {self.title}"
        if self.by_task is not None:
            return charts.difficulty_panels(self.frame, self.by_task, title=title)
        if self.alternative is not None:
            return charts.effect_bars(self.frame, title=title, alternative=self.alternative)
        draw = charts.architecture_dots if self.show == "architectures" else charts.head_bars
        return draw(self.frame, title=title)


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame, NaN as null."""
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(cs.float().fill_nan(None))


def differences(
    pairs: Sequence[PairTable],
    column: str,
    of: Sequence[str],
    against: Sequence[str],
    *,
    metric: Sequence[str] | None = None,
    alternative: str = "less",
    match: Sequence[str] | None = None,
    unit: str | None = None,
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
    wanted = metric or [m for m in known if not m.startswith(("held-out:", "upstream:"))]
    rows: list[dict[str, Any]] = []
    for name in wanted:
        if name not in known:
            raise unknown("metric of the study", name, known)
        found = matched_differences(pairs, name, column, of, against, match=match, unit=unit)
        test = signed_rank(found.differences, alternative, level=level)
        rows.append(
            {
                "metric": name,
                "mean": test.mean,
                "median": test.median,
                "low": test.low,
                "high": test.high,
                "rank_biserial": test.rank_biserial,
                "p_value": test.p_value,
                "n": test.n,
                "unit": unit or unit_of(pairs),
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

    Accuracies are averaged over a pair's networks, then over the task's pairs (see ``gap_of``);
    ``scaled`` maps the gaps linearly to 0 … 1, as in Fig. S11 (null where all tasks are alike).
    """
    check_level(level)
    rows = []
    rng = np.random.default_rng(seed)
    for task in dict.fromkeys(pair.task for pair in pairs):
        means = np.array([_mean_accuracies(p) for p in pairs if p.task == task])
        means = means[np.isfinite(means).all(axis=1)]
        rows.append({"task": task, **vars(gap_of(means, bootstrap, rng, level))})
    frame = _frame(rows)
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
    check_level(level)
    rng, rows = np.random.default_rng(seed), []
    for task in dict.fromkeys(pair.task for pair in pairs):
        sets = [here for (t, _), here in id_sets(pairs).items() if t == task]
        for where in ("id", "ood"):
            means = np.array(
                [_by_value(here, f"{where}:error", column, (of[0], against[0])) for here in sets]
            )
            means = means[np.isfinite(means).all(axis=1)]
            row = vars(gap_of(means, bootstrap, rng, level, unit="ID set"))
            rows.append({"task": task, "where": where, **row})
    names = {"better": "full_accuracy", "worse": "head_accuracy", "n": "id_sets"}
    return _frame(rows).rename(names)


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
        found = rank_trend(there["gap"].to_numpy(), there["r"].to_numpy(), of.level)
        rows.append({"metric": metric, **vars(found)})
    return points, _frame(rows).rename({"n": "tasks"})


_TABLES: dict[str, Callable[..., pl.DataFrame]] = {
    "differences": differences,
    "architectures": architectures,
    "difficulty": difficulty,
    "head": full_and_head,
}
