"""ρ by step, a panel per shift: the mean over runs with its 95 % interval."""

import numpy as np
import polars as pl

from examples.finetune.along import by_step, judged
from shiftbed.figures.charts import Curve, Curves, Panels, Reference
from shiftbed.testbed import Testbed

__all__ = ["by_steps"]

NAMES = {
    "pre-trained": "pre-trained",
    "new-head": "pre-trained, new head",
    "random": "random twin",
    "shallow": "random, fewer blocks",
}


def by_steps(bed: Testbed, title: str) -> Panels:
    """Grids on all of the data; twins are judged against the line without themselves."""
    panels = tuple(_panel(bed, shift.name) for shift in bed.shifts)
    return Panels(
        title=title,
        panels=panels,
        reading="Bands: 95 % intervals of the mean over runs. Random twins are judged "
        "against the line without their own run.",
    )


def _panel(bed: Testbed, shift: str) -> Curves:
    found = by_step(judged(bed, shift)).filter(pl.col("data_size") == "full")
    steps = found["step"].unique().sort().to_list()
    curves = []
    for (grid,), rows in found.group_by(["grid"], maintain_order=True):
        low, high = (100 * rows[c].to_numpy() for c in ("low", "high"))
        curves.append(
            Curve(
                name=f"{NAMES.get(str(grid), str(grid))} ({rows['runs'][0]} runs)",
                x=np.array([steps.index(step) for step in rows["step"]], dtype=np.float64),
                y=100 * rows["effective"].to_numpy(),
                low=None if np.isnan(low).any() else low,
                high=None if np.isnan(high).any() else high,
            )
        )
    return Curves(
        title=shift,
        x_title="step",
        y_title="effective robustness ρ (points)",
        curves=tuple(curves),
        x_labels=tuple(map(str, steps)),
        lines=(Reference(name="the line"),),
    )
