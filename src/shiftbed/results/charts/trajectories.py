"""Charts of ρ along training (andreassen2021, Figures 1, 3, 4, 16 and 24)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shiftbed.errors import InputError, unknown
from shiftbed.figures.charts import Curve, Curves, Dots, Reference
from shiftbed.figures.palette import KINDS

if TYPE_CHECKING:
    from shiftbed.results.trajectories import Trajectories

_MOST = 14
"""Curves in one chart."""
_GRID = 60
DRAWS = ("rho", "share", "largest")


def drawn(
    found: "Trajectories",
    draw: str,
    *,
    colour: str | None = None,
    highlight: Sequence[str] = (),
    level: float | None = None,
) -> Curves:
    """One of ``DRAWS``; names to highlight must be kinds, runs or models that are there."""
    if draw not in DRAWS:
        raise unknown("drawing of trajectories", draw, DRAWS)
    if draw == "largest":
        return _largest(found, highlight)
    bed, steps = found.testbed, found.checkpoints
    kinds = found.kinds["kind"].to_list()
    runs = dict(steps.select("run", "kind_of_run").unique(maintain_order=True).iter_rows())
    models = [name for name in highlight if name not in kinds and name not in runs]
    starred = [bed.model_names[bed.model_index(name)] for name in models]
    shown = kinds[:_MOST]
    groups = _groups(found, colour)
    curves = [_kind(found, kind, draw, groups.get(kind, ""), kind in highlight) for kind in shown]
    for run, kind in runs.items():
        if run in highlight and kind in shown and run not in kinds:
            curves.append(_run(steps.filter(run=run), run, draw, bold=True))
    curves = [curve for curve in curves if curve is not None]
    notes = []
    if len(kinds) > _MOST:
        notes.append(f"{len(kinds) - _MOST} more kinds of runs are in the table only.")
    x_title = bed.axis_title(found.line.id_settings[0])
    if draw == "share":
        lines: tuple[Reference, ...] = (
            Reference(name="the line", fitted=True),
            Reference(name="y = x", intercept=100.0),
        )
        title, y_title = "Share of the gap to y = x", "ρ, % of the gap between line and y = x"
        behind = None
    else:
        lines = (Reference(name="the line", fitted=True),)
        title, y_title = "ρ along training", "effective robustness ρ (points)"
        behind = _behind(found, starred, found.level if level is None else level)
        curves.append(_no_gap(found, behind))
    return Curves(
        title=f"{title}: {found.line.shift}",
        x_title=x_title,
        y_title=y_title,
        curves=tuple(curve for curve in curves if curve is not None),
        lines=lines,
        behind=behind,
        reading="A curve is the mean over runs of one kind in bins of ID accuracy that half "
        "of them, and two, reach, its band one standard deviation; one run is drawn as it is.",
        notes=tuple(notes),
        citation=bed.citation,
    )


def _said(kind: str) -> str:
    """A kind of runs that is one of models' is called as everywhere."""
    return KINDS[kind][0] if kind in KINDS else kind


def _groups(found: "Trajectories", colour: str | None) -> dict[str, str]:
    if colour is None:
        kinds = found.kinds["kind"].to_list()
        return {kind: kind for kind in kinds} if set(kinds) <= set(KINDS) else {}
    if colour not in found.kinds.columns:
        raise unknown("column that is one for each kind of run", colour, found.kinds.columns)
    return {row["kind"]: str(row[colour]) for row in found.kinds.iter_rows(named=True)}


def _kind(found: "Trajectories", kind: str, draw: str, group: str, bold: bool) -> Curve | None:
    """The mean of several runs, or a run of its own."""
    steps = found.checkpoints.filter(kind_of_run=kind)
    runs = steps["run"].unique(maintain_order=True)
    if len(runs) == 1:
        name = runs[0] if kind == "all runs" else _said(kind)
        return _run(steps, name, draw, group=group, bold=bold)
    mean = found.curves.filter(kind=kind)
    if not len(mean):
        return None
    x = mean["centre"].to_numpy()
    y, std = mean["mean"].to_numpy(), mean["std"].to_numpy()
    if draw == "share":
        gap = x - found.line.predict(x)
        y, std = y / gap, std / np.abs(gap)
    return Curve(
        name=f"{_said(kind)} ({len(runs)} runs)",
        x=100 * x,
        y=100 * y,
        low=100 * (y - std),
        high=100 * (y + std),
        group=group,
        bold=bold,
    )


def _run(
    steps: pl.DataFrame, name: str, draw: str, *, group: str = "", bold: bool = False
) -> Curve:
    if draw == "share":
        y = 100 * steps["share_of_gap"].fill_null(np.nan).to_numpy()
        ends: dict[str, Any] = {}
    else:
        y = 100 * steps["effective"].to_numpy()
        ends = {c: 100 * steps[c].fill_null(np.nan).to_numpy() for c in ("low", "high")}
    x = 100 * steps["source"].to_numpy()
    return Curve(name=name, x=x, y=y, group=group, bold=bold, **ends)


def _behind(found: "Trajectories", starred: Sequence[str], level: float) -> Dots:
    """The testbed's models: those of the line, and all that are no checkpoint of a run drawn."""
    bed = found.testbed
    judged = bed.robustness([found.line], level=level)
    drawn = found.checkpoints["model"].implode()
    kept = judged.filter(
        pl.col("effective").is_finite()
        & (~pl.col("model").is_in(drawn) | pl.col("model").is_in(list(found.line.models)))
    )
    ends: Any = {f"y_{c}": 100 * kept[c].fill_null(np.nan).to_numpy() for c in ("low", "high")}
    return Dots(
        title=f"models of the testbed, {100 * level:g} % intervals",
        x_title="",
        y_title="",
        names=tuple(kept["model"].to_list()),
        x=100 * kept["source"].to_numpy(),
        y=100 * kept["effective"].to_numpy(),
        **ends,
        labelled=tuple(starred),
    )


def _no_gap(found: "Trajectories", behind: Dots) -> Curve:
    """ρ of a model with the same accuracy in both settings, which has a peak too (Appendix D)."""
    seen = np.concatenate([found.checkpoints["source"].to_numpy(), behind.x / 100])
    x = np.linspace(max(seen.min(), 1e-3), min(seen.max(), 1 - 1e-3), _GRID)
    y = 100 * (x - found.line.predict(x))
    return Curve(name="y = x", x=100 * x, y=y, dashed=True, points=False)


def _largest(found: "Trajectories", highlight: Sequence[str]) -> Curves:
    """Maximum ρ over a column such as data_size or parameters, a curve per rest of the kind."""
    over = found.over
    if over is None:
        raise InputError("the largest ρ is drawn over a column of models: give over")
    table = found.largest().drop_nulls([over, "peak_rho"])
    if not len(table):
        raise InputError(f"no kind of run has both {over!r} and a peak over its runs")
    values = table[over].unique(maintain_order=True).to_list()
    numbers = all(isinstance(value, int | float) for value in values)
    others = [c for c in ("architecture", "start", "tune", "objective") if c in table.columns]
    others = [c for c in others if c != over and table[c].n_unique() > 1]
    curves = []
    for key, some in table.group_by(others or [pl.lit("all")], maintain_order=True):
        name = ", ".join(map(str, key)) if others else "maximum ρ"
        at = some[over].to_list()
        x = np.array([float(v) if numbers else values.index(v) for v in at])
        low, high = (100 * some[f"peak_{c}"].fill_null(np.nan).to_numpy() for c in ("low", "high"))
        y = 100 * some["peak_rho"].to_numpy()
        bold = any(kind in highlight for kind in some["kind"])
        curves.append(Curve(name=name, x=x, y=y, low=low, high=high, bold=bold))
    return Curves(
        title=f"Maximum ρ by {over}: {found.line.shift}",
        x_title=over.replace("_", " "),
        y_title="maximum ρ (points)",
        curves=tuple(curves),
        x_labels=() if numbers else tuple(map(str, values)),
        lines=(Reference(name="the line", fitted=True),),
        reading="The peak at a step chosen on other runs (or images), so that its own noise does "
        f"not raise it; bands are {100 * found.level:g} % intervals.",
        citation=found.testbed.citation,
    )
