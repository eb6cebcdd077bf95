"""The table of effective robustness: one row per model and shift."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import benjamini_hochberg

COLUMNS = [
    "model",
    "kind",
    "shift",
    "fitted",
    "source",
    "target",
    "n_id",
    "n_ood",
    "predicted",
    "effective",
    "low",
    "high",
    "paired",
    "fit_share",
    "id_share",
    "ood_share",
    "prediction_low",
    "prediction_high",
    "p_value",
    "q_value",
    "out_of_line",
    "parent",
    "relative",
    "reference",
    "share_of_gap",
    "extrapolated",
    "boundary",
]


def robustness_table(
    models: pl.DataFrame, shifts: list[str], parts: list[dict[str, NDArray[Any]]], fdr: float
) -> pl.DataFrame:
    """One frame from the shifts' columns (each over all models), with false discoveries controlled.

    Rows without an accuracy on either side are left out.
    """
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    there = np.isfinite(joined["effective"])
    row = np.tile(np.arange(len(models)), len(parts))[there]
    which = np.repeat(np.arange(len(parts)), len(models))[there]
    q = benjamini_hochberg(joined["p_value"])
    joined["q_value"], joined["out_of_line"] = q, q <= fdr
    left = {name: models[name].gather(row) for name in ("model", "kind", "parent")}
    left["shift"] = pl.Series(shifts, dtype=pl.String).gather(which)
    right = {name: values[there] for name, values in joined.items()}
    return pl.DataFrame({**left, **right}, nan_to_null=True).select(COLUMNS)
