"""What the files say of models, put together: metadata, and which are baseline models."""

from collections.abc import Sequence

import polars as pl

from shiftbed.display import counted
from shiftbed.errors import InputError, shown
from shiftbed.importing.parts import FILE, LINE, NUMBER, FileResults, listing, of_file, place
from shiftbed.testbed import Testbed, choose
from shiftbed.testbed.select import Choice

UNSPECIFIED = "unspecified"
"""Kind of a model of which no file says it."""


def merge_models(parts: Sequence[FileResults]) -> pl.DataFrame:
    """A row per model with all that the files say of it; files must not contradict each other."""
    every = pl.concat(
        [part.models.with_columns(of_file(i)) for i, part in enumerate(parts)], how="diagonal"
    )
    models = every.select("model").unique(maintain_order=True)
    numeric = frozenset[str]().union(*(part.numeric for part in parts))
    every = every.with_columns(typed(every[c]) for c in every.columns if c in numeric)
    columns = {
        name: _known(parts, every.select("model", name, LINE, FILE).drop_nulls(name), models)
        for name in every.columns
        if name not in ("model", LINE, FILE)
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


def typed(cells: pl.Series) -> pl.Series:
    """Text as whole numbers if all are, else as numbers if all are, else as it was."""
    plain = cells.str.replace_all(r"^([0-9]{1,3}),([0-9]{3}\.[0-9]+)$", "$1$2")
    if plain.str.contains(r"^[+-]?[0-9]{1,18}$").all():
        return plain.cast(pl.Int64)
    return plain.cast(pl.Float64) if plain.str.contains(NUMBER).all() else cells


def _known(parts: Sequence[FileResults], said: pl.DataFrame, models: pl.DataFrame) -> pl.Series:
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


def check_evaluated(
    parts: Sequence[FileResults], models: pl.DataFrame, cells: pl.DataFrame
) -> None:
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


def fit_set_of(models: pl.DataFrame, like: Testbed) -> tuple[pl.DataFrame, str]:
    """The models with the fit set of another testbed, all if it has none of them; and a note."""
    baseline = like.models.filter(pl.col("in_fit_set"))["model"]
    inside = models["model"].is_in(baseline)
    if not inside.any():
        return models, f"no model is in the fit set of {like.name}: all are baseline models here"
    note = f"{int(inside.sum())} models of the fit set of {like.name} are the baseline models"
    return models.with_columns(in_fit_set=inside), note


def fit_set(models: pl.DataFrame, fit: Choice) -> pl.Series:
    """The baseline models: as chosen, else as the files say, else all."""
    chosen = choose(models, fit)
    if not chosen.any():
        raise InputError("no model is a baseline model; choose some with fit (--fit)")
    return pl.Series(chosen)


def metadata_note(about: FileResults, tested: pl.Series) -> str:
    """How many models a file of metadata and the results have in common; refused if none."""
    known = about.models["model"].unique()
    both = int(known.is_in(tested).sum())
    if not both:
        raise InputError(
            f"{about.path}: no model of it has results; it has {shown(known[0])}, the results "
            f"have {shown(tested[0])}"
        )
    return (
        f"{about.path}: metadata of {both} of {counted(len(tested), 'model')}"
        + (f"; {len(known) - both} more have no results" if len(known) > both else "")
        + f": {listing(c for c in about.models.columns if c not in ('model', LINE))}"
    )
