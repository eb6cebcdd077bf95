"""Does robustness to synthetic shifts go with robustness to natural ones? (taori2020, App. H)"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import pearson
from shiftbed.display import Cell, Result, Table, number, records
from shiftbed.errors import InputError
from shiftbed.results.lines import TESTBED, Source
from shiftbed.testbed import Testbed, choose, open_testbed
from shiftbed.testbed.select import Choice

SYNTHETIC = ("corruption", "adversarial")
NATURAL = ("natural-dataset", "consistency", "adversarially-filtered")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Correlated(Result):
    """Pearson's r of ρ; ``frame`` has a row per pair: synthetic, natural, r, low, high, n."""

    testbed: str

    def tables(self) -> Iterable[Table]:
        wide = self.frame.pivot("natural", index="synthetic", values="r")
        columns: dict[str, Cell] = {"synthetic": "synthetic"}
        columns |= {name: (name, lambda r: number(r, 2)) for name in wide.columns[1:]}
        title = f"{self.testbed}: Pearson's r of ρ, synthetic × natural"
        return [Table.of(title, wide, columns, notes=self.notes)]

    def to_dict(self) -> dict[str, Any]:
        return {"testbed": self.testbed, "correlations": records(self.frame)}


def correlate(
    testbed: Source = TESTBED,
    *,
    synthetic: Sequence[str] | None = None,
    natural: Sequence[str] | None = None,
    models: Choice = "kind!=standard",
    level: float = 0.95,
) -> Correlated:
    """Does ρ on synthetic shifts go with ρ on natural ones? Pearson's r for every pair.

    See ``synthetic_natural``.

    >>> found = correlate(synthetic=["avg_pgd"], natural=["imagenet-v2"])
    >>> found.frame["r"].round(2).to_list()
    [-0.04]
    """
    bed = open_testbed(testbed)
    found = synthetic_natural(bed, synthetic=synthetic, natural=natural, models=models, level=level)
    sizes = found["n"].to_list()
    note = (
        f"Over {min(sizes)} to {max(sizes)} models each; the JSON has every r with its n and its "
        f"{100 * level:g} % interval."
    )
    return Correlated(frame=found, notes=(note,), citation=bed.citation, testbed=bed.name)


def synthetic_natural(
    testbed: Testbed,
    *,
    synthetic: Sequence[str] | None = None,
    natural: Sequence[str] | None = None,
    models: Choice = "kind!=standard",
    level: float = 0.95,
) -> pl.DataFrame:
    """Pearson's r of ρ on every synthetic shift with ρ on every natural one.

    ρ is taken against the fit set's baselines on both sides; r is over ``models`` (by default
    those that are not standard) that have all cells of both. Long table: synthetic, natural, r,
    low, high, n. taori2020, Table 2.
    """
    rows = choose(testbed.models, models)
    if not rows.any():
        raise InputError(f"no model of {testbed.name} is left to correlate")
    wanted = {
        "synthetic": synthetic or [s.name for s in testbed.shifts if s.kind in SYNTHETIC],
        "natural": natural or [s.name for s in testbed.shifts if s.kind in NATURAL],
    }
    rho: dict[str, np.ndarray] = {}
    for side, names in wanted.items():
        if not names:
            raise InputError(f"testbed {testbed.name} has no {side} shifts")
        for name in names:
            baseline = testbed.fit(name, bootstrap=0)
            rho[name] = testbed.judge(baseline).effective[rows]
    pairs = [
        (a, b, *pearson(rho[a], rho[b], level))
        for a in wanted["synthetic"]
        for b in wanted["natural"]
    ]
    return pl.DataFrame(
        pairs, schema=["synthetic", "natural", "r", "low", "high", "n"], orient="row"
    ).with_columns(pl.col("r", "low", "high").fill_nan(None))
