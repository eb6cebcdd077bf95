"""Does robustness to synthetic shifts go with robustness to natural ones? (taori2020, App. H)"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import pearson
from shiftbed.errors import InputError
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice, choose

SYNTHETIC = ("corruption", "adversarial")
NATURAL = ("natural-dataset", "consistency", "adversarially-filtered")


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
    records = [
        (a, b, *pearson(rho[a], rho[b], level))
        for a in wanted["synthetic"]
        for b in wanted["natural"]
    ]
    return pl.DataFrame(
        records, schema=["synthetic", "natural", "r", "low", "high", "n"], orient="row"
    ).with_columns(pl.col("r", "low", "high").fill_nan(None))
