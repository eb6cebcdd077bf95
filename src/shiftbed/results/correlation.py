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
from shiftbed.testbed import choose, open_testbed
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

    ρ is taken against the fit set's baselines on both sides; r is over ``models`` (by default
    those that are not standard) that have all cells of both. taori2020, Table 2.

    >>> found = correlate(synthetic=["avg_pgd"], natural=["imagenet-v2"])
    >>> found.frame["r"].round(2).to_list()
    [-0.04]
    """
    bed = open_testbed(testbed)
    rows = choose(bed.models, models)
    if not rows.any():
        raise InputError(f"no model of {bed.name} is left to correlate")
    wanted = {
        "synthetic": synthetic or [s.name for s in bed.shifts if s.kind in SYNTHETIC],
        "natural": natural or [s.name for s in bed.shifts if s.kind in NATURAL],
    }
    rho: dict[str, np.ndarray] = {}
    for side, names in wanted.items():
        if not names:
            raise InputError(f"testbed {bed.name} has no {side} shifts")
        for name in names:
            rho[name] = bed.judge(bed.fit(name, bootstrap=0)).effective[rows]
    pairs = [(a, b) for a in wanted["synthetic"] for b in wanted["natural"]]
    found = [(a, b, *pearson(rho[a], rho[b], level)) for a, b in pairs]
    sizes = [n for *_, n in found]
    note = (
        f"Over {min(sizes)} to {max(sizes)} models each; the JSON has every r with its n and its "
        f"{100 * level:g} % interval."
    )
    schema = ["synthetic", "natural", "r", "low", "high", "n"]
    return Correlated(
        frame=pl.DataFrame(found, schema=schema, orient="row").fill_nan(None),
        notes=(note,),
        citation=bed.citation,
        testbed=bed.name,
    )
