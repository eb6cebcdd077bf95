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
    style: Annotated[str, typer.Option(help="paper or slides (larger type and lines).")] = "paper",
    dpi: Annotated[int, typer.Option(help="Resolution of a .png.", min=30, max=1200)] = 300,
) -> None:
    """Draw a shift: models with error bars, the line with its band, y = x, outliers named.

    With --chart, any other chart of the report, of a testbed or a store.
    """
    from shiftbed.page import save
    from shiftbed.results.charts.scatter import plane, scatter
    from shiftbed.results.lines import find_shift
    from shiftbed.testbed import open_testbed

    if chart != "scatter":
        from shiftbed.results.plot import chart as make
        from shiftbed.results.plot import open_source

        save(make(open_source(testbed), chart, shift=shift), output, dpi=dpi, style=style)
        print(f"wrote {output}")
        return
    bed = open_testbed(testbed)
    wanted = find_shift(bed, shift, ids, ood)
    if len(wanted.source) == 2:
        made_plane = plane(bed, wanted, scale=scale, models=fit_on or None)
        save(made_plane, output)
        print(f"wrote {output}")
        return
    made = scatter(
        bed,
        wanted,
        full_source=full_id,
        by=by,
        colour=colour,
        highlight=[bed.model_names[bed.model_index(m)] for m in highlight or []],
        label=label,
        level=level,
        scale=scale,
        models=fit_on or None,
        threshold=threshold,
        knee=knee,
        on_boundary=on_boundary,
    )
    save(made, output, dpi=dpi, style=style)
    print(f"wrote {output}")
