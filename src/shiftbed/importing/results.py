"""``import_results``: files in, a testbed out; ``save_testbed`` writes it to a file."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import polars as pl

from shiftbed.display import Result, Table, counted
from shiftbed.errors import InputError, shown, unknown
from shiftbed.importing.assemble import (
    DIVIDED,
    FILE,
    FileResults,
    assemble,
    of_file,
    of_predictions,
    place,
)
from shiftbed.importing.layouts import MOST, Unit, Units, read_long, read_wide
from shiftbed.importing.merge_settings import file_keys, name_settings, unite
from shiftbed.importing.predictions import Predictions, parse_predictions
from shiftbed.importing.timm_openclip import detect, read_open_clip, read_timm, timm_setting
from shiftbed.reading.tables import TextTable, is_archive, read_bytes, read_table, table_of
from shiftbed.records import Shift
from shiftbed.testbed import Testbed, write_testbed
from shiftbed.testbed.select import Choice

_ONE = 1 / 100
LAYOUTS = ("wide", "long", "timm", "open_clip", "predictions")


def import_results(
    results: "str | Path | pl.DataFrame | Sequence[str | Path | pl.DataFrame]",
    *,
    name: str | None = None,
    unit: str | None = None,
    units: Mapping[str, str] | None = None,
    layout: str | None = None,
    sizes: Mapping[str, int] | None = None,
    setting_names: Mapping[str, str] | None = None,
    shifts: Sequence[Shift] = (),
    fit: Choice = None,
    info: Collection[str] = (),
    ignore: Collection[str] = (),
    citation: str = "",
    licence: str = "",
    source: str = "",
) -> Testbed:
    """A testbed from files or frames of results, merged by model and setting.

    Frames have the columns that files have; messages call them ``frame 1``, ``frame 2``, …
    ``unit`` says that accuracies are percentages; without it they must be fractions. ``units`` says
    it of a setting, a model or a file by name. Fractions among percentages are refused: nobody
    would notice them. ``layout`` is one of ``LAYOUTS``, by default found for each file by itself.
    ``sizes`` gives test-set sizes by setting, ``setting_names`` other names for settings, or for
    the files (by path, name or stem) whose name stands for one. ``fit`` chooses the baseline models
    (see ``choose``): by default those that a column in_fit_set names, all if no file has one.
    Columns in ``info`` describe models although they are numbers; columns in ``ignore`` are not
    read.

    >>> frame = pl.DataFrame({"model": ["a", "b"], "val": [76.1, 69.8], "v2": [63.2, 57.3]})
    >>> import_results(frame, unit="percent").accuracy("v2")
    array([0.632, 0.573])
    """
    listed: list[str | Path | pl.DataFrame]
    listed = [results] if isinstance(results, str | Path | pl.DataFrame) else list(results)
    if not listed:
        raise InputError("no file to import")
    sizes, setting_names = dict(sizes or {}), dict(setting_names or {})
    measured = _check(unit, units or {}, layout, sizes, setting_names)
    found = [
        table_of(f"frame {number}", one)
        if isinstance(one, pl.DataFrame)
        else _read(str(one), layout)
        for number, one in enumerate(listed, 1)
    ]
    tables = [one for one in found if isinstance(one, TextTable)]
    _check_used("column", [*info, *ignore], {c for one in tables for c in one.frame.columns})
    predictions = [one for group in found if not isinstance(group, TextTable) for one in group]
    named, keys = name_settings(predictions, setting_names)
    united = iter(unite(named))
    parts: list[FileResults] = []
    for one in found:
        if isinstance(one, TextTable):
            part, more = _part(one.drop(ignore), layout, measured, info, setting_names)
            parts.append(part)
            keys |= more
        else:
            parts += [of_predictions(next(united)) for _ in one]
    _check_used("setting or file", setting_names, keys)
    own = {one for part in parts for c in ("model", "setting") for one in part.cells[c].unique()}
    files = {key for one in tables for key in file_keys(one.path)}
    _check_used("setting, model or file", units or {}, own | files)
    _check_units(parts)
    return assemble(
        parts,
        name=name or _default_name(listed),
        sizes=sizes,
        shifts=shifts,
        fit=fit,
        citation=citation,
        licence=licence,
        source=source,
    )


def _default_name(given: Sequence[str | Path | pl.DataFrame]) -> str:
    one = given[0] if len(given) == 1 else None
    return "imported" if one is None or isinstance(one, pl.DataFrame) else Path(one).stem


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SavedTestbed(Result):
    """A testbed and the file it was written to; a row per setting."""

    testbed: Testbed
    file: str

    def tables(self) -> Iterator[Table]:
        facts = self.to_dict()
        per_image = len(facts["per_image"])
        yield Table(
            notes=(
                f"{self.file}: {facts['models']} models ({facts['fit_set']} in the fit set), "
                f"{facts['settings']} settings"
                + (f", per-image results in {per_image}" if per_image else "")
                + f", {counted(len(facts['shifts']), 'shift')}.",
            )
        )

    def to_dict(self) -> dict[str, Any]:
        bed = self.testbed
        return {
            "testbed": bed.name,
            "file": self.file,
            "models": len(bed.models),
            "settings": len(bed.settings),
            "shifts": [shift.name for shift in bed.shifts],
            "fit_set": int(bed.models["in_fit_set"].sum()),
            "per_image": sorted(bed.results),
        }


def save_testbed(testbed: Testbed, path: str | Path) -> SavedTestbed:
    """Write a testbed file (.parquet), which every function and command opens as a testbed."""
    if Path(path).suffix != ".parquet":
        raise InputError(f"a testbed file (--output) must end in .parquet, got {Path(path).name!r}")
    write_testbed(testbed, path)
    frame = pl.DataFrame(
        {
            "setting": testbed.settings,
            "models": np.isfinite(testbed.value).sum(axis=0),
            "n": [testbed.usual_size(setting) for setting in testbed.settings],
            "per_image": [setting in testbed.results for setting in testbed.settings],
        },
        schema={"setting": pl.String, "models": pl.Int64, "n": pl.Int64, "per_image": pl.Boolean},
    )
    return SavedTestbed(frame=frame, testbed=testbed, file=str(path), citation=testbed.citation)


def _check(
    unit: str | None,
    units: Mapping[str, str],
    layout: str | None,
    sizes: Mapping[str, Any],
    names: Mapping[str, str],
) -> Units:
    for one in (unit, *units.values()):
        if one is not None and one not in get_args(Unit):
            raise unknown("unit", str(one), get_args(Unit))
    if layout is not None and layout not in LAYOUTS:
        raise unknown("layout", str(layout), LAYOUTS)
    for setting, size in sizes.items():
        if not isinstance(size, int) or not 1 <= size <= MOST:
            raise InputError(
                f"size of setting {setting!r} must be a whole number from 1 to {MOST}, got {size!r}"
            )

    for old, new in names.items():
        if not new.strip():
            raise InputError(f"the new name of {old!r} is empty")
    return Units(rule=cast(Unit | None, unit), named=cast(Mapping[str, Unit], units))


def _check_used(what: str, given: Collection[str], known: set[str]) -> None:
    for one in given:
        if one not in known:
            raise unknown(what, one, sorted(known))


def _check_units(parts: Sequence[FileResults]) -> None:
    """Fractions among what is called percent would become accuracies under 1 %, unnoticed.

    A file, a setting of a file or a model of a file without any value above 1 is refused, and so is
    a cell of at most 1 where all larger ones of its setting are more than ten times as large,
    unless the unit is said of it by name.
    """
    value = pl.col("value")
    frames = [part.cells.with_columns(of_file(i)) for i, part in enumerate(parts)]
    cells = pl.concat(frames).filter(pl.col(DIVIDED) & (value > 0.0))
    if not len(cells):
        return
    largest = cells.row(int(cells["value"].arg_max() or 0), named=True)
    if largest["value"] <= _ONE:
        raise InputError(
            f"{parts[largest[FILE]].path}: no value is above 1, so these look like fractions; "
            "leave out unit='percent' (--unit percent)"
        )
    for key in (FILE, "setting", "model"):
        groups = cells.group_by(*{FILE, key}, maintain_order=True)
        low = groups.agg(value.max(), pl.len()).filter(value <= _ONE)
        if key == "model":
            low = low.filter(pl.col("len") > 1)
        if len(low):
            one = low.row(0, named=True)
            path = parts[one[FILE]].path
            name = Path(path).name if key == FILE else one[key]
            where = path if key == FILE else f"{path}, {key} {shown(name)}"
            raise InputError(
                f"{where}: no value is above 1, so these look like fractions, but "
                f"{_percentage(parts, largest)}; say which they are with "
                f"units={{{name!r}: 'fraction'}} (--unit {name}=fraction), or 'percent'"
            )
    of_setting = cells.group_by("setting", maintain_order=True).agg(
        value.filter(value <= _ONE).max().alias("low"),
        value.filter(value > _ONE).min().alias("high"),
    )
    apart = of_setting.filter(pl.col("high") > 10 * pl.col("low"))
    if len(apart):
        setting, low, high = apart.row(0)
        rows = cells.filter(pl.col("setting") == setting)
        one, other = (rows.filter(value == v).row(0, named=True) for v in (low, high))
        raise InputError(
            f"{place(parts, one)}: {100 * low:g} in setting {shown(setting)} looks like a "
            f"fraction, but {_percentage(parts, other)}; write it in percent, or say "
            f"units={{{setting!r}: 'percent'}} (--unit {setting}=percent) if it is"
        )


def _percentage(parts: Sequence[FileResults], cell: Mapping[str, Any]) -> str:
    return f"{place(parts, cell)} has {100 * cell['value']:g} in setting {shown(cell['setting'])}"


def _read(path: str, layout: str | None) -> TextTable | list[Predictions]:
    data = read_bytes(path)
    archive = is_archive(data) or Path(path).suffix.lower() == ".npz"
    if archive and layout not in (None, "predictions"):
        raise InputError(f"{path}: an .npz file holds predictions, not the layout {layout!r}")
    if archive or layout == "predictions":
        return parse_predictions(path, data)
    return read_table(path, data)


def _part(
    table: TextTable,
    layout: str | None,
    units: Units,
    info: Collection[str],
    names: Mapping[str, str],
) -> tuple[FileResults, set[str]]:
    """What a table gives, and the keys by which ``names`` can name its settings."""
    layout = layout or detect(table)
    native = {"timm": "percent", "open_clip": "fraction"}.get(layout)
    said = [units.named[key] for key in file_keys(table.path) if key in units.named]
    unit = said[0] if said else units.rule
    if native is not None and unit not in (None, native):
        raise InputError(f"{table.path}: {layout} result files hold {native}s, not {unit}s")
    keys: set[str] = set()
    own: dict[str, str] = {}
    if layout == "timm":
        keys.update(file_keys(table.path))
        chosen = next((names[key] for key in file_keys(table.path) if key in names), None)
        setting = timm_setting(table.path, chosen)
        part = read_timm(table, setting)
        own = {} if chosen is None else {setting: chosen}
    elif layout == "open_clip":
        part = read_open_clip(table)
    elif layout == "long":
        part = read_long(table, units, info)
    else:
        part = read_wide(table, units, info)
    settings = part.cells["setting"].unique().to_list()
    if not settings:
        raise InputError(f"{table.path}: no row has a value")
    own = {s: names[s] for s in settings if s in names} | own
    return replace(part, names=own), keys | set(settings)
