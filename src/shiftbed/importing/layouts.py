"""Tables people make: wide, a row per model, and long, a row per model and setting."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from shiftbed.display import counted
from shiftbed.errors import InputError, shown, unknown
from shiftbed.importing.cells import (
    accuracies,
    bounds_of,
    first,
    mostly_numeric,
    numbers,
    pointed,
    required,
    truths,
    wholes,
)
from shiftbed.importing.columns import (
    ROLES,
    Columns,
    beside,
    is_metadata,
    is_other_metric,
    is_setting,
    leaf,
    plain,
    shorter,
)
from shiftbed.importing.identity import NamedRows, identify
from shiftbed.importing.parts import FileResults, cells_of, listing, models_of
from shiftbed.importing.units import Units, guess_unit
from shiftbed.reading.tables import TextTable

_RESERVED = ("setting", "value", "n", "right")
"""Names that testbed files give to other columns than the model's."""
_CHOSEN = ("value", "accuracy", "correct")
"""Columns of values of which only one may be there."""
_OTHER = "other metrics"
_DIFFERS = "not the same in all rows of a model"


@dataclass(frozen=True, kw_only=True)
class _Left:
    """A column that is not read, and why."""

    column: str
    why: str


def read_wide(table: TextTable, units: Units, columns: Columns) -> FileResults:
    """A row per model; a column per setting, and ``n:SETTING`` or ``SETTING_n`` for its sizes.

    A column of numbers is a setting unless its name says that it describes the model (``lr``) or
    measures something else (``acc5``), or its numbers cannot be accuracies. Text describes the
    model. A table with one column of values, called ``acc1`` or the like, is named by its file.
    """
    identity = identify(table, columns)
    described, rest = _described(table, columns, identity)
    lone = next((c for c in rest if c.lower() == "n"), None)
    own, left = _wide_settings(table, columns, [c for c in rest if c != lone])
    belongs = beside(table, own)
    attached = {column for some in belongs.values() for column in some.values()}
    settings = {c: name for c, name in own.items() if c not in attached}
    _check_sizes(table, settings, rest, attached)
    if lone is not None:
        if len(settings) != 1:
            raise InputError(f"{table.path}, column 'n': of which setting? Call it 'n:SETTING'")
        belongs.setdefault("n", {}).setdefault(next(iter(settings)), lone)
        attached.add(lone)
    for column in rest:
        if column in settings or column in attached or any(one.column == column for one in left):
            continue
        described |= _text(table, column)
    if not settings:
        raise InputError(
            f"{table.path}: no column holds numbers that could be accuracies, so there is no "
            "setting; columns={'setting': …} (--column setting=COLUMN) says which ones are"
        )
    if len(set(settings.values())) < len(settings):
        raise InputError(f"{table.path}: two settings are called {_twice(settings.values())}")
    models = identity.models
    unit = guess_unit(
        units, table.path, ((s, numbers(table, c, signed=False)) for c, s in settings.items())
    )
    hint = "; if the column describes the models, say so with info (--info)"
    cells, bounds = [], []
    for column, setting in settings.items():
        value, divided = accuracies(table, column, unit, models, setting, hint)
        size = belongs.get("n", {}).get(column)
        n = None if size is None else wholes(table, size)
        cells.append(cells_of(table, models, setting, value, n, divided))
        ends = [belongs.get(role, {}).get(column) for role in ("low", "high", "interval")]
        bounds += bounds_of(table, setting, value, n, column, *ends)
    return FileResults(
        path=table.path,
        word=table.word,
        cells=pl.concat(cells),
        models=models_of(table, models, described),
        numeric=_numeric(table, described),
        bounds=tuple(bounds),
        notes=(_note(table, identity, {}, unit.words, list(settings.values()), described, left),),
    )


def _wide_settings(
    table: TextTable, columns: Columns, rest: Sequence[str]
) -> tuple[dict[str, str], list[_Left]]:
    """The columns of settings with the settings' names, and the columns that are no use."""
    said = columns.told(table, "setting")
    left = [_Left(column=c, why="a list") for c in table.lists]
    found: list[str] = []
    for column in rest:
        if not mostly_numeric(table, column):
            continue
        if said:
            if column in said:
                found.append(column)
        elif column in columns.settings or is_setting(column) or _sized_column(column):
            found += [] if _sized_column(column) else [column]
        elif is_other_metric(table, column):
            left.append(_Left(column=column, why=_OTHER))
        elif not is_metadata(table, column):
            found.append(column)
    if not said:
        found = [c for c in found if c in columns.settings or not _out_of_range(table, c, found)]
    short = {c: c if c in columns.settings else shorter(c) for c in found}
    nested = [c for c in found if c in table.nested]
    if nested:
        short |= _paths(table, nested)
    if len(set(short.values())) < len(short):
        short = {c: c for c in found}
    generic = [c for c in found if leaf(table, c) in ROLES["value"] and not said]
    if len(found) == 1 and generic and table.word != "row":
        short = {found[0]: Path(table.path).stem}
    return short, left


def _sized_column(column: str) -> bool:
    return column.lower().startswith("n:")


def _out_of_range(table: TextTable, column: str, all_of: Sequence[str]) -> bool:
    """Whether numbers cannot be accuracies: mostly outside 0 to 100, or whole numbers above 1 in a
    table of fractions."""
    if is_setting(column) or len(all_of) == 1:
        return False
    values = numbers(table, column).drop_nulls()
    if not len(values):
        return False
    outside = ((values < 0.0) | (values > 100.0)).sum()
    if 2 * int(outside) > len(values):
        return True
    whole = bool((values == values.round()).all()) and float(values.max() or 0.0) > 1.0  # type: ignore[arg-type]
    others = [numbers(table, c).drop_nulls() for c in all_of if c != column]
    fractional = [o for o in others if len(o) and float(o.max() or 0.0) <= 1.0]  # type: ignore[arg-type]
    return whole and any(not (o == o.round()).all() for o in fractional)


def _paths(table: TextTable, nested: Sequence[str]) -> dict[str, str]:
    """Names of settings from inside objects: ``results.val`` and ``val.acc1`` are ``val``."""
    parts = {c: c.split(".") for c in nested}
    if all(len(one) > 1 and plain(one[-1]) in ROLES["value"] for one in parts.values()):
        parts = {c: one[:-1] for c, one in parts.items()}
    while all(len(one) > 1 for one in parts.values()) and len({p[0] for p in parts.values()}) == 1:
        parts = {c: one[1:] for c, one in parts.items()}
    return {c: ".".join(one) for c, one in parts.items()}


def _check_sizes(
    table: TextTable, settings: Mapping[str, str], rest: Sequence[str], attached: set[str]
) -> None:
    for column in rest:
        if _sized_column(column) and column not in attached:
            what = f"setting of column {column!r} in {table.path}:"
            raise unknown(what, column[2:].strip(), settings)


def _twice(names: Collection[str]) -> str:
    every = list(names)
    return shown(next(one for one in every if every.count(one) > 1))


def read_long(table: TextTable, units: Units, columns: Columns) -> FileResults:
    """A row per model and setting: an accuracy, or ``correct`` out of ``n``.

    ``n``, an interval and ``metric`` may be given; a value whose metric is not accuracy is kept as
    it is. Any other column describes the model, or is left out if it differs between its rows.
    """
    setting, metric = columns.need(table, "setting"), columns.find(table, "metric")
    value_column, correct = _value_column(table, columns)
    table, dropped = _one_metric(table, setting, metric)
    identity = identify(table, columns, columns.every(table, "setting"))
    assert identity.settings is not None
    settings, models = _shorter(identity.settings, columns), identity.models
    near = {role: next(iter(some.values())) for role, some in beside(table, [value_column]).items()}
    size = columns.find(table, "n") or near.get("n")
    metrics, accuracy = _metrics(table, settings, metric)
    n = None if size is None else wholes(table, size)
    divided, unit = None, units
    if correct is not None:
        value = _counted(table, correct, size)
    else:
        plain_values = numbers(table, value_column, signed=False)
        if accuracy is not None:
            plain_values = plain_values.set(~accuracy, None)
        unit = guess_unit(units, table.path, _by_setting(settings, plain_values))
        value, divided = accuracies(table, value_column, unit, models, settings, accuracy=accuracy)
    ends = [columns.find(table, r) or near.get(r) for r in ("low", "high", "interval")]
    used = {"value": value_column, "n": size, "metric": metric}
    used |= dict(zip(("low", "high", "interval"), ends, strict=True))
    described, rest = _described(table, columns, identity, *used.values(), *identity.setting)
    left = [_Left(column=c, why="a list") for c in table.lists]
    for column in rest:
        number = mostly_numeric(table, column)
        if number and (is_other_metric(table, column) or leaf(table, column) in ROLES["value"]):
            left.append(_Left(column=column, why=_OTHER))
        elif _varies(models, table.frame[column]):
            left.append(_Left(column=column, why=_DIFFERS))
        else:
            described |= _text(table, column)
    names = settings.unique(maintain_order=True).to_list()
    shown_as = {role: column for role, column in used.items() if role in ("value", "n") and column}
    return FileResults(
        path=table.path,
        word=table.word,
        cells=cells_of(table, models, settings, value, n, divided),
        models=models_of(table, models, described),
        numeric=_numeric(table, described),
        metrics=metrics,
        bounds=tuple(bounds_of(table, settings, value, n, value_column, *ends)),
        notes=(_note(table, identity, shown_as, unit.words, names, described, left), *dropped),
    )


def _shorter(settings: pl.Series, columns: Columns) -> pl.Series:
    """The settings by names that are known, unless two of them would be one."""
    names = settings.unique(maintain_order=True).to_list()
    new = {one: one if one in columns.settings else shorter(one) for one in names}
    return settings if len(set(new.values())) < len(new) else settings.replace(new)


def _value_column(table: TextTable, columns: Columns) -> tuple[str, str | None]:
    """The column of values, and again if it counts right answers."""
    said = [*columns.told(table, "value"), *columns.told(table, "correct")]
    if not said:
        chosen = [c for c in table.frame.columns if plain(c) in _CHOSEN and c not in columns.info]
        guesses = [c for c in columns.every(table, "value") if mostly_numeric(table, c)]
        guesses += columns.every(table, "correct")
        said = chosen or guesses[:1] or columns.every(table, "value")[:1]
    if len(said) != 1:
        what = " and ".join(shown(c) for c in said) or "none of 'value', 'accuracy', 'correct'"
        raise InputError(
            f"{table.path}: expected one column of values, got {what}; say which it is with "
            "columns={'value': …} (--column value=COLUMN), or leave out others (--ignore)"
        )
    counts = {*columns.told(table, "correct")}
    if not columns.told(table, "value"):
        counts |= set(columns.every(table, "correct"))
    return said[0], said[0] if said[0] in counts else None


def _one_metric(
    table: TextTable, setting: str, metric: str | None
) -> tuple[TextTable, tuple[str, ...]]:
    """Only the rows of accuracies, where a setting has them beside other metrics."""
    if metric is None:
        return table, ()
    names = table.frame[metric].fill_null("accuracy")
    is_accuracy = names.map_elements(_is_accuracy, return_dtype=pl.Boolean)
    both = pl.DataFrame({"setting": table.frame[setting], "accuracy": is_accuracy})
    mixed = both.select(pl.col("accuracy").any().over("setting"))["accuracy"]
    drop = mixed & ~is_accuracy
    if not drop.any():
        return table, ()
    left = names.filter(drop).unique(maintain_order=True).to_list()
    kept = replace(table, frame=table.frame.filter(~drop), lines=table.lines[(~drop).to_numpy()])
    return kept, (f"{table.path}: of the metrics only accuracy is read, not {listing(left)}",)


def _is_accuracy(name: str) -> bool:
    return plain(name) in ROLES["value"]


def _metrics(
    table: TextTable, settings: pl.Series, column: str | None
) -> tuple[dict[str, str], pl.Series | None]:
    """What settings measure where it is not accuracy, and a mask of the rows that are accuracy."""
    if column is None:
        return {}, None
    metric = table.frame[column].fill_null("accuracy")
    accuracy = metric.map_elements(_is_accuracy, return_dtype=pl.Boolean)
    frame = pl.DataFrame({"setting": settings, "metric": metric.set(accuracy, "accuracy")})
    frame = frame.with_row_index().unique(["setting", "metric"], keep="first", maintain_order=True)
    twice = frame.filter(pl.col("setting").is_duplicated() & ~pl.col("setting").is_first_distinct())
    if len(twice):
        row, setting = int(twice["index"][0]), str(twice["setting"][0])
        raise InputError(
            f"{table.cell(row, column)} is a second metric of setting {shown(setting)}"
        )
    other = frame.filter(pl.col("metric") != "accuracy")
    return dict(zip(other["setting"], other["metric"], strict=True)), accuracy


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


def _by_setting(settings: pl.Series, values: pl.Series) -> list[tuple[str, pl.Series]]:
    frame = pl.DataFrame({"setting": settings, "value": values}).drop_nulls()
    return [(part["setting"][0], part["value"]) for part in frame.partition_by("setting")]


def _varies(models: pl.Series, cells: pl.Series) -> bool:
    pairs = pl.DataFrame({"model": models, "cell": cells}).drop_nulls().unique()
    return bool(pairs["model"].is_duplicated().any())


def read_models(table: TextTable, columns: Columns) -> FileResults:
    """A row per model without results: every other column describes the model."""
    key = columns.find(table, "model") or columns.need(table, "model")
    models = required(table, key, "model name")
    identity = NamedRows(models=models, columns=(key,))
    described, rest = _described(table, columns, identity)
    for column in rest:
        described |= _text(table, column)
    if not described:
        raise InputError(f"{table.path}: no column describes the models")
    nothing = pl.Series([None], dtype=pl.Float64).new_from_index(0, len(models))
    return FileResults(
        path=table.path,
        word=table.word,
        cells=cells_of(table, models, "", nothing),
        models=models_of(table, models, described),
        numeric=_numeric(table, described),
    )


# --- what describes models, and what was understood -----------------------------------------------


def _described(
    table: TextTable, columns: Columns, identity: NamedRows, *used: str | None
) -> tuple[dict[str, pl.Series], list[str]]:
    """Columns known to describe the model, by their names in the testbed, and the other columns."""
    known: dict[str, pl.Series] = {}
    done = {*identity.columns, *used}
    for role in ("kind", "in_fit_set", "parent"):
        column = columns.find(table, role)
        if column is None or column in done:
            continue
        known[role] = truths(table, column) if role == "in_fit_set" else table.frame[column]
        done.add(column)
    rest = []
    for column in table.frame.columns:
        if column in done:
            continue
        if column in columns.info:
            known |= _text(table, column)
        else:
            rest.append(column)
    for name, cells in identity.known.items():
        if name not in table.frame.columns or name in done:
            known[name] = cells
    others = [c for c in identity.columns[1:] if c not in identity.known]
    if "step" not in identity.known:
        for column in others:
            known |= _text(table, column)
    return known, rest


def _text(table: TextTable, column: str) -> dict[str, pl.Series]:
    """A column as it goes into the models; nothing where it is empty."""
    name = column.lower() if column.isidentifier() and is_metadata(table, column) else column
    if name == "model":
        name = "architecture"
    if name in _RESERVED:
        raise InputError(f"{table.path}: a column that describes models cannot be called {name!r}")
    if table.frame[column].null_count() == len(table.frame):
        return {}
    return {name: pointed(table, column)}


def _numeric(table: TextTable, described: Mapping[str, pl.Series]) -> frozenset[str]:
    """The columns that hold nothing but numbers."""
    whole = {name.lower(): name for name in table.frame.columns}
    return frozenset(
        name
        for name in described
        if name == "step"
        or (whole.get(name.lower()) is not None and mostly_numeric(table, whole[name.lower()]))
    ) - {"kind", "in_fit_set", "parent", "name"}


def _note(
    table: TextTable,
    identity: NamedRows,
    used: Mapping[str, str],
    unit: str,
    settings: Sequence[str],
    described: Mapping[str, pl.Series],
    left: Sequence[_Left],
) -> str:
    """How a table was understood, in one line."""
    roles = {"model": identity.columns, "setting": identity.setting}
    roles |= {role: (column,) for role, column in used.items()}
    where = ", ".join(
        f"{role} from {' and '.join(map(shown, some))}"
        for role, some in roles.items()
        if some and tuple(map(plain, some)) != (role,)
    )
    parts = [where] if where else []
    parts.append(f"{counted(len(settings), 'setting')}{unit}: {listing(settings)}")
    if "step" in described and "run" in described:
        parts.append(f"{counted(described['run'].n_unique(), 'run')} with steps")
    if described:
        parts.append(f"metadata: {listing(described)}")
    for why in dict.fromkeys(one.why for one in left):
        parts.append(f"left out: {listing(o.column for o in left if o.why == why)} ({why})")
    return f"{table.path}: " + "; ".join(parts)
