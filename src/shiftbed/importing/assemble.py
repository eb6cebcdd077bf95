"""What each file gives, and all of it put together into one testbed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError, shown, unknown
from shiftbed.importing.predictions import Predictions
from shiftbed.reading.tables import LIMIT, TextTable
from shiftbed.records import ImageResults, Shift
from shiftbed.testbed import Testbed, choose, published
from shiftbed.testbed.select import Choice

LINE = " line"
"""Column that says where a row stands; a file's own columns never start with a space."""
UNSPECIFIED = "unspecified"
"""Kind of a model of which no file says it."""
DIVIDED = " divided"
"""Column that says whether a value was divided by 100 by nothing but the import's unit."""
FILE = " file"
NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""A number as text."""
_LIMIT = 10**8


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


def assemble(
    parts: Sequence[FileResults],
    *,
    name: str,
    sizes: Mapping[str, int],
    shifts: Sequence[Shift],
    fit: Choice,
    citation: str,
    licence: str,
    source: str,
) -> Testbed:
    """One testbed: models and settings in the order of their first appearance."""
    cells = pl.concat(_sized(part, sizes).with_columns(of_file(i)) for i, part in enumerate(parts))
    models = merge_models(parts)
    settings = cells["setting"].unique(maintain_order=True).to_list()
    for setting in sizes:
        if setting not in settings:
            raise unknown("setting", setting, settings)
    check_evaluated(parts, models, cells)
    value, n = _arrays(parts, cells, models["model"], settings)
    homes = {part.home for part in parts}
    testbed = Testbed(
        name=name,
        models=models.with_columns(in_fit_set=fit_set(models, fit)),
        settings=tuple(settings),
        value=value,
        n=n,
        metrics=_metrics(parts),
        results=_results(parts, models["model"]),
        line=published("openclip").line if homes == {"openclip"} else "line",
        citation=citation,
        licence=licence,
        source=source,
    )
    return replace(testbed, shifts=_shifts(testbed, parts, shifts))


# --- cells -----------------------------------------------------------------------------------


def _sized(part: FileResults, sizes: Mapping[str, int]) -> pl.DataFrame:
    """Cells with sizes: the file's own, which the caller's must not contradict, else the caller's,
    else those known of the settings."""
    cells = part.cells.with_columns(pl.col("setting").replace(part.names))
    known: dict[str, int] = {}
    if part.home is not None:
        home = published(part.home)
        known = {part.renamed(s): home.usual_size(s) for s in home.settings}
    known |= sizes
    names = pl.Series(list(known), dtype=pl.String)
    counts = pl.Series(list(known.values()), dtype=pl.Int64)
    wanted = pl.col("setting").replace_strict(names, counts, default=0, return_dtype=pl.Int64)
    given = pl.col("setting").is_in(list(sizes))
    wrong = cells.filter(given & (pl.col("n") > 0) & (pl.col("n") != wanted))
    if len(wrong):
        one = wrong.row(0, named=True)
        raise InputError(
            f"{part.path}, {part.word} {one[LINE]}: setting {shown(one['setting'])} has "
            f"{one['n']} images, not {sizes[one['setting']]}"
        )
    return cells.with_columns(n=pl.when(pl.col("n") > 0).then("n").otherwise(wanted))


def _arrays(
    parts: Sequence[FileResults], cells: pl.DataFrame, models: pl.Series, settings: list[str]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Values and sizes as (models, settings); a cell given twice is refused."""
    if len(models) * len(settings) > _LIMIT:
        raise InputError(
            f"{len(models)} models × {len(settings)} settings are too many for one testbed"
        )
    rows = cells["model"].cast(pl.Enum(models)).to_physical().to_numpy().astype(np.int64)
    columns = cells["setting"].cast(pl.Enum(settings)).to_physical().to_numpy()
    key = rows * len(settings) + columns
    order = np.argsort(key, kind="stable")
    twice = np.flatnonzero(np.diff(key[order]) == 0)
    if len(twice):
        at = min(twice.tolist(), key=lambda i: int(order[i + 1]))
        one, two = (cells.row(int(order[i]), named=True) for i in (at, at + 1))
        raise InputError(
            f"{place(parts, two)}: model {shown(two['model'])} already has a value in setting "
            f"{shown(two['setting'])}, from {place(parts, one)}"
        )
    value = np.full((len(models), len(settings)), np.nan)
    n = np.zeros(value.shape, dtype=np.int64)
    value[rows, columns] = cells["value"].to_numpy()
    n[rows, columns] = cells["n"].to_numpy()
    return value, n


# --- settings --------------------------------------------------------------------------------


def _metrics(parts: Sequence[FileResults]) -> dict[str, str]:
    metrics: dict[str, str] = {}
    seen: dict[str, FileResults] = {}
    for part in parts:
        known = dict(part.metrics)
        if part.home is not None:
            known |= published(part.home).metrics
        for setting in part.cells["setting"].unique(maintain_order=True):
            name, metric = part.renamed(setting), known.get(setting, "accuracy")
            if name in seen and metric != metrics.get(name, "accuracy"):
                raise InputError(
                    f"{part.path}: setting {shown(name)} is {metric} here, but "
                    f"{metrics.get(name, 'accuracy')} in {seen[name].path}"
                )
            seen.setdefault(name, part)
            if metric != "accuracy":
                metrics[name] = metric
    return metrics


def _results(parts: Sequence[FileResults], models: pl.Series) -> dict[str, ImageResults]:
    """Per-image results by setting, in the order of the testbed's models."""
    found = [part.results for part in parts if part.results is not None]
    row = {name: i for i, name in enumerate(models)} if found else {}
    results: dict[str, ImageResults] = {}
    for one in found:
        if one.setting not in results:
            results[one.setting] = _nothing(one, len(models))
        at = [row[name] for name in one.models]
        results[one.setting].right[at] = one.right
        results[one.setting].known[at] = True
    return results


def _nothing(one: Predictions, models: int) -> ImageResults:
    """Room for the results of all models on the images of one setting."""
    images = one.right.shape[1]
    if models * images > LIMIT:
        raise InputError(f"{one.path}: {models} models × {images} images are too many")
    right, known = np.zeros((models, images), dtype=bool), np.zeros(models, dtype=bool)
    return ImageResults(images=one.images, right=right, known=known)


def _shifts(
    testbed: Testbed, parts: Sequence[FileResults], given: Sequence[Shift]
) -> tuple[Shift, ...]:
    """The shifts given, and those that are published for these settings."""
    shifts = {}
    for home in dict.fromkeys(part.home for part in parts if part.home is not None):
        names: dict[str, str] = {}
        for part in parts:
            names |= part.names if part.home == home else {}
        for shift in published(home).shifts:
            there = _renamed(shift, names)
            if {*there.source, there.target} <= set(testbed.settings):
                whole = there.full_source if there.full_source in testbed.settings else None
                shifts[there.name] = replace(there, full_source=whole)
    for shift in given:
        testbed.shift(shift)
        if shift.full_source is not None:
            testbed.setting_index(shift.full_source)
        shifts[shift.name] = shift
    return tuple(shifts.values())


def _renamed(shift: Shift, names: Mapping[str, str]) -> Shift:
    full = shift.full_source
    return replace(
        shift,
        source=tuple(names.get(s, s) for s in shift.source),
        target=names.get(shift.target, shift.target),
        full_source=None if full is None else names.get(full, full),
    )


# --- models ---------------------------------------------------------------------------------------


def of_file(part: int) -> pl.Expr:
    """A column that says which part a row is from."""
    return pl.lit(part, dtype=pl.Int64).alias(FILE)


def place(parts: Sequence[FileResults], row: Mapping[str, int]) -> str:
    """Where a row stands, such as ``results.csv, line 7``."""
    part = parts[row[FILE]]
    return f"{part.path}, {part.word} {row[LINE]}"


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


def fit_set(models: pl.DataFrame, fit: Choice) -> pl.Series:
    """The baseline models: as chosen, else as the files say, else all."""
    chosen = choose(models, fit)
    if not chosen.any():
        raise InputError("no model is a baseline model; choose some with fit (--fit)")
    return pl.Series(chosen)
