"""Which model each row is about: a name by itself, or with what tells rows of one name apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from shiftbed.importing.cells import pointed, reals, required, wholes
from shiftbed.importing.columns import TAGS, Columns, is_metadata, leaf
from shiftbed.importing.parts import NUMBER
from shiftbed.reading.tables import TextTable


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedRows:
    """The model of each row, and what was used to make it."""

    models: pl.Series
    columns: tuple[str, ...]
    """The columns that the names are made of."""
    known: dict[str, pl.Series] = field(default_factory=dict)
    """What they say of the model: name, architecture, run, step."""
    setting: tuple[str, ...] = ()
    """The columns that the settings are made of, in a long table."""
    settings: pl.Series | None = None


def identify(table: TextTable, columns: Columns, settings: Sequence[str] = ()) -> NamedRows:
    """The models of the rows of a table, such that no model (in no setting) has two rows.

    A name alone will do if it is unique. Else these are tried: another column with a model's name;
    a step of training, which makes a model ``RUN@STEP`` (a trajectory); a tag, such as the
    pre-training data, or a seed; and at last all hyper-parameters. ``settings`` are the columns of
    a long table that may name the setting: the first, or with others where it takes them. If
    nothing helps, the name stays as it is.
    """
    key = columns.find(table, "model") or columns.find(table, "run")
    key = key or columns.need(table, "model")
    options = list(_settings(table, settings))
    first = None
    for used, named in options:
        for one in _candidates(table, columns, key):
            one = replace(one, setting=used, settings=named)
            first = first or one
            if _unique(one):
                return _run(table, columns, one)
    for used, named in options:
        for one in _by_metadata(table, columns, key, used):
            one = replace(one, setting=used, settings=named)
            if _unique(one):
                return one
    assert first is not None
    return first


def _settings(
    table: TextTable, columns: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], pl.Series | None]]:
    """The first column of settings alone, then with one more, then with all that vary."""
    if not columns:
        yield (), None
        return
    first, *more = columns
    name = required(table, first, "setting")
    more = [c for c in more if table.frame[c].null_count() == 0 and table.frame[c].n_unique() > 1]
    yield (first,), name
    for other in more:
        yield (first, other), name + "/" + table.frame[other]
    if len(more) > 1:
        for other in more:
            name = name + "/" + table.frame[other]
        yield (first, *more), name


def _unique(one: NamedRows) -> bool:
    frame = pl.DataFrame({"model": one.models})
    if one.settings is not None:
        frame = frame.with_columns(setting=one.settings)
    return not frame.is_duplicated().any()


def _candidates(table: TextTable, columns: Columns, key: str) -> Iterator[NamedRows]:
    names = keyed(table, key)
    named = {"name": table.frame[key]} if image_columns(table) else {}
    yield NamedRows(models=names, columns=(key,), known=named)
    frame = table.frame
    for other in columns.every(table, "model")[1:]:
        if frame[other].null_count() == 0:
            yield NamedRows(models=frame[other], columns=(other,), known={"architecture": names})
    step, run = columns.find(table, "step"), columns.find(table, "run")
    if step is not None and step != key and _counts(table, step):
        runs: list[tuple[tuple[str, ...], pl.Series]] = [((key,), names)]
        if run is not None and run != key and frame[run].null_count() == 0:
            runs = [((run,), frame[run]), *runs, ((key, run), names + "/" + frame[run])]
        for used, one in runs:
            at = _steps(table, step)
            yield NamedRows(
                models=one + "@" + at, columns=(*used, step), known={"run": one, "step": at}
            )
    for tag in _tags(table, (key,)):
        yield NamedRows(models=_tagged(table, names, tag), columns=(key, tag))


def _run(table: TextTable, columns: Columns, one: NamedRows) -> NamedRows:
    """The same, with run and step where columns say them of models that have names of their own."""
    step, run = columns.find(table, "step"), columns.find(table, "run")
    if "run" in one.known or step is None or run is None or run in one.columns:
        return one
    if table.frame[run].null_count() or not _counts(table, step):
        return one
    known = {"run": table.frame[run], "step": _steps(table, step)}
    return replace(one, columns=(*one.columns, run, step), known=one.known | known)


def _counts(table: TextTable, column: str) -> bool:
    cells = pointed(table, column)
    return not cells.null_count() and bool(cells.str.contains(NUMBER).all())


def _steps(table: TextTable, column: str) -> pl.Series:
    """Steps as text, whole numbers without a point."""
    return reals(table, column).map_elements(_number, return_dtype=pl.String)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _tags(table: TextTable, used: tuple[str, ...]) -> list[str]:
    whole = [c for c in table.frame.columns if c not in used and not table.frame[c].null_count()]
    return [c for tag in TAGS for c in whole if leaf(table, c) == tag]


def _tagged(table: TextTable, names: pl.Series, tag: str) -> pl.Series:
    """NAME/TAG, and NAME@seed-1 where the tag is a number that says nothing alone."""
    cells = table.frame[tag]
    if cells.str.contains(r"^[0-9.]+$").all():
        return names + f"@{leaf(table, tag)}-" + cells
    return names + "/" + cells


def _by_metadata(
    table: TextTable, columns: Columns, key: str, setting: tuple[str, ...]
) -> Iterator[NamedRows]:
    """Names with the hyper-parameters: one of them, then more and more of them."""
    names = keyed(table, key)
    frame, none = table.frame, (key, *setting)
    some = [
        c
        for c in frame.columns
        if c not in none and not frame[c].null_count() and frame[c].n_unique() > 1
    ]
    some = [c for c in some if is_metadata(table, c) or c in columns.info or c in table.nested]
    some = [c for c in some if c not in columns.settings and not _looks_measured(table, c)]
    one: pl.Series = names
    used: tuple[str, ...] = (key,)
    for number, column in enumerate(some):
        yield NamedRows(
            models=names + f"@{leaf(table, column)}-" + frame[column], columns=(key, column)
        )
        mark = "@" if number == 0 else ","
        one, used = one + f"{mark}{leaf(table, column)}-" + frame[column], (*used, column)
    if len(used) > 2:
        yield NamedRows(models=one, columns=used)


def _looks_measured(table: TextTable, column: str) -> bool:
    """Whether a column from inside an object may be an accuracy rather than a parameter."""
    return not is_metadata(table, column) and bool(
        table.frame[column].str.contains(r"^[0-9]*\.[0-9]+$").all()
    )


def keyed(table: TextTable, key: str) -> pl.Series:
    """The models of the rows; image size and crop belong to the name where both are given."""
    names = required(table, key, "model name")
    columns = image_columns(table)
    if columns is None:
        return names
    size, crop = columns
    required(table, size, "image size")
    required(table, crop, "crop")
    crops = reals(table, crop).map_elements(lambda v: f"{v:g}", return_dtype=pl.String)
    return names + "@" + wholes(table, size, 1).cast(pl.String) + "-" + crops


def image_columns(table: TextTable) -> tuple[str, str] | None:
    """The columns of image size and crop, if both are there."""
    size, crop = table.find("img_size"), table.find("crop_pct", "cropt_pct")
    return None if size is None or crop is None else (size, crop)
