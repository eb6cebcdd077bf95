"""``import_results``: files in, a testbed out; ``save_testbed`` writes it to a file."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import check_level
from shiftbed.display import Result, Table, counted
from shiftbed.errors import InputError, unknown
from shiftbed.importing.assemble import assemble
from shiftbed.importing.cells import MOST, unevaluated
from shiftbed.importing.columns import Columns
from shiftbed.importing.layouts import read_long, read_models, read_wide
from shiftbed.importing.merge_settings import file_keys, name_settings, unite
from shiftbed.importing.parts import FileResults, of_predictions
from shiftbed.importing.predictions import Predictions, parse_predictions
from shiftbed.importing.timm_openclip import detect, read_open_clip, read_timm, timm_setting
from shiftbed.importing.units import Unit, Units, check_units
from shiftbed.places import shown_place
from shiftbed.reading.tables import TextTable, is_archive, read_bytes, read_table, table_of
from shiftbed.records import Shift
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, open_testbed, write_testbed
from shiftbed.testbed.naming import meeting_points, recognised
from shiftbed.testbed.select import Choice

LAYOUTS = ("wide", "long", "timm", "open_clip", "predictions")


def import_results(
    results: "str | Path | pl.DataFrame | Sequence[str | Path | pl.DataFrame]",
    *,
    name: str | None = None,
    unit: str | None = None,
    units: Mapping[str, str] | None = None,
    layout: str | None = None,
    columns: "Mapping[str, str | Sequence[str]] | None" = None,
    models: "str | Path | pl.DataFrame | Sequence[str | Path | pl.DataFrame]" = (),
    like: "str | Path | Testbed | PredictionStore | None" = None,
    level: float = 0.95,
    sizes: Mapping[str, int] | None = None,
    setting_names: Mapping[str, str] | None = None,
    shifts: Sequence[Shift | str] = (),
    fit: Choice = None,
    info: Collection[str] = (),
    ignore: Collection[str] = (),
    citation: str = "",
    licence: str = "",
    source: str = "",
) -> Testbed:
    """A testbed from files or frames of results, merged by model and setting.

    Frames have the columns that files have; messages call them ``frame 1``, ``frame 2``, … What a
    column is says its name (``ROLES``), ``columns`` (by role) where it does not: columns in
    ``info`` describe models although they are numbers, columns in ``ignore`` are not read. How each
    file was understood is in the testbed's ``notes``.

    ``unit`` says that accuracies are percentages or fractions, by default their numbers do, file by
    file; ``units`` says it of a setting, a model or a file by name. Fractions among percentages are
    refused: nobody would notice them. ``layout`` is one of ``LAYOUTS``, by default found for each
    file by itself. ``models`` are tables that only describe models. ``like`` is a testbed whose
    names of test sets, shifts, fit set and sizes hold here where nothing else is said. ``sizes``
    gives test-set sizes by setting; where n is missing, it may follow from printed intervals of
    that ``level``, or be known by the name of the test set. ``setting_names`` gives other names to
    settings, or to files (by path, name or stem) whose name stands for one. ``fit`` chooses the
    baseline models (see ``choose``): by default those that a column in_fit_set names, all if no
    file has one.

    >>> frame = pl.DataFrame({"model": ["a", "b"], "val": [76.1, 69.8], "v2": [63.2, 57.3]})
    >>> import_results(frame).accuracy("v2")
    array([0.632, 0.573])
    >>> import_results(frame).notes
    ('frame 1: 2 settings in percent: val, v2',)
    """
    listed: list[str | Path | pl.DataFrame]
    listed = [results] if isinstance(results, str | Path | pl.DataFrame) else list(results)
    if not listed:
        raise InputError("no file to import")
    described = [models] if isinstance(models, str | Path | pl.DataFrame) else list(models)
    sizes, setting_names = dict(sizes or {}), dict(setting_names or {})
    measured = _check(unit, units or {}, layout, sizes, setting_names)
    found = [
        table_of(f"frame {number}", one)
        if isinstance(one, pl.DataFrame)
        else _read(str(one), layout)
        for number, one in enumerate(listed, 1)
    ]
    tables = [one for one in found if isinstance(one, TextTable)]
    remembered = [Shift.of(one) for one in shifts]
    mentioned = {*setting_names, *sizes, *(units or {})} | {
        one for shift in remembered for one in (*shift.source, shift.target)
    }
    chosen = Columns.of(columns or {}, info, mentioned)
    wanted = [*info, *ignore, *(c for some in chosen.said.values() for c in some)]
    _check_used("column", wanted, {c for t in tables for c in (*t.frame.columns, *t.lists)})
    predictions = [one for group in found if not isinstance(group, TextTable) for one in group]
    named, keys = name_settings(predictions, setting_names)
    united = iter(unite(named))
    parts: list[FileResults] = []
    for one in found:
        if isinstance(one, TextTable):
            part, more = _part(one.drop(ignore), layout, measured, chosen, setting_names)
            parts.append(part)
            keys |= more
        else:
            parts += [of_predictions(next(united)) for _ in one]
    _check_used("setting or file", setting_names, keys)
    other = None if like is None else open_testbed(like)
    if other is not None:
        parts = [_called_as_in(other, part) for part in parts]
    own = {one for part in parts for c in ("model", "setting") for one in part.cells[c].unique()}
    files = {key for one in tables for key in file_keys(one.path)}
    _check_used("setting, model or file", units or {}, own | files)
    check_units(parts)
    return assemble(
        parts,
        about=[_about(n, one, chosen) for n, one in enumerate(described, 1)],
        like=other,
        level=check_level(level),
        name=name or _default_name(listed),
        sizes=sizes,
        shifts=remembered,
        fit=fit,
        citation=citation,
        licence=licence,
        source=source,
    )


def _called_as_in(like: Testbed, part: FileResults) -> FileResults:
    """The file's settings under the names that another testbed has for the same test sets."""
    names, there = dict(part.names), meeting_points(like)
    sizes = part.cells.group_by("setting", maintain_order=True).agg(pl.col("n").mode().max())
    known = recognised({setting: int(n or 0) for setting, n in sizes.iter_rows()})
    for setting in sizes["setting"]:
        meant = known[setting].name if setting in known else setting
        found = there.get((meant, part.metrics.get(setting, "accuracy")))
        if setting not in names and found is not None and found not in names.values():
            names[setting] = found
    return replace(part, names=names)


def _about(number: int, given: "str | Path | pl.DataFrame", columns: Columns) -> FileResults:
    """A file of metadata: every column but the model's describes the model."""
    if isinstance(given, pl.DataFrame):
        table = table_of(f"frame {number} of models", given)
    else:
        table = read_table(str(given), read_bytes(given))
    return read_models(table, columns)


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
                f"{self.file}: {counted(facts['models'], 'model')} "
                f"({facts['fit_set']} in the fit set), {counted(facts['settings'], 'setting')}"
                + (f", per-image results in {per_image}" if per_image else "")
                + f", {counted(len(facts['shifts']), 'shift')}.",
                *self.testbed.notes,
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
            "notes": list(bed.notes),
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
    return SavedTestbed(
        frame=frame, testbed=testbed, file=shown_place(path), citation=testbed.citation
    )


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
    columns: Columns,
    names: Mapping[str, str],
) -> tuple[FileResults, set[str]]:
    """What a table gives, and the keys by which ``names`` can name its settings."""
    table, missing = unevaluated(table)
    layout = layout or detect(table, columns)
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
        part = read_long(table, units, columns)
    else:
        part = read_wide(table, units, columns)
    settings = part.cells["setting"].unique().to_list()
    if not settings:
        raise InputError(f"{table.path}: no row has a value")
    stem = Path(table.path).stem
    if settings == [stem] and stem not in table.frame.columns:
        keys.update(file_keys(table.path))
        own |= dict([(stem, names[key]) for key in file_keys(table.path) if key in names][:1])
    own = {s: names[s] for s in settings if s in names} | own
    notes = part.notes
    if missing:
        notes += (f"{table.path}: {counted(missing, 'cell')} with nan, n/a or the like left empty",)
    return replace(part, names=own, notes=notes), keys | set(settings)
