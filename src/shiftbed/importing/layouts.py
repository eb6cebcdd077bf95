"""Tables people make: wide, a row per model, and long, a row per model and setting."""

from collections.abc import Collection

import polars as pl

from shiftbed.errors import InputError, unknown
from shiftbed.importing.part import INFO, RESERVED, Part, cells_of, models_of
from shiftbed.importing.table import Table, first, shown
from shiftbed.importing.values import (
    Unit,
    fractions,
    looks_numeric,
    pointed,
    reals,
    truths,
    wholes,
)

__all__ = ["model_names", "read_long", "read_wide"]

_ACCURACY = ("accuracy", "acc", "top1", "top-1", "top-1 accuracy")
_INTERVAL = ("low", "high")  # of Testbed.scores(), follow from value and n


def model_names(table: Table, column: str) -> pl.Series:
    """The models of the rows; each row needs one."""
    names = table.frame[column]
    row = first(names.is_null())
    if row is not None:
        raise InputError(f"{table.where(row, column)}: no model name")
    return names


def read_wide(table: Table, unit: Unit | None, info: Collection[str]) -> Part:
    """A row per model; every numeric column is a setting, ``n:SETTING`` its sizes.

    The model is in ``model`` (or ``name``). Where there are also ``img_size`` and ``crop_pct``
    they belong to its name, as in the published timm testbed. Text describes the model, and so do
    numeric columns that are named in ``info`` or in ``INFO``.
    """
    key = table.need("model", "name")
    described, plain = _info_columns(table, info), {}
    settings, sizes = [], {}
    for column in table.frame.columns:
        if column == key or column in described:
            continue
        if column.lower().startswith("n:"):
            sizes[column[2:].strip()] = wholes(table, column)
        elif looks_numeric(table, column):
            _refuse_reserved(table, column, "n:SETTING columns hold sizes")
            settings.append(column)
        elif table.frame[column].null_count() < len(table.frame):
            plain[column] = table.frame[column]
    if not settings:
        raise InputError(f"{table.path}: no column holds numbers, so there is no setting")
    for setting in sizes:
        if setting not in settings:
            raise unknown(f"setting of {table.path} in column {'n:' + setting!r},", setting, settings)
    models = _keyed(table, key)
    hint = "; if the column describes the models, name it in info (--info)"
    cells = pl.concat(
        cells_of(table, models, s, fractions(table, s, unit, hint), sizes.get(s)) for s in settings
    )
    return Part(
        path=table.path,
        word=table.word,
        cells=cells,
        models=models_of(table, models, {**described, **_checked(table, plain)}),
        numeric=frozenset(described) & {c for c in described if looks_numeric(table, c)},
        in_percent=unit == "percent",
    )
