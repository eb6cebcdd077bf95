"""``shiftbed effects``: what does a recipe do?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, records
from shiftbed.cli.study import (
    Draws,
    Kinds,
    Seed,
    Source,
    Tasks,
    open_study,
    print_table,
    study_notes,
    write,
)
from shiftbed.cli.tablefile import Figure, Output, check_files
from shiftbed.errors import InputError, unknown

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from shiftbed.analysis.pairs import PairTable


_SHOWS = {
    "differences": ("column", "of", "against", "metric", "alternative", "match", "unit"),
    "architectures": ("column", "select", "over"),
    "difficulty": ("bootstrap", "seed"),
    "head": ("column", "of", "against", "bootstrap", "seed"),
}
"""Which options each table takes."""


def effects(
    source: Source,
    show: Annotated[
        str, typer.Option(help="differences, architectures, difficulty or head.")
    ] = "differences",
    column: Annotated[
        str | None, typer.Option(help="Recipe column that differs, such as augmentation.")
    ] = None,
    of: Annotated[
        list[str] | None, typer.Option(help="Its values on one side, averaged if several.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="Its values on the other side, averaged if several.")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Only these, such as ood:error.")] = None,
    alternative: Annotated[
        str, typer.Option(help="less: --of is lower (better); greater: --of is higher (worse).")
    ] = "less",
    match: Annotated[
        list[str] | None, typer.Option(help="Columns in which compared networks must agree.")
    ] = None,
    unit: Annotated[
        str, typer.Option(help="One difference per id-set, or per network.")
    ] = "id-set",
    select: Annotated[
        str | None, typer.Option(help="Metric that chooses networks, with architectures.")
    ] = None,
    over: Annotated[
        str, typer.Option(help="Average architectures over pairs (Table 2) or tasks.")
    ] = "pairs",
    kind: Kinds = None,
    task: Tasks = None,
    bootstrap: Draws = 1000,
    seed: Seed = 0,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """What does a recipe do? Paired differences, architectures, normalised gaps, difficulty."""
    if show not in _SHOWS:
        raise unknown("table", show, _SHOWS)
    given = {
        "column": (column, None),
        "of": (of or None, None),
        "against": (against or None, None),
        "metric": (metric or None, None),
        "alternative": (alternative, "less"),
        "match": (match or None, None),
        "unit": (unit, "id-set"),
        "select": (select, None),
        "over": (over, "pairs"),
        "bootstrap": (bootstrap, 1000),
        "seed": (seed, 0),
    }
    options = {name: value for name, (value, _) in given.items() if name in _SHOWS[show]}
    for name, (value, default) in given.items():
        if name not in _SHOWS[show] and value != default:
            raise InputError(f"--{name} does not go with --show {show}")
    check_files(output, figure)
    pairs = open_study(source, kind, task)
    title, frame, notes, more = _MAKE[show](pairs, level, **options)
    title, notes = f"{source}: {title}", notes + study_notes(pairs, held_out=False)
    write(frame, output)
    if figure is not None:
        _draw(frame, show, title, more, figure)
    if json:
        as_json({"source": source, "show": show, "rows": records(frame), **more, "notes": notes})
        return
    print_table(title, frame, notes)
    if "trend" in more:
        import polars as pl

        trend = pl.DataFrame(more["trend"], infer_schema_length=None)
        print_table("Does predictiveness depend on it? Spearman's r over tasks", trend, [])


Made = tuple[str, "pl.DataFrame", list[str], dict[str, Any]]
"""Title, table, notes, and what else JSON holds."""


def _sides(show: str, column: Any, of: Any, against: Any) -> None:
    if not (column and of and against):
        raise InputError(f"{show} needs --column with --of and --against, values of that column")


def _differences(
    pairs: tuple["PairTable", ...],
    level: float,
    *,
    column: str,
    of: list[str],
    against: list[str],
    metric: list[str] | None,
    alternative: str,
    match: list[str] | None,
    unit: str,
) -> Made:
    from shiftbed.results.effects import effects

    _sides("differences", column, of, against)
    frame = effects(
        pairs,
        column,
        of,
        against,
        metrics=metric,
        alternative=alternative,
        match=match,
        unit=unit,
        level=level,
    )
    left, right = " + ".join(of), " + ".join(against)
    better = "lower (better)" if alternative == "less" else "higher (worse)"
    claim = f"{left} is {better} than {right}"
    notes = [
        f"One-sided Wilcoxon signed-rank p-values; alternative: {claim}. q: Benjamini–Hochberg "
        f"over the rows. One difference per {unit}; the median with its {100 * level:g} % interval."
    ]
    if unit == "id-set" and 0 < max(frame["n"].to_list(), default=0) < 6:
        notes.append("Few ID sets: --unit network compares networks, which share an ID set.")
    if unit == "network":
        notes.append("Networks of one ID set are not independent: the p-values are too small.")
    return f"{column}, {left} minus {right}", frame, notes, {"alternative": claim}


def _head(
    pairs: tuple["PairTable", ...],
    level: float,
    *,
    column: str,
    of: list[str],
    against: list[str],
    bootstrap: int,
    seed: int,
) -> Made:
    from shiftbed.results.effects import full_and_head

    _sides("head", column, of, against)
    if len(of) != 1 or len(against) != 1:
        raise InputError("head compares one value (--of, the full model) with one (--against)")
    full, head = of[0], against[0]
    frame = full_and_head(pairs, column, full, head, bootstrap=bootstrap, seed=seed, level=level)
    notes = [
        f"gap: ({full} − {head})/{full} accuracy; {100 * level:g} % intervals from {bootstrap} "
        "resamples of ID sets."
    ]
    return f"normalised gap between {full} and {head}", frame, notes, {}


def _architectures(
    pairs: tuple["PairTable", ...],
    level: float,
    *,
    column: str | None,
    select: str | None,
    over: str,
) -> Made:
    from shiftbed.results.effects import architectures

    by = column or "architecture"
    frame = architectures(pairs, column=by, select=select, over=over)
    chosen_by = frame["chosen_by"][0]
    notes = [
        "On each ID set the network with the lowest "
        f"{chosen_by}; mean and standard error; all: over {over}. The gap is OOD − ID error."
    ]
    if chosen_by == "id:error":
        notes.append("Chosen on the ID test error itself, which flatters the ID column.")
    return f"errors by {by}", frame, notes, {}


def _difficulty(pairs: tuple["PairTable", ...], level: float, *, bootstrap: int, seed: int) -> Made:
    from shiftbed.results.effects import difficulty, difficulty_effect
    from shiftbed.results.predictiveness import study

    frame = difficulty(pairs, bootstrap=bootstrap, seed=seed, level=level)
    of = study(pairs, bootstrap=bootstrap, seed=seed, level=level)
    points, trend = difficulty_effect(of, frame)
    notes = [
        f"gap: (ID − OOD)/ID accuracy; {100 * level:g} % intervals from {bootstrap} resamples of "
        "pairs; deviation: of the pairs' own gaps; scaled: 0 for the easiest task, 1 for the "
        "hardest."
    ]
    more = {"predictiveness": records(points), "trend": records(trend)}
    return "how hard each task's shifts are", frame, notes, more


_MAKE: dict[str, Any] = {
    "differences": _differences,
    "architectures": _architectures,
    "difficulty": _difficulty,
    "head": _head,
}


def _draw(frame: "pl.DataFrame", show: str, title: str, more: dict[str, Any], path: "Path") -> None:
    import polars as pl

    from shiftbed.page import save
    from shiftbed.results.charts import predictiveness as charts

    if show == "differences":
        chart: Any = charts.effect_bars(frame, title=title, alternative=more["alternative"])
    elif show == "architectures":
        chart = charts.architecture_dots(frame, title=title)
    elif show == "head":
        chart = charts.head_bars(frame, title=title)
    else:
        points = pl.DataFrame(more["predictiveness"], infer_schema_length=None)
        chart = charts.difficulty_panels(frame, points, title=title)
    save(chart, path)
