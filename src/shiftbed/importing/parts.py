"""What one file gives: the cells and the models of a ``FileResults``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from shiftbed.importing.predictions import Predictions
from shiftbed.reading.tables import TextTable

LINE = " line"
"""Column that says where a row stands; a file's own columns never start with a space."""
DIVIDED = " divided"
"""Column that says whether a value was divided by 100 by nothing but the import's unit."""
FILE = " file"
NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""A number as text."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FileResults:
    """The cells and the models of one file."""

    path: str
    word: str
    """What ``LINE`` counts: line, row, item or model."""
    cells: pl.DataFrame
    """model, setting, value (a fraction), n (0 if unknown), LINE, DIVIDED; a row per value."""
    models: pl.DataFrame
    """model, LINE, then what is known of it (text; in_fit_set is Boolean); models may repeat."""
    numeric: frozenset[str] = frozenset()
    """Columns of ``models`` that are numbers."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """What is measured, for settings whose value is not plain accuracy."""
    home: str | None = None
    """The published testbed whose sizes, metrics and shifts hold for these settings."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What settings of the file are called in the testbed, where it is not the same."""
    results: Predictions | None = None
    bounds: tuple[pl.DataFrame, ...] = ()
    """setting, value, low, high: intervals as printed, from which n may follow; resolution and
    coarser: a unit of the last digit of the intervals, and of the values."""
    notes: tuple[str, ...] = ()
    """How the file was understood."""

    def renamed(self, setting: str) -> str:
        """The name in the testbed of a setting of the file."""
        return self.names.get(setting, setting)


def cells_of(
    table: TextTable,
    model: pl.Series,
    setting: str | pl.Series,
    value: pl.Series,
    n: pl.Series | None = None,
    divided: pl.Series | None = None,
) -> pl.DataFrame:
    """Cells from aligned columns; rows without a value are left out."""
    frame = pl.DataFrame(
        {
            "model": model,
            "setting": setting,
            "value": value,
            "n": 0 if n is None else n.fill_null(0),
            LINE: table.lines,
            DIVIDED: False if divided is None else divided,
        },
        schema_overrides={"setting": pl.String, "n": pl.Int64, LINE: pl.Int64},
    )
    return frame.filter(pl.col("value").is_not_null())


def models_of(table: TextTable, model: pl.Series, info: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Model columns from aligned columns."""
    return pl.DataFrame({"model": model, LINE: pl.Series(table.lines, dtype=pl.Int64), **info})


def of_predictions(one: Predictions) -> FileResults:
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
            DIVIDED: False,
        },
        schema_overrides={"setting": pl.String, "n": pl.Int64},
    )
    return FileResults(path=one.path, word="model", cells=cells, models=models, results=one)


def of_file(part: int) -> pl.Expr:
    """A column that says which part a row is from."""
    return pl.lit(part, dtype=pl.Int64).alias(FILE)


def place(parts: Sequence[FileResults], row: Mapping[str, int]) -> str:
    """Where a row stands, such as ``results.csv, line 7``."""
    part = parts[row[FILE]]
    return f"{part.path}, {part.word} {row[LINE]}"


def listing(names: Iterable[str], most: int = 8) -> str:
    """Names in a row, the first ones only if they are many.

    >>> listing("abc"), listing("abc", 2)
    ('a, b, c', 'a, b and 1 more')
    """
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if every[most:] else "")
