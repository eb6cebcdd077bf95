"""Does robustness to synthetic shifts go with robustness to natural ones? (taori2020, App. H)"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import OnBoundary
from shiftbed.analysis.dependence import clustered_pearson
from shiftbed.display import Cell, Table, between, counted, number, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import NATURAL, PERTURBED
from shiftbed.results.charts import Charted
from shiftbed.results.lines import TESTBED
from shiftbed.testbed import Source, choose, open_testbed
from shiftbed.testbed.select import Choice

if TYPE_CHECKING:
    from shiftbed.figures.charts import Heatmap

UNITS = ("run", "model")
"""What counts as independent: a run with all its checkpoints, or every model."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Correlated(Charted):
    """Pearson's r of ρ; ``frame`` has a row per pair of shifts.

    synthetic, natural, r, low, high, n (models), units (what the interval takes as independent).
    """

    json_keys = "testbed unit correlations=frame notes"
    testbed: str
    unit: str

    def answer(self) -> Iterable[str]:
        known = self.frame.drop_nulls("r")
        goes = known.filter(pl.col("low") > 0)
        yield (
            f"Robustness to a synthetic shift goes with that to a natural one in {len(goes)} of "
            f"{counted(len(known), 'pair')} of shifts (r and its interval above 0)."
        )
        for row in records(known.sort("r", descending=True).head(1)):
            ends = between(row["low"], row["high"], lambda r: number(r, 2))
            yield (
                f"Most: {row['synthetic']} with {row['natural']}, r {number(row['r'], 2)}"
                f"{f' ({ends})' if ends else ''}."
            )

    def tables(self) -> Iterable[Table]:
        wide = self.frame.pivot("natural", index="synthetic", values="r")
        columns: dict[str, Cell] = {"synthetic": "synthetic"}
        columns |= {name: (name, lambda r: number(r, 2)) for name in wide.columns[1:]}
        title = f"{self.testbed}: Pearson's r of ρ, synthetic × natural"
        return [Table.of(title, wide, columns, notes=self.notes)]

    def chart(self) -> "Heatmap":
        """r of every synthetic shift (rows) and natural one (columns)."""
        from shiftbed.results.charts.predictiveness import group_heatmap

        title = f"{self.testbed}: ρ on synthetic and on natural shifts"
        reading = "Near 0, robustness to the synthetic shift says nothing of the natural one."
        words = {"title": title, "value_title": "Pearson's r of ρ", "reading": reading}
        found = group_heatmap(self.frame, "synthetic", "natural", **words)
        return replace(found, notes=self.notes, citation=self.citation)


def correlate(
    testbed: Source = TESTBED,
    *,
    synthetic: Sequence[str] | None = None,
    natural: Sequence[str] | None = None,
    models: Choice = "kind!=standard",
    unit: str = "run",
    on_boundary: OnBoundary = "raise",
    level: float = 0.95,
) -> Correlated:
    """Does ρ on synthetic shifts go with ρ on natural ones? Pearson's r for every pair.

    ρ is taken against the fit set's baselines on both sides; r is over ``models`` (by default
    those that are not standard) that have all cells of both. taori2020, Table 2. Checkpoints of a
    run are not independent: intervals leave out whole runs in turn (``clustered_pearson``), or with
    ``unit`` "model" take every model as independent.

    >>> found = correlate(synthetic=["avg_pgd"], natural=["imagenet-v2"])
    >>> found.frame["r"].round(2).to_list()
    [-0.04]
    """
    if unit not in UNITS:
        raise unknown("unit", unit, UNITS)
    bed = open_testbed(testbed)
    rows = choose(bed.models, models)
    if not rows.any():
        raise InputError(f"no model of {bed.name} is left to correlate")
    wanted = {
        "synthetic": synthetic or [s.name for s in bed.shifts if s.kind in PERTURBED],
        "natural": natural or [s.name for s in bed.shifts if s.kind in NATURAL],
    }
    rho: dict[str, np.ndarray] = {}
    for side, names in wanted.items():
        if not names:
            raise InputError(f"testbed {bed.name} has no {side} shifts")
        for name in names:
            line = bed.fit(name, bootstrap=0, on_boundary=on_boundary)
            rho[name] = bed.judge(line).effective[rows]
    pairs = [(a, b) for a in wanted["synthetic"] for b in wanted["natural"]]
    of = _units(bed.models.filter(pl.Series(rows)), unit)
    found = [(a, b, *clustered_pearson(rho[a], rho[b], of, level)) for a, b in pairs]
    sizes, units = [row[-2] for row in found], [row[-1] for row in found]
    note = (
        f"Over {min(sizes)} to {max(sizes)} models each; the JSON has every r with its n and its "
        f"{100 * level:g} % interval."
    )
    if units != sizes:
        note += f" Intervals by run: {min(units)} to {max(units)} of them are independent."
    elif len(set(_units(bed.models.filter(pl.Series(rows)), "run"))) < int(rows.sum()):
        note += " Checkpoints of a run were taken as independent: these intervals are too narrow."
    schema = ["synthetic", "natural", "r", "low", "high", "n", "units"]
    return Correlated(
        frame=pl.DataFrame(found, schema=schema, orient="row").fill_nan(None),
        notes=(note,),
        citation=bed.citation,
        testbed=bed.name,
        unit=unit,
    )


def _units(models: pl.DataFrame, unit: str) -> list[str]:
    """Each model's run, where it has one; else it is a unit of its own."""
    own = models["model"].to_list()
    runs = models["run"].to_list() if unit == "run" and "run" in models.columns else own
    return [f"model {m}" if r is None else f"run {r}" for m, r in zip(own, runs, strict=True)]
