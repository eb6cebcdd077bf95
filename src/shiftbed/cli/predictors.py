"""``shiftbed predictors``: which measurement tells accuracy under which shift (fridovich2022)."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, number, records, table

_MARKS = {1: " **", 2: " *"}


def predictors(
    source: Annotated[
        str, typer.Argument(help="A published testbed's name, a testbed file or a store.")
    ] = "robustnets-2022",
    by: Annotated[
        str | None,
        typer.Option(help="Column of models: fit each of its values, and average over them."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Only models with COLUMN=PATTERN or COLUMN!=PATTERN (default all)."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Settings to predict from (default: ID accuracy and all probes)."),
    ] = None,
    ood: Annotated[
        list[str] | None, typer.Option(help="Shifts or OOD settings (default: all shifts).")
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Also print every group's own fit.")
    ] = False,
    lines: Annotated[
        Path | None,
        typer.Option(help="Draw OOD over ID accuracy, a line per group, as opaque as its R²."),
    ] = None,
    best: Annotated[
        Path | None, typer.Option(help="Draw OOD accuracy over the metric that tells it best.")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(help="Draws for the interval of an average R²; 0: none.", min=0)
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Of these draws.", min=0)] = 0,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """For every metric and OOD set: slope and R² of probit OOD accuracy, per group and averaged."""
    from shiftbed.page import save
    from shiftbed.results.charts.predictiveness import best_metric, group_lines
    from shiftbed.results.plot import open_source
    from shiftbed.results.predictors import predictor_table

    bed = open_source(source).testbed
    chosen: Any = models or "all"
    found = predictor_table(
        bed,
        metrics=metric,
        ood=ood,
        by=by,
        models=chosen,
        level=level,
        bootstrap=bootstrap,
        seed=seed,
    )
    files = []
    if lines is not None:
        one = metric[0] if metric else None
        save(group_lines(bed, metric=one, ood=ood, by=by, models=chosen), lines)
        files.append(str(lines))
    if best is not None:
        save(best_metric(bed, metrics=metric, ood=ood, by=by, models=chosen), best)
        files.append(str(best))
    if json:
        as_json({"source": bed.name, "by": by, "predictors": records(found), "files": files})
        return
    _show(bed.name, by, found, groups, level)
    for path in files:
        print(f"wrote {path}")


def _show(name: str, by: str | None, found: Any, groups: bool, level: float) -> None:
    from shiftbed.results.predictors import AVERAGE

    rows: list[tuple[Any, ...]] = []
    for r in found.iter_rows(named=True):
        average = r["group"] == AVERAGE
        if not average and not groups:
            continue
        rows.append(
            (
                r["ood"],
                r["metric"],
                r["group"] if groups else None,
                number(r["slope"], 3),
                _ends(r["slope_low"], r["slope_high"]),
                number(r["r2"], 3) + _MARKS.get(r["rank"] or 0, ""),
                _ends(r["r2_low"], r["r2_high"]),
                r["n"],
                r["note"],
            )
        )
    columns = ["OOD", "metric", "group", "m", "interval", "R²", "interval", "n", "note"]
    if not groups:
        columns.remove("group")
        rows = [(*row[:2], *row[3:]) for row in rows]
    over = f"averaged over {by}" if by else "all models in one fit"
    table(
        f"{name}: probit OOD accuracy on each metric, {over}",
        columns,
        rows,
        left=3 if groups else 2,
        notes=[
            f"** best and * second best R² of an OOD set; {100 * level:g} % intervals over models; "
            "accuracies on the probit scale."
        ],
    )


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.3f} … {high:.3f}"
