"""``shiftbed predictiveness``, ``predictors``, ``factors``, ``patterns`` and ``effects``."""

from dataclasses import replace
from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, check_files, show, study, whole_number, whole_numbers
from shiftbed.errors import InputError, unknown


def predictiveness(
    source: opt.Pairs,
    show: str = Option("scores", help="What to print, write and draw: scores, matrix or transfer."),
    method: str = Option("spearman", help="spearman or pearson."),
    target: str = Option("ood:error", help="What is to be predicted."),
    given: str = Option("id:error", help="What it is adjusted for."),
    by: str | None = Option(
        None,
        help="One table per task, kind of shift, shift-type, or value of a recipe column such as "
        "data_size.",
    ),
    kind: opt.Kinds = None,
    task: opt.Tasks = None,
    also: opt.Also = None,
    only: opt.Only = None,
    checkpoint: opt.Checkpoint = "last",
    attacks: opt.Attacks = None,
    upstream: str | None = Option(
        None,
        help="Recipe column with the backbone's timm name and tag ('model': the models' own "
        "names): its ImageNet, ReaL, V2, Sketch, A and R errors become metrics.",
    ),
    unit: str = Option(
        "two-way",
        help="What intervals resample: two-way (ID sets and OOD sets), id-set, or pair (as if "
        "pairs were independent).",
    ),
    bootstrap: opt.Resamples = 1000,
    seed: opt.ResamplingSeed = 0,
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """Which metric predicts OOD error? Averaged correlations over (ID, OOD) pairs."""
    study(sb.predictiveness, locals())


def predictors(
    source: str = Argument(
        "robustnets-2022", help="A published testbed's name, a testbed file or a store."
    ),
    by: str | None = Option(
        None, help="Column of models: fit each of its values, and average over them."
    ),
    models: list[str] | None = Option(
        None, help="Only models with COLUMN=PATTERN or COLUMN!=PATTERN (default all)."
    ),
    only: opt.Only = None,
    checkpoint: opt.Checkpoint = "last",
    metric: list[str] | None = Option(
        None, help="Settings to predict from (default: ID accuracy and all probes)."
    ),
    ood: list[str] | None = Option(None, help="Shifts or OOD settings (default: all shifts)."),
    groups: bool = Option(False, "--groups", help="Also print every group's own fit."),
    lines: Path | None = Option(
        None, help="Draw OOD over ID accuracy, a line per group, as opaque as its R²."
    ),
    best: Path | None = Option(
        None, help="Draw OOD accuracy over the metric that predicts it best."
    ),
    bootstrap: int = Option(1000, help="Draws for the interval of an average R²; 0: none.", min=0),
    seed: int = Option(0, help="Seed of these draws.", min=0),
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """For every metric and OOD set: slope and R² of probit OOD accuracy, per group and averaged."""
    given = locals()
    from shiftbed.page import save

    check_files(None, lines, best)
    found = call(sb.predictors, given, lines=None, best=None)
    drawn = {name: path for name, path in (("lines", lines), ("best", best)) if path is not None}
    for name, path in drawn.items():
        save(found.chart(name), path)
    found = replace(found, files=tuple(map(str, drawn.values())))
    show(found, json)
    for file in () if json else found.files:
        print(f"wrote {file}")


def factors(
    source: opt.Pairs,
    metric: list[str] | None = Option(
        None, help="Only these metrics, such as ood:error (default: ID, corrupted, OOD)."
    ),
    columns: str = Option(
        "metrics",
        help="metrics: OOD metrics averaged over a network's OOD sets; settings: each metric "
        "on each test set is a column.",
    ),
    factors: int | None = Option(
        None, "--factors", help="How many factors (default: --choose-by)."
    ),
    choose_by: str | None = Option(
        None, help="How many: eigenvalue (at least 1, default) or parallel (above chance)."
    ),
    extraction: str = Option(
        "minimum-residual", help="minimum-residual, principal-axis or components."
    ),
    rotation: str = Option("equamax", help="equamax, varimax, quartimax or none."),
    kaiser: bool = Option(True, help="Give all metrics equal weight in the rotation."),
    resample: str | None = Option(
        None,
        help="What intervals resample: model (with all its rows, default), source (ID sets) or "
        "network (rows, as if independent).",
    ),
    kind: opt.Kinds = None,
    task: opt.Tasks = None,
    also: opt.Also = None,
    only: opt.Only = None,
    checkpoint: opt.Checkpoint = "last",
    attacks: opt.Attacks = None,
    bootstrap: opt.Resamples = 500,
    seed: opt.ResamplingSeed = 0,
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """What do many metrics measure? Factor analysis over networks, with intervals."""
    study(sb.factors, locals())


def patterns(
    source: opt.Pairs,
    classes: list[str] | None = Option(
        None, help="Number of classes, for all tasks or as TASK=N: chance is 1/N."
    ),
    images: list[str] | None = Option(
        None, help="SETTING=N: size of a test set, where the source does not know it."
    ),
    groups: str | None = Option(
        None, help="Recipe column whose values could have lines of their own."
    ),
    scale: opt.ScaleName = "logit",
    kind: opt.Kinds = None,
    task: opt.Tasks = None,
    only: opt.Only = None,
    checkpoint: opt.Checkpoint = "last",
    bootstrap: opt.Resamples = 200,
    seed: opt.ResamplingSeed = 0,
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    draw: str | None = Option(None, help="What --figure shows: scatters (default) or counts."),
    json: opt.AsJson = False,
) -> None:
    """Which shape has OOD over ID accuracy: line, vertical, horizontal, decreasing, none?"""
    given = locals()
    from shiftbed.results.patterns import DRAWN

    if draw is not None and figure is None:
        raise InputError("--draw goes with --figure")
    if draw is not None and draw not in DRAWN:
        raise unknown("figure", draw, DRAWN)
    chart = {"draw": draw or "scatters"}
    sizes = whole_numbers(images, "--images", "SETTING=N")
    study(sb.patterns, given, chart, classes=_classes(classes or []), images=sizes, draw=None)


def _classes(texts: list[str]) -> dict[str, int]:
    """``10`` for all tasks, ``PACS=7`` for one."""
    plain = [text for text in texts if "=" not in text]
    if len(plain) > 1:
        raise InputError("--classes: one number for all tasks, or TASK=N for each")
    given = whole_numbers([text for text in texts if "=" in text], "--classes", "N or TASK=N")
    return given | ({"": whole_number(plain[0], "--classes")} if plain else {})


def effects(
    source: opt.Pairs,
    show: str = Option("differences", help="differences, architectures, difficulty or head."),
    column: str | None = Option(None, help="Recipe column that differs, such as augmentation."),
    of: list[str] | None = Option(None, help="Its values on one side, averaged if several."),
    against: list[str] | None = Option(
        None, help="Its values on the other side, averaged if several."
    ),
    metric: list[str] | None = Option(None, help="Only these, such as ood:error."),
    alternative: str | None = Option(
        None, help="less (default): --of is lower (better); greater: higher (worse)."
    ),
    match: list[str] | None = Option(None, help="Columns in which compared networks must agree."),
    unit: str | None = Option(
        None,
        help="One difference per task (default where there are two), per id-set, or per network "
        "(the latter two as if independent). With difficulty, what intervals resample: two-way "
        "(default: ID sets and OOD sets), id-set or pair.",
    ),
    select: str | None = Option(None, help="Metric that chooses networks, with architectures."),
    over: str | None = Option(
        None, help="Average architectures over pairs (Table 2, default) or tasks."
    ),
    attacks: opt.Attacks = None,
    kind: opt.Kinds = None,
    task: opt.Tasks = None,
    only: opt.Only = None,
    checkpoint: opt.Checkpoint = "last",
    bootstrap: int | None = Option(None, help="Resamples for intervals (default: 1000)."),
    seed: int | None = Option(None, help="Seed of the resampling (default: 0)."),
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """What does a recipe do? Paired differences, architectures, normalised gaps, difficulty."""
    study(sb.effects, locals())
