"""``shiftbed predictiveness``: which metric tells OOD error?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, records
from shiftbed.cli.study import (
    Draws,
    Kinds,
    Seed,
    Source,
    Tasks,
    counted,
    open_study,
    print_table,
    study_notes,
    write,
)
from shiftbed.cli.tablefile import Figure, Output, check_files
from shiftbed.errors import InputError, unknown

if TYPE_CHECKING:
    import polars as pl

    from shiftbed.results.predictiveness import Study


def predictiveness(
    source: Source,
    show: Annotated[
        str, typer.Option(help="What to print, write and draw: scores, matrix or transfer.")
    ] = "scores",
    method: Annotated[str, typer.Option(help="spearman or pearson.")] = "spearman",
    target: Annotated[str, typer.Option(help="What is to be predicted.")] = "ood:error",
    given: Annotated[str, typer.Option(help="What it is adjusted for.")] = "id:error",
    by: Annotated[
        str | None, typer.Option(help="One table per task, or per kind of shift.")
    ] = None,
    kind: Kinds = None,
    task: Tasks = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Settings of a testbed that are further ID metrics.")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            help="Recipe column with the backbone's timm name and tag ('model': the models' own "
            "names): its ImageNet, ReaL, V2, Sketch, A and R errors become metrics."
        ),
    ] = None,
    unit: Annotated[str, typer.Option(help="What intervals resample: pair or id-set.")] = "pair",
    bootstrap: Draws = 1000,
    seed: Seed = 0,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """Which metric tells OOD error? Averaged correlations over (ID, OOD) pairs, with intervals."""
    from shiftbed.results import predictiveness as tables
    from shiftbed.results.upstream import with_upstream

    makers = {"scores": tables.scores, "matrix": tables.matrix_table, "transfer": tables.transfer}
    if show not in makers:
        raise unknown("table", show, makers)
    check_files(output, figure)
    pairs = open_study(source, kind, task, also)
    if upstream is not None:
        pairs = with_upstream(pairs, None if upstream == "model" else upstream)
    study = tables.study(
        pairs,
        method=method,
        target=target,
        given=given,
        bootstrap=bootstrap,
        seed=seed,
        level=level,
        unit=unit,
    )
    frame = makers[show](study) if by is None else tables.by_group(study, by, makers[show])
    notes = study_notes(pairs)
    write(frame, output)
    if figure is not None:
        _draw_predictiveness(study, frame, show, by, source, figure)
    if json:
        _json_predictiveness(study, by, source, notes)
        return
    print_table(
        f"{source}: {_WORDS[show].format(target=target)}", frame, _told(study, show) + notes
    )


_WORDS = {
    "scores": "how well each metric tells {target}",
    "matrix": "averaged correlations of every two metrics",
    "transfer": "how well each metric tells itself on OOD data",
}


def _told(study: "Study", show: str) -> list[str]:
    """How to read the table."""
    found = study.found
    pairs, tasks = counted(len(found.pairs), "pair"), counted(len(set(found.tasks)), "task")
    notes = [
        f"{found.method.capitalize()} over networks, averaged over {pairs} of {tasks} with equal "
        f"weight per task; {100 * study.level:g} % intervals from {study.bootstrap} resamples of "
        f"{study.unit}s within tasks. Accuracies count as errors: above 0, two metrics are low "
        "together."
    ]
    if show == "scores":
        notes.append(
            f"adjusted: with the residuals of {study.target} given {study.given}. "
            f"more: r minus that of {study.given}, over the pairs that have both."
        )
    return notes


def _json_predictiveness(study: "Study", by: str | None, source: str, notes: list[str]) -> None:
    from shiftbed.results import predictiveness as tables

    whole = tables.matrix(study)
    found: dict[str, Any] = {
        "source": source,
        "method": study.found.method,
        "target": study.target,
        "given": study.given,
        "level": study.level,
        "pairs": list(study.found.pairs),
        "tasks": list(dict.fromkeys(study.found.tasks)),
        "scores": records(tables.scores(study)),
        "transfer": records(tables.transfer(study)),
        "matrix": {
            "metrics": list(whole.metrics),
            "r": whole.r.tolist(),
            "low": whole.low.tolist(),
            "high": whole.high.tolist(),
            "pairs": whole.pairs.tolist(),
            "note": [list(row) for row in whole.note],
        },
        "notes": notes,
    }
    if by is not None:
        found["by"] = by
        found["groups"] = records(tables.by_group(study, by))
    as_json(found)


def _draw_predictiveness(
    study: "Study", frame: "pl.DataFrame", show: str, by: str | None, source: str, path: Path
) -> None:
    from shiftbed.page import save
    from shiftbed.results.charts import predictiveness as charts
    from shiftbed.results.predictiveness import matrix

    if by is not None and show != "scores":
        raise InputError(f"a figure by {by} is of the scores; draw the {show} without --by")
    if by is not None:
        chart: Any = charts.group_heatmap(frame, by, title=f"{source}: what tells {study.target}")
    elif show == "scores":
        chart = charts.score_bars(
            frame,
            title=f"{source}: what tells {study.target}",
            target=study.target,
            given=study.given,
            method=study.found.method.capitalize(),
        )
    elif show == "matrix":
        whole = matrix(study)
        title = f"{source}: averaged correlations"
        chart = charts.matrix_heatmap(whole.metrics, whole.r, whole.low, whole.high, title=title)
    else:
        chart = charts.transfer_bars(frame, title=f"{source}: transfer to OOD data")
    save(chart, path)
