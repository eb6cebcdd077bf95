"""Charts of factors and patterns (wenzel2022, Figures 1, 2, S5 and S9)."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from shiftbed.analysis.factors import Factors
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.patterns import PATTERNS
from shiftbed.catalogue import title as title_of
from shiftbed.errors import InputError
from shiftbed.figures.charts import Bars, Curve, Curves, Dots, Heatmap, Panels, Reference
from shiftbed.results.patterns import accuracy_of


def factor_panels(found: Factors, *, title: str) -> Panels:
    """The scree plot with what chance gives, beside the loadings (Figures S5 and 1)."""
    rank = np.arange(float(len(found.columns)))
    has = bool(np.isfinite(found.eigenvalues_low).all())
    scree = Curves(
        title="Eigenvalues",
        x_title="rank",
        y_title="eigenvalue",
        curves=(
            Curve(
                name="of the metrics",
                x=rank,
                y=found.eigenvalues,
                low=found.eigenvalues_low if has else None,
                high=found.eigenvalues_high if has else None,
            ),
            Curve(name="by chance (95 %)", x=rank, y=found.chance, dashed=True, points=False),
        ),
        x_labels=tuple(str(i + 1) for i in range(len(rank))),
        lines=(Reference(name="1", intercept=1.0),),
    )
    shared = {column.partition("@")[0] for column in found.columns if "@" in column}
    alike = len(shared) == 1 and all("@" in column for column in found.columns)
    short = [c.partition("@")[2] if alike else c for c in found.columns]
    names = zip(short, found.heywood, strict=True)
    marked = (found.low > 0) | (found.high < 0) if np.isfinite(found.low).all() else None
    loadings = Heatmap(
        title=f"Loadings of {shared.pop()}" if alike else "Loadings",
        rows=tuple(f"{c} (Heywood)" if h else c for c, h in names),
        columns=tuple(f"factor {j + 1} ({100 * v:.0f} %)" for j, v in enumerate(found.variance)),
        values=found.loadings,
        value_title="loading",
        low=-1.0,
        high=1.0,
        diverging=True,
        marked=marked,
    )
    return Panels(
        title=title,
        panels=(scree, loadings),
        columns=2,
        reading="Left: factors above the dashed line are more than chance; above 1 is the usual "
        "rule. Right: which metrics go together; in brackets the share of all variance"
        + ("; marked: the interval leaves out 0." if marked is not None else "."),
        notes=(f"{_counted(found)}; {found.interval_note}.", *found.warnings),
    )


def _counted(found: Factors) -> str:
    """How many networks, and rows where a network is in several pairs."""
    if found.units == found.n:
        return f"{found.n} networks"
    return f"{found.units} models, {found.n} rows of model and ID set"


def pattern_panels(
    pairs: Sequence[PairTable], table: pl.DataFrame, *, title: str, columns: int = 4
) -> Panels:
    """Small scatters of OOD over ID accuracy, each named by its pattern (Figures 2 and S9).

    Pairs of an ID set are next to each other, and more of them in a row the more there are.
    """
    panels = []
    several = len({pair.task for pair in pairs}) > 1
    for pair, row in zip(pairs, table.iter_rows(named=True), strict=True):
        x, y = accuracy_of(pair, "id"), accuracy_of(pair, "ood")
        there = np.isfinite(x) & np.isfinite(y)
        trusted = "" if row["trusted"] or row["pattern"] != "increasing" else " (line not trusted)"
        panels.append(
            Dots(
                title=(f"{pair.task}: " if several else "") + f"{row['pattern']}{trusted}",
                x_title=title_of(pair.source),
                y_title=title_of(pair.target),
                names=tuple(m for m, keep in zip(pair.models, there, strict=True) if keep),
                x=100 * x[there],
                y=100 * y[there],
                lines=(Reference(name="y = x", slope=1.0),),
            )
        )
    if not panels:
        raise InputError("there is no pair to draw")
    wide = max(columns, round(len(panels) ** 0.5 / 1.5))
    return Panels(
        title=title,
        panels=tuple(panels),
        columns=min(wide, len(panels)),
        reading="Accuracy in %, a dot per network.",
    )


def count_bars(counts: pl.DataFrame, *, title: str) -> Bars:
    """How many pairs of each task have each pattern."""
    tasks = [task for task in counts["task"].unique(maintain_order=True) if task != "all"]
    values = np.zeros((len(PATTERNS), len(tasks)))
    for row in counts.iter_rows(named=True):
        if row["task"] in tasks:
            values[PATTERNS.index(row["pattern"]), tasks.index(row["task"])] = row["pairs"]
    return Bars(
        title=title,
        categories=tuple(tasks),
        series=PATTERNS,
        values=values,
        stacked=True,
        y_title="(ID, OOD) pairs",
        reading="Patterns of ID against OOD accuracy; 'increasing' is the line that effective "
        "robustness needs.",
    )
