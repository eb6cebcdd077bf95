"""What does a recipe do? ``effects``: differences, architectures, gaps, difficulty (wenzel2022)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shiftbed.analysis.effects import (
    matched_columns,
    matched_differences,
    signed_rank,
    unit_of,
)
from shiftbed.analysis.intervals import benjamini_hochberg
from shiftbed.analysis.pairs import PairTable
from shiftbed.display import Table, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.effect_tables import (
    architectures,
    difficulty,
    difficulty_effect,
    effect_answer,
    full_and_head,
    recipe_means,
)
from shiftbed.results.pairs import PairStudy, Source, name_of, notes_of, open_pairs
from shiftbed.results.pairs.averages import DRAWN, frame_of, study
from shiftbed.results.predictiveness import interval_table

if TYPE_CHECKING:
    from shiftbed.figures.charts import Bars, Dots, Panels


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
    attacks: str | None = None,
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    checkpoint: str = "last",
    bootstrap: int | None = None,
    seed: int | None = None,
    level: float = 0.95,
) -> "RecipeEffects":
    """What does a recipe do? Paired differences, architectures, normalised gaps, difficulty.

    ``show`` is one of ``differences`` (see ``differences``), ``architectures``, ``difficulty``,
    ``head`` (``full_and_head``) and ``means`` (``recipe_means``), which take the options of these
    functions; any other is refused.
    ``kind``, ``task``, ``only``, ``checkpoint`` and (of differences) ``attacks`` as in
    ``open_pairs``.
    """
    asked = locals()
    if show not in TABLES:
        raise unknown("table", show, TABLES)
    takes = signature(TABLES[show]).parameters
    given = {name: one for name, one in asked.items() if name not in _PAIRS}
    options = {name: one for name, one in given.items() if one is not None and one != []}
    for name in options:
        if name not in takes:
            raise InputError(f"--{name} does not go with --show {show}")
    if "of" in takes and not {"column", "of", "against"} <= set(options):
        raise InputError(f"{show} needs --column with --of and --against, values of that column")
    if attacks is not None and show != "differences":
        raise InputError(f"--attacks does not go with --show {show}")
    pairs = open_pairs(
        source,
        kind=kind,
        task=task,
        only=only,
        checkpoint=checkpoint,
        attacks=attacks or ("both" if metric else "mean"),
    )
    options |= {"level": level} if "level" in takes else {}
    used = {name: one.default for name, one in takes.items()} | options
    frame = TABLES[show](pairs, **options)
    sides = {name: " + ".join(given[name] or ()) for name in ("of", "against")}
    claim = by_task = trend = None
    if show == "differences":
        better = "lower (better)" if used["alternative"] == "less" else "higher (worse)"
        claim = f"{sides['of']} is {better} than {sides['against']}"
    if show == "difficulty":
        by_task, trend = difficulty_effect(study(pairs, **options), frame)
    return RecipeEffects(
        frame=frame,
        notes=(
            *_remarks(show, frame, used, claim),
            *(_agree(pairs, used["column"], used["match"]) if show == "differences" else ()),
            *notes_of(pairs, held_out=False),
        ),
        source=name_of(source),
        pairs=pairs,
        show=show,
        title=_TITLES[show].format_map(used | sides),
        alternative=claim,
        by_task=by_task,
        trend=trend,
    )


def _agree(pairs: Sequence[PairTable], column: str, match: Sequence[str] | None) -> Iterable[str]:
    """In what compared networks agree, of all that varies."""
    names = dict.fromkeys(name for pair in pairs for name in matched_columns(pair, column, match))
    varied = [n for n in names if len({v for pair in pairs for v in pair.info.get(n, ())}) > 1]
    if varied:
        yield f"Compared networks agree in {', '.join(varied)}."


_PAIRS = ("source", "show", "attacks", "kind", "task", "only", "checkpoint", "level")
"""What is no option of a table."""
_UNITS = {"network": "Networks of one ID set", "id-set": "ID sets of one task"}
_TITLES = {
    "differences": "{column}, {of} minus {against}",
    "architectures": "errors by {column}",
    "difficulty": "how hard each task's shifts are",
    "head": "normalised gap between {of} and {against}",
    "means": "mean accuracy by {column}",
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
    elif show == "means":
        yield "Means over networks and ID sets, ± one standard error over them."
    else:
        drawn = f"{100 * used['level']:g} % intervals from {used['bootstrap']} resamples of"
        if show == "head":
            full, head = used["of"][0], used["against"][0]
            yield f"gap: ({full} − {head})/{full} accuracy; {drawn} ID sets."
        else:
            yield (
                f"gap: (ID − OOD)/ID accuracy; {drawn} {DRAWN[used['unit']]} within tasks; "
                "deviation: of the pairs' own gaps; "
                "scaled: 0 for the easiest task, 1 for the hardest."
            )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecipeEffects(PairStudy):
    """One of the five tables of ``effects``, in ``frame``."""

    json_keys = "source show rows=frame"
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
        return super().to_dict() | more

    def answer(self) -> Iterable[str]:
        return effect_answer(self.show, self.frame, self.alternative)

    def tables(self) -> Iterable[Table]:
        title = f"{self.source}: {self.title}"
        yield interval_table(title, self.frame, self.notes)
        if self.trend is not None:
            title = "Does predictiveness depend on it? Spearman's r over tasks"
            yield interval_table(title, self.trend)
        yield self.networks_table()

    def chart(self) -> "Bars | Dots | Panels":
        """Bars of differences and gaps, dots of architectures, panels of means and difficulty."""
        from shiftbed.results.charts import predictiveness as charts

        title = f"{self.source}: {self.title}"
        if self.by_task is not None:
            return charts.difficulty_panels(self.frame, self.by_task, title=title)
        if self.alternative is not None:
            return charts.effect_bars(self.frame, title=title, alternative=self.alternative)
        if self.show == "means":
            return charts.mean_panels(self.frame, title=title)
        draw = charts.architecture_dots if self.show == "architectures" else charts.head_bars
        return draw(self.frame, title=title)


_MEASURED = ("mean", "median", "low", "high", "rank_biserial", "p_value", "n")


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
    skipped = ("held-out:", "upstream:", "id:validation_error")
    wanted = metric or [m for m in known if not m.startswith(skipped)]
    rows: list[dict[str, Any]] = []
    for name in wanted:
        if name not in known:
            raise unknown("metric of the study", name, known)
        found = matched_differences(pairs, name, column, of, against, match=match, unit=unit)
        test = signed_rank(found.differences, alternative, level=level)
        measured = {key: getattr(test, key) for key in _MEASURED}
        row = {"metric": name, **measured, "unit": unit or unit_of(pairs), "zeros": test.zeros}
        row |= {"networks": found.matched, "unmatched": found.unmatched}
        more = {"alternative": alternative, "method": test.method, "note": test.note}
        rows.append(row | more)
    frame = frame_of(rows)
    q = benjamini_hochberg(frame["p_value"].cast(pl.Float64).fill_null(np.nan).to_numpy())
    at = frame.columns.index("p_value") + 1
    return frame.insert_column(at, pl.Series("q_value", q, nan_to_null=True))


TABLES: dict[str, Callable[..., pl.DataFrame]] = {
    "differences": differences,
    "architectures": architectures,
    "difficulty": difficulty,
    "head": full_and_head,
    "means": recipe_means,
}
