"""Tables people make: wide, a row per model, and long, a row per model and setting.

Cells become numbers here, with complaints that name the cell.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import polars as pl

from shiftbed.errors import InputError, shown, unknown
from shiftbed.importing.parts import NUMBER, FileResults, cells_of, models_of
from shiftbed.importing.units import Unit, Units
from shiftbed.reading.tables import TextTable

MOST = 2**31 - 1
"""The largest test-set size a testbed file can hold."""
_COMMA = r"^([+-]?[0-9]*),([0-9]+)$"
_NOT_FINITE = r"^(?i:[+-]?(?:nan|inf|infinity))$"
_PERCENT = r"^[+-]?[0-9.,]*[0-9] *%$"
_MISSING = r"^(?i:[+-]?nan|na|n/a|null|none|-+|\?|[+-]?inf|[+-]?infinity)$"
_WHOLE = r"^\+?[0-9]+(?:\.0)?$"
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SIGN = r" *%$"
INFO = (
    *("param_count", "img_size", "crop_pct", "gflops"),  # columns of the published testbeds
    *("sparsity", "step", "epoch", "seed"),
)
"""Numeric columns that describe a model, not its accuracy."""
_RESERVED = ("setting", "value", "n", "right")
"""Names that testbed files give to other columns than the model's."""
_ACCURACY = ("accuracy", "top1", "top-1", "top-1 accuracy")
_INTERVAL = ("low", "high")  # of Testbed.scores(): they follow from value and n


def read_wide(table: TextTable, units: Units, info: Collection[str]) -> FileResults:
    """A row per model; every numeric column is a setting, ``n:SETTING`` holds its sizes.

    The model is in ``model`` (or ``name``). Where there are also ``img_size`` and ``crop_pct``,
    they belong to its name, as in the published timm testbed. Text describes the model, and so do
    numeric columns that are named in ``info`` or in ``INFO``.
    """
    key = table.need("model", "name")
    described, rest = _described(table, key, info)
    settings: list[str] = []
    sizes: dict[str, pl.Series] = {}
    for column in rest:
        if column.lower().startswith("n:"):
            sizes[column[2:].strip()] = wholes(table, column)
        elif looks_numeric(table, column):
            settings.append(column)
        else:
            described |= _text(table, column)
    if not settings:
        raise InputError(f"{table.path}: no column holds numbers, so there is no setting")
    if "n" in settings:
        raise InputError(f"{table.path}, column 'n': of which setting? Call it 'n:SETTING'")
    for setting in sizes:
        if setting not in settings:
            what = f"setting of column {'n:' + setting!r} in {table.path}:"
            raise unknown(what, setting, settings)
    models = keyed(table, key)
    if _image_columns(table):
        described.setdefault("name", table.frame[key])
    hint = "; if the column describes the models, say so with info (--info)"
    cells = []
    for setting in settings:
        value, divided = accuracies(table, setting, units, models, setting, hint)
        cells.append(cells_of(table, models, setting, value, sizes.get(setting), divided))
    return FileResults(
        path=table.path,
        word=table.word,
        cells=pl.concat(cells),
        models=models_of(table, models, described),
        numeric=_numeric(described, info),
    )


def read_long(table: TextTable, units: Units, info: Collection[str]) -> FileResults:
    """A row per model and setting: ``value`` or ``accuracy``, or ``correct`` out of ``n``.

    ``n`` and ``metric`` may be given; a value whose metric is not accuracy is kept as it is. Any
    other column describes the model and must not differ between its rows.
    """
    table = table.drop(_INTERVAL)
    key, setting = table.need("model", "name"), table.need("setting")
    given = [table.find(name) for name in ("value", "accuracy", "correct")]
    columns = [column for column in given if column is not None]
    if len(columns) != 1:
        what = " and ".join(shown(c) for c in columns) or "none of 'value', 'accuracy', 'correct'"
        raise InputError(
            f"{table.path}: expected one column of values, got {what}; leave out others with "
            "ignore (--ignore)"
        )
    settings = required(table, setting, "setting")
    size, metric = table.find("n"), table.find("metric")
    metrics, plain = _metrics(table, settings, metric)
    n = None if size is None else wholes(table, size)
    models, divided = keyed(table, key), None
    if given[2] is not None:
        value = _counted(table, given[2], size)
    else:
        value, divided = accuracies(table, columns[0], units, models, settings, accuracy=plain)
    described, rest = _described(table, key, info, setting, size, metric, *columns)
    for column in rest:
        described |= _text(table, column)
    return FileResults(
        path=table.path,
        word=table.word,
        cells=cells_of(table, models, settings, value, n, divided),
        models=models_of(table, models, described),
        numeric=_numeric(described, info),
        metrics=metrics,
    )


def read_models(table: TextTable) -> FileResults:
    """A row per model without results: every other column describes the model."""
    key = table.need("model", "name")
    info = [column for column in table.frame.columns if column != key]
    described, _ = _described(table, key, info)
    if not described:
        raise InputError(f"{table.path}: no column describes the models")
    models = required(table, key, "model name")
    nothing = cells_of(table, models, "", pl.Series([None]).new_from_index(0, len(models)))
    return FileResults(
        path=table.path,
        word=table.word,
        cells=nothing,
        models=models_of(table, models, described),
        numeric=frozenset(described) - {"kind", "in_fit_set", "parent"},
    )


def required(table: TextTable, column: str, what: str) -> pl.Series:
    """A column that every row must fill."""
    cells = table.frame[column]
    row = first(cells.is_null())
    if row is not None:
        raise InputError(f"{table.where(row, column)}: the {what} is missing")
    return cells


def keyed(table: TextTable, key: str) -> pl.Series:
    """The models of the rows; image size and crop belong to the name where both are given."""
    names = required(table, key, "model name")
    columns = _image_columns(table)
    if columns is None:
        return names
    size, crop = columns
    required(table, size, "image size")
    required(table, crop, "crop")
    crops = reals(table, crop).map_elements(lambda v: f"{v:g}", return_dtype=pl.String)
    return names + "@" + wholes(table, size, 1).cast(pl.String) + "-" + crops


def _image_columns(table: TextTable) -> tuple[str, str] | None:
    size, crop = table.find("img_size"), table.find("crop_pct", "cropt_pct")
    return None if size is None or crop is None else (size, crop)


def _described(
    table: TextTable, key: str, info: Collection[str], *used: str | None
) -> tuple[dict[str, pl.Series], list[str]]:
    """Columns known to describe the model, by their names in the testbed, and the other columns."""
    known: dict[str, pl.Series] = {}
    kind, fit, parent = table.find("kind", "type"), table.find("in_fit_set"), table.find("parent")
    if kind is not None:
        known["kind"] = table.frame[kind]
    if fit is not None:
        known["in_fit_set"] = truths(table, fit)
    if parent is not None:
        known["parent"] = table.frame[parent]
    done = {key, kind, fit, parent, *used}
    rest = [c for c in table.frame.columns if c not in done]
    for column in rest:
        if column in info or column.lower() in INFO:
            name = column if column in info else column.lower()
            known |= _text(table, column, name)
    return known, [c for c in rest if c not in info and c.lower() not in INFO]


def _text(table: TextTable, column: str, name: str | None = None) -> dict[str, pl.Series]:
    """A column as it goes into the models; nothing where it is empty."""
    name = name or column
    if name in _RESERVED or name == "model":
        raise InputError(f"{table.path}: a column that describes models cannot be called {name!r}")
    if table.frame[column].null_count() == len(table.frame):
        return {}
    return {name: pointed(table, column)}


def _numeric(described: Mapping[str, pl.Series], info: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in described if name in info or name in INFO)


def _metrics(
    table: TextTable, settings: pl.Series, column: str | None
) -> tuple[dict[str, str], pl.Series | None]:
    """What settings measure where it is not accuracy, and a mask of the rows that are accuracy."""
    if column is None:
        return {}, None
    metric = table.frame[column].fill_null(_ACCURACY[0])
    plain = metric.str.to_lowercase().is_in(_ACCURACY)
    frame = pl.DataFrame({"setting": settings, "metric": metric.set(plain, _ACCURACY[0])})
    frame = frame.with_row_index().unique(["setting", "metric"], keep="first", maintain_order=True)
    twice = frame.filter(pl.col("setting").is_duplicated() & ~pl.col("setting").is_first_distinct())
    if len(twice):
        row, setting = int(twice["index"][0]), str(twice["setting"][0])
        raise InputError(
            f"{table.cell(row, column)} is a second metric of setting {shown(setting)}"
        )
    other = frame.filter(pl.col("metric") != _ACCURACY[0])
    return dict(zip(other["setting"], other["metric"], strict=True)), plain


def _counted(table: TextTable, correct: str, size: str | None) -> pl.Series:
    """Accuracies from counts."""
    if size is None:
        raise InputError(f"{table.path}: column {shown(correct)} needs a column 'n' beside it")
    right, n = wholes(table, correct), wholes(table, size, 1)
    row = first(right.is_not_null() & n.is_null())
    if row is not None:
        raise InputError(f"{table.where(row, size)}: {shown(correct)} needs the number of images")
    row = first(right > n)
    if row is not None:
        raise InputError(f"{table.cell(row, correct)} is more than the {n[row]} images of {size!r}")
    return right / n


# --- cells to numbers -----------------------------------------------------------------------------


def looks_numeric(table: TextTable, column: str) -> bool:
    """Whether any cell is a number or means to be one (0,5 or 76 % or NaN)."""
    cells = table.frame[column]
    pattern = "|".join((NUMBER, _COMMA, _NOT_FINITE, _PERCENT))
    return bool(cells.str.contains(pattern).any())


def reals(table: TextTable, column: str, hint: str = "") -> pl.Series:
    """Numbers of a column, null where a cell is empty; anything else is refused."""
    cells, text = table.frame[column], pointed(table, column)
    row = first(~text.str.contains(NUMBER))
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a number{_why(cells[row], hint)}")
    return text.cast(pl.Float64) + 0.0  # −0 becomes 0


def pointed(table: TextTable, column: str) -> pl.Series:
    """The cells of a column, decimal commas turned into points where they are allowed."""
    cells = table.frame[column]
    return cells.str.replace(_COMMA, "${1}.${2}") if table.decimal_comma else cells


def _why(value: str, hint: str) -> str:
    if re.match(_MISSING, value):
        return "; leave the cell empty where a model was not evaluated"
    if value.endswith("%"):
        return "; write % in every cell of the column, or nowhere and pass --unit percent"
    if re.match(_COMMA, value):
        return "; a decimal comma is read only where semicolons or tabs separate the columns"
    return hint


def accuracies(
    table: TextTable,
    column: str,
    units: Units,
    models: pl.Series,
    setting: str | pl.Series,
    hint: str = "",
    accuracy: pl.Series | None = None,
) -> tuple[pl.Series, pl.Series]:
    """Accuracies as fractions, and which of them were divided by 100 by nothing but the rule.

    A column in which every cell has a percent sign says itself what it is in.
    """
    cells = table.frame[column]
    signed = cells.str.contains(_SIGN)
    if signed.any() and signed.all():
        table = replace(table, frame=table.frame.with_columns(cells.str.replace(_SIGN, "")))
        return fractions(table, column, "percent", hint, accuracy), ~signed
    if isinstance(setting, str):
        setting = pl.Series([setting]).new_from_index(0, len(cells))
    said = units.of(table.path, models, setting)
    unit = said if units.rule is None else said.fill_null(units.rule)
    divided = said.is_null() & (unit == "percent").fill_null(False)
    if accuracy is not None:
        divided &= accuracy
    return fractions(table, column, unit, hint, accuracy), divided


def fractions(
    table: TextTable,
    column: str,
    unit: Unit | pl.Series | None,
    hint: str = "",
    accuracy: pl.Series | None = None,
) -> pl.Series:
    """Accuracies as fractions, null where a cell is empty; a value out of range is refused.

    ``unit`` may differ from row to row. Where ``accuracy`` is false the value is of another kind
    and only has to be finite.
    """
    values = reals(table, column, hint)
    row = first(values.is_infinite())
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is too large a number")
    if not isinstance(unit, pl.Series):
        unit = pl.Series([unit], dtype=pl.String).new_from_index(0, len(values))
    top = unit.replace_strict({"percent": 100.0}, default=1.0, return_dtype=pl.Float64)
    wrong = (values < 0.0) | (values > top)
    row = first(wrong if accuracy is None else wrong & accuracy)
    if row is None:
        scaled = values / top  # by a scalar it would round twice
        return scaled if accuracy is None else scaled.zip_with(accuracy, values)
    where, value = table.cell(row, column), values[row]
    if unit[row] == "percent":
        raise InputError(f"{where} is not a percentage between 0 and 100{hint}")
    if unit[row] is None and 1.0 < value <= 100.0:
        hint = "; if the file is in percent, pass unit='percent' (--unit percent)" + hint
    raise InputError(f"{where} is not a fraction between 0 and 1{hint}")


def wholes(table: TextTable, column: str, least: int = 0) -> pl.Series:
    """Whole numbers of a column, null where a cell is empty. 50,000 and 50.000 are refused."""
    cells = table.frame[column]
    numbers = cells.str.replace(r"\.0$", "").str.strip_prefix("+").cast(pl.Int64, strict=False)
    good = cells.str.contains(_WHOLE) & numbers.is_between(least, MOST).fill_null(False)
    row = first(cells.is_not_null() & ~good)
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is not a whole number from {least} to {MOST}")
    return numbers


def truths(table: TextTable, column: str) -> pl.Series:
    """Booleans of a column; every cell must be true or false (or yes, no, 1, 0)."""
    cells = table.frame[column]
    values = cells.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Boolean)
    row = first(values.is_null())
    if row is not None:
        raise InputError(f"{table.cell(row, column)} is neither true nor false")
    return values


def first(mask: pl.Series) -> int | None:
    """Row of the first true value."""
    found = mask.fill_null(False).arg_true()
    return int(found[0]) if len(found) else None
