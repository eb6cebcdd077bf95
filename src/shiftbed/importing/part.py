"""What one file gives, in the form in which files are put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from shiftbed.importing.predictions import Predictions
from shiftbed.importing.table import Table

LINE = " line"
"""Column that says where a row stands; a file's own columns never start with a space."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The cells and the models of one file."""

    path: str
    word: str
    """What ``LINE`` counts: line, row, item or model."""
    cells: pl.DataFrame
    """model, setting, value (a fraction), n (0 if unknown), LINE; a row per value."""
    models: pl.DataFrame
    """model, LINE, then what is known of it (text; in_fit_set is Boolean); models may repeat."""
    numeric: frozenset[str] = frozenset()
    """Columns of ``models`` that are numbers."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """What is measured, for settings whose value is not plain accuracy."""
    in_percent: bool = False
    """Whether values were divided by 100 because the caller said so."""
    home: str | None = None
    """The published testbed whose sizes, metrics and shifts hold for these settings."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What settings of the file are called in the testbed, where it is not the same."""
    results: Predictions | None = None

    def renamed(self, setting: str) -> str:
        """The name in the testbed of a setting of the file."""
        return self.names.get(setting, setting)


def cells_of(
    table: Table, model: pl.Series, setting: str | pl.Series, value: pl.Series, n: pl.Series | None
) -> pl.DataFrame:
    """Cells from aligned columns; rows without a value are left out."""
    frame = pl.DataFrame(
        {
            "model": model,
            "setting": setting,
            "value": value,
            "n": 0 if n is None else n.fill_null(0),
            LINE: table.lines,
        },
        schema_overrides={"setting": pl.String, "n": pl.Int64, LINE: pl.Int64},
    )
    return frame.filter(pl.col("value").is_not_null())


def models_of(table: Table, model: pl.Series, info: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Model columns from aligned columns."""
    return pl.DataFrame({"model": model, LINE: pl.Series(table.lines, dtype=pl.Int64), **info})


def part_of_predictions(one: Predictions) -> Part:
    """Accuracies and sizes from per-image results."""
    places = np.arange(1, len(one.models) + 1, dtype=np.int64)
    models = pl.DataFrame(
        {"model": one.models, LINE: places}, schema_overrides={"model": pl.String}
    )
    cells = pl.DataFrame(
        {
            "model": models["model"],
            "setting": one.setting,
            "value": one.right.mean(axis=1),
            "n": one.right.shape[1],
            LINE: places,
        },
        schema_overrides={"setting": pl.String, "n": pl.Int64},
    )
    return Part(path=one.path, word="model", cells=cells, models=models, results=one)
