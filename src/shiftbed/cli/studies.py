"""``shiftbed predictiveness``, ``predictors``, ``factors``, ``patterns`` and ``effects``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.lines import ScaleName
from shiftbed.cli.output import AsJson, Figure, Level, Output, call, check_files, pairs, show
from shiftbed.errors import InputError, unknown

Source = Annotated[
    str,
    typer.Argument(
        help="A published testbed's name, a testbed file, a prediction store, or a plain file "
        "(CSV, Parquet, JSON) with the columns task, id, ood, model, where, metric and value."
    ),
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only these types of shift.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only these tasks.")]
Draws = Annotated[int, typer.Option(help="Resamples for intervals.")]
Seed = Annotated[int, typer.Option(help="Seed of the resampling.")]
Also = Annotated[
    list[str] | None, typer.Option(help="Settings of a testbed that are further ID metrics.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only networks with COLUMN=PATTERN in their recipe; several must all hold."),
]


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
    also: Also = None,
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
    """Which metric predicts OOD error? Averaged correlations over (ID, OOD) pairs."""
    arguments = locals()
    from shiftbed.results.predictiveness import predictiveness as measure

    call(measure, arguments)


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
        Path | None, typer.Option(help="Draw OOD accuracy over the metric that predicts it best.")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(help="Draws for the interval of an average R²; 0: none.", min=0)
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of these draws.", min=0)] = 0,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """For every metric and OOD set: slope and R² of probit OOD accuracy, per group and averaged."""
    from shiftbed.page import save
    from shiftbed.results.predictors import predictors as measure

    check_files(None, lines, best)
    found = measure(
        source,
        by=by,
        models=models or "all",
        metric=metric,
        ood=ood,
        groups=groups,
        bootstrap=bootstrap,
        seed=seed,
        level=level,
    )
    drawn = {name: path for name, path in (("lines", lines), ("best", best)) if path is not None}
    for name, path in drawn.items():
        save(found.chart(name), path)
    found = replace(found, files=tuple(map(str, drawn.values())))
    show(found, json)
    for file in () if json else found.files:
        print(f"wrote {file}")


def factors(
    source: Source,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Only these metrics, such as ood:error (default: ID, corrupted, OOD)."),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            help="metrics: OOD metrics averaged over a network's OOD sets; settings: each metric "
            "on each test set is a column."
        ),
    ] = "metrics",
    factors: Annotated[
        int | None, typer.Option("--factors", help="How many factors (default: --choose-by).")
    ] = None,
    choose_by: Annotated[
        str | None,
        typer.Option(help="How many: eigenvalue (at least 1, default) or parallel (above chance)."),
    ] = None,
    extraction: Annotated[
        str, typer.Option(help="minimum-residual, principal-axis or components.")
    ] = "minimum-residual",
    rotation: Annotated[str, typer.Option(help="equamax, varimax, quartimax or none.")] = "equamax",
    kaiser: Annotated[
        bool, typer.Option(help="Give all metrics equal weight in the rotation.")
    ] = True,
    resample: Annotated[
        str, typer.Option(help="What intervals resample: network, model or source.")
    ] = "network",
    kind: Kinds = None,
    task: Tasks = None,
    also: Also = None,
    only: Only = None,
    bootstrap: Draws = 500,
    seed: Seed = 0,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """What do many metrics measure? Factor analysis over networks, with intervals."""
    given = locals()
    from shiftbed.results.factors import factors as measure

    call(measure, given)


def patterns(
    source: Source,
    classes: Annotated[
        list[str] | None,
        typer.Option(help="Number of classes, for all tasks or as TASK=N: chance is 1/N."),
    ] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(help="SETTING=N: size of a test set, where the source does not know it."),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Recipe column whose values could have lines of their own.")
    ] = None,
    scale: ScaleName = "logit",
    kind: Kinds = None,
    task: Tasks = None,
    only: Only = None,
    bootstrap: Draws = 200,
    seed: Seed = 0,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    draw: Annotated[
        str | None,
        typer.Option(help="What --figure shows: scatters (the first 24, default) or counts."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Which shape has OOD over ID accuracy: line, vertical, horizontal, decreasing, none?"""
    given = locals()
    from shiftbed.results.patterns import DRAWN
    from shiftbed.results.patterns import patterns as measure

    if draw is not None and figure is None:
        raise InputError("--draw goes with --figure")
    if draw is not None and draw not in DRAWN:
        raise unknown("figure", draw, DRAWN)
    sizes = pairs(images or [], "--images", "SETTING=N")
    given["classes"] = _classes(classes or [])
    given["images"] = {name: _whole(text, "--images") for name, text in sizes.items()}
    call(measure, given, draw=draw or "scatters")


def _classes(texts: list[str]) -> dict[str, int]:
    """``10`` for all tasks, ``PACS=7`` for one."""
    plain = [text for text in texts if "=" not in text]
    if len(plain) > 1:
        raise InputError("--classes: one number for all tasks, or TASK=N for each")
    given = pairs([text for text in texts if "=" in text], "--classes", "N or TASK=N")
    if plain:
        given[""] = plain[0]
    return {name: _whole(text, "--classes") for name, text in given.items()}


def _whole(text: str, option: str) -> int:
    if not text.isdigit():
        raise InputError(f"{option}: expected a whole number, got {text!r}")
    return int(text)


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
        str | None,
        typer.Option(help="less (default): --of is lower (better); greater: higher (worse)."),
    ] = None,
    match: Annotated[
        list[str] | None, typer.Option(help="Columns in which compared networks must agree.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="One difference per id-set (default), or per network.")
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="Metric that chooses networks, with architectures.")
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(help="Average architectures over pairs (Table 2, default) or tasks."),
    ] = None,
    kind: Kinds = None,
    task: Tasks = None,
    bootstrap: Annotated[
        int | None, typer.Option(help="Resamples for intervals (default: 1000).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the resampling (default: 0).")] = None,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """What does a recipe do? Paired differences, architectures, normalised gaps, difficulty."""
    given = locals()
    from shiftbed.results.effects import effects as measure

    call(measure, given)
