"""What one file gives, in the form in which files are put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from shiftbed.importing.predictions import Predictions
from shiftbed.importing.table import Table

__all__ = ["INFO", "RESERVED", "Part", "cells_of", "models_of", "part_of_predictions"]

INFO = (
    ("param_count", "img_size", "crop_pct", "gflops")  # columns of the published testbeds
    + ("sparsity", "step", "epoch", "seed")
)
"""Numeric columns that describe a model, not its accuracy."""
RESERVED = ("setting", "value", "n", "right")
"""Names that testbed files use for other columns than the model's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The cells and the models of one file."""

    path: str
    word: str
    """What the column ``line`` counts: line, row, item or model."""
    cells: pl.DataFrame
    """model, setting, value (a fraction), n (0 if unknown), line; a row per value."""
    models: pl.DataFrame
    """model, line, then what is known of it (text; in_fit_set is Boolean); rows may repeat."""
    numeric: frozenset[str] = frozenset()
    """Columns of ``models`` that are numbers."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    in_percent: bool = False
    """Whether values were divided by 100 because the caller said so."""
    home: str | None = None
    """The published testbed whose sizes, metrics and shifts hold for these settings."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the settings of ``home`` are called here."""
    results: Predictions | None = None


def cells_of(
    table: Table, model: pl.Series, setting: str | pl.Series, value: pl.Series, n: pl.Series | None
) -> pl.DataFrame:
    """Cells from aligned columns; rows without a value are left out."""
    name = pl.lit(setting) if isinstance(setting, str) else setting
    size = pl.lit(0) if n is None else n.fill_null(0)
    return pl.select(
        model=model,
        setting=name,
        value=value,
        n=size.cast(pl.Int64),
        line=pl.Series(table.lines, dtype=pl.Int64),
    ).filter(pl.col("value").is_not_null())


def models_of(table: Table, model: pl.Series, info: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Model columns from aligned columns."""
    return pl.DataFrame([model.alias("model"), pl.Series("line", table.lines, dtype=pl.Int64)]).with_columns(
        column.alias(name) for name, column in info.items()
    )


def part_of_predictions(one: Predictions) -> Part:
    """Accuracies and sizes from per-image results."""
    count = one.right.shape[1]
    models = pl.DataFrame(
        {"model": one.models, "line": np.arange(1, len(one.models) + 1)},
        schema={"model": pl.String, "line": pl.Int64},
    )
    cells = models.select(
        "model",
        setting=pl.lit(one.setting),
        value=pl.Series(one.right.mean(axis=1)),
        n=pl.lit(count, dtype=pl.Int64),
        line="line",
    )
    return Part(path=one.path, word="model", cells=cells, models=models, results=one)
