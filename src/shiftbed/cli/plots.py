"""``shiftbed plot``: pictures."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.lines import (
    Boundary,
    FitOn,
    FullId,
    Ids,
    Knee,
    Ood,
    ScaleName,
    ShiftName,
    Threshold,
)
from shiftbed.cli.output import TestbedName


def plot(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .png, .svg, .pdf or (interactive) .html file.")
    ],
    testbed: TestbedName = "imagenet-testbed-2020",
    chart: Annotated[
        str,
        typer.Option(
            help="scatter, relative, synthetic, grid, multiples, trajectories, severities, "
            "similarity, predictiveness, factors, patterns, reliability or probes."
        ),
    ] = "scatter",
    shift: ShiftName = None,
    ids: Ids = None,
    ood: Ood = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    threshold: Threshold = None,
    full_id: FullId = False,
    knee: Knee = "published",
    on_boundary: Boundary = "raise",
    by: Annotated[str | None, typer.Option(help="One line per value of this column.")] = None,
    colour: Annotated[str | None, typer.Option(help="Column that colours the models.")] = None,
    highlight: Annotated[list[str] | None, typer.Option(help="Models to mark and name.")] = None,
    label: Annotated[
        int, typer.Option(help="How many of the models out of line (q ≤ 0.05) to name.")
    ] = 6,
    level: Annotated[float, typer.Option(help="Level of the models' error bars.")] = 0.995,
    style: Annotated[
        str | None, typer.Option(help="paper (default) or slides (larger type and lines).")
    ] = None,
    dpi: Annotated[
        int | None, typer.Option(help="Resolution of a .png (default 300).", min=30, max=1200)
    ] = None,
) -> None:
    """Draw a shift: models with error bars, the line with its band, y = x, outliers named.

    With --chart, any other chart of the report, of a testbed or a store.
    """
    from shiftbed.page.plot import plot

    path = plot(
        testbed,
        shift,
        chart=chart,
        id=ids,
        ood=ood,
        output=output,
        scale=scale,
        fit_on=fit_on,
        threshold=threshold,
        full_id=full_id,
        knee=knee,
        on_boundary=on_boundary,
        by=by,
        colour=colour,
        highlight=highlight or (),
        label=label,
        level=level,
        style=style,
        dpi=dpi,
    )
    print(f"wrote {path}")
