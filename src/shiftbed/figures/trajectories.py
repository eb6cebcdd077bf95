"""ρ along fine-tuning, or along α between two models (andreassen2021, Figures 1 and 2)."""

from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.trajectory import average_runs, peak
from shiftbed.errors import InputError
from shiftbed.figures.charts import Curve, Curves, Line
from shiftbed.records import Shift
from shiftbed.testbed.record import Testbed

MOST = 8
"""Single runs drawn beside the mean."""
_BINS = 100


def trajectories(
    testbed: Testbed, shift: str | Shift, *, by: str = "run", **options: Any
) -> Curves:
    """ρ over ID accuracy along the steps of each run, and the mean over several runs of one kind.

    Needs the columns ``run`` (or ``by``) and ``step`` of models; a run of one step is no
    trajectory. Further options go to
    ``Testbed.fit``; the line goes through the fit set, as always.
    """
    for column in (by, "step"):
        if column not in testbed.models.columns:
            raise InputError(f"{testbed.name} has no column {column!r}: no trajectory to draw")
    found = testbed.effective_robustness(shift, **options)
    steps = testbed.models.select("model", by, "step").drop_nulls()
    table = found.join(steps, on="model").sort(by, "step")
    table = table.filter(pl.col("effective").is_finite() & pl.col("source").is_finite())
    table = table.filter(pl.len().over(by) > 1)
    if not len(table):
        raise InputError(f"{testbed.name} has no {by} with two or more steps: nothing to draw")
    runs = list(table.group_by([by], maintain_order=True))
    curves = [_run(str(name), rows) for (name,), rows in runs[:MOST]]
    notes = [f"{len(runs) - MOST} more runs are in the mean only."] if len(runs) > MOST else []
    kinds = list(table.group_by(["kind"], maintain_order=True))
    for (kind,), rows in kinds:
        count = rows[by].n_unique()
        if count > 1:
            name = f"mean of {count} runs" + (f", {kind}" if len(kinds) > 1 else "")
            curve, note = _mean(name, rows, by)
            curves.append(curve)
            notes.append(note)
    named = testbed.shift(shift)
    return Curves(
        title=f"ρ along training: {named.name}",
        x_title=f"{named.source[0]} accuracy (%)",
        y_title="effective robustness ρ (points)",
        curves=tuple(curves),
        lines=(Line(name="the line", slope=0.0, intercept=0.0),),
        reading=f"Bins of ID accuracy: {_BINS}; the band is one standard deviation.",
        notes=tuple(notes),
        citation=testbed.citation,
    )


def _mean(name: str, rows: pl.DataFrame, by: str) -> tuple[Curve, str]:
    """Runs of one kind averaged in bins of ID accuracy, and their largest ρ in words."""
    x, rho = rows["source"].to_numpy(), rows["effective"].to_numpy()
    mean = average_runs(x, rho, rows[by].to_numpy(), bins=_BINS)
    best = peak(mean)
    curve = Curve(
        name=name,
        x=100 * mean.centre,
        y=100 * mean.mean,
        low=100 * (mean.mean - mean.std),
        high=100 * (mean.mean + mean.std),
        dashed=True,
        points=False,
    )
    return curve, (
        f"{name}: largest mean ρ {100 * best.value:+.2f} ± {100 * best.std_largest:.2f} points "
        f"(largest standard deviation over bins; {100 * best.std_there:.2f} in its own bin, "
        f"n = {best.n}) at {100 * best.at:.1f} %."
    )


def _run(name: str, rows: pl.DataFrame) -> Curve:
    low, high = (rows[c].fill_null(np.nan).to_numpy() for c in ("low", "high"))
    return Curve(
        name=name,
        x=100 * rows["source"].to_numpy(),
        y=100 * rows["effective"].to_numpy(),
        low=100 * low,
        high=100 * high,
    )
