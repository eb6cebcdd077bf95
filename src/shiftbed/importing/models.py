"""What several files say of the models, put together."""

from collections.abc import Mapping, Sequence

import polars as pl

from shiftbed.errors import InputError
from shiftbed.importing.part import LINE, Part
from shiftbed.importing.table import shown
from shiftbed.importing.values import typed
from shiftbed.testbed import choose
from shiftbed.testbed.select import Choice

UNSPECIFIED = "unspecified"
"""Kind of a model of which no file says it."""
PART = " part"


def at_part(part: int) -> pl.Expr:
    """A column that says which part a row is from."""
    return pl.lit(part, dtype=pl.Int64).alias(PART)


def place(parts: Sequence[Part], row: Mapping[str, int]) -> str:
    """Where a row stands, such as ``results.csv, line 7``."""
    part = parts[row[PART]]
    return f"{part.path}, {part.word} {row[LINE]}"


def merge_models(parts: Sequence[Part]) -> pl.DataFrame:
    """A row per model with all that the files say of it; files must not contradict each other."""
    every = pl.concat(
        [part.models.with_columns(at_part(i)) for i, part in enumerate(parts)], how="diagonal"
    )
    models = every.select("model").unique(maintain_order=True)
    numeric = frozenset[str]().union(*(part.numeric for part in parts))
    every = every.with_columns(typed(every[c]) for c in every.columns if c in numeric)
    columns = {
        name: _known(parts, every.select("model", name, LINE, PART).drop_nulls(name), models)
        for name in every.columns
        if name not in ("model", LINE, PART)
    }
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(models))
    fit = columns.pop("in_fit_set", None)
    everyone = pl.Series([True]).new_from_index(0, len(models))
    return pl.DataFrame(
        {
            "model": models["model"],
            "kind": columns.pop("kind", nothing).fill_null(UNSPECIFIED),
            "in_fit_set": everyone if fit is None else fit.fill_null(False),
            "parent": columns.pop("parent", nothing),
            **columns,
        }
    )


def _known(parts: Sequence[Part], said: pl.DataFrame, models: pl.DataFrame) -> pl.Series:
    """The one value each model has in a column, null where nothing is said."""
    name = said.columns[1]
    said = said.unique(["model", name], keep="first", maintain_order=True)
    more = said.filter(~pl.col("model").is_first_distinct())
    if len(more):
        two = more.row(0, named=True)
        one = said.filter(pl.col("model") == two["model"]).row(0, named=True)
        raise InputError(
            f"{place(parts, two)}, column {shown(name)}: {shown(str(two[name]))} for model "
            f"{shown(two['model'])}, but {place(parts, one)} says {shown(str(one[name]))}; "
            "ignore (--ignore) leaves a column out"
        )
    return models.join(said, on="model", how="left", maintain_order="left")[name]


def check_evaluated(parts: Sequence[Part], models: pl.DataFrame, cells: pl.DataFrame) -> None:
    idle = models.join(cells, on="model", how="anti")
    if not len(idle):
        return
    name = idle["model"][0]
    for part in parts:
        rows = part.models.filter(pl.col("model") == name)
        if len(rows):
            raise InputError(
                f"{part.path}, {part.word} {rows[LINE][0]}: model {shown(name)} has no value at all"
            )


def fit_set(models: pl.DataFrame, fit: Choice) -> pl.Series:
    """The baseline models: as chosen, else as the files say, else all."""
    chosen = choose(models, fit)
    if not chosen.any():
        raise InputError("no model is a baseline model; choose some with fit (--fit)")
    return pl.Series(chosen)
