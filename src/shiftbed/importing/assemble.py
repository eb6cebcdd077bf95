"""The cells and the models of all files, put together into one testbed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed import catalogue
from shiftbed.display import counted
from shiftbed.errors import InputError, shown, unknown
from shiftbed.importing.models import (
    check_evaluated,
    fit_set,
    fit_set_of,
    merge_models,
    metadata_note,
)
from shiftbed.importing.parts import LINE, FileResults, listing, of_file, place
from shiftbed.importing.predictions import Predictions
from shiftbed.importing.sizes import RecoveredSize, recover_size
from shiftbed.reading.files import LIMIT
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.testbed import Testbed, published
from shiftbed.testbed.naming import sizes_by_name
from shiftbed.testbed.select import Choice

_LIMIT = 10**8


def assemble(
    parts: Sequence[FileResults],
    *,
    about: Sequence[FileResults] = (),
    like: Testbed | None = None,
    level: float = 0.95,
    name: str,
    sizes: Mapping[str, int],
    shifts: Sequence[Shift],
    fit: Choice,
    citation: str,
    licence: str,
    source: str,
) -> Testbed:
    """One testbed: models and settings in the order of their first appearance.

    ``about`` says more of models and has no values. Sizes, shifts, the fit set and what the
    settings are come from the testbed ``like``, where neither the files nor the caller say it.
    """
    notes = [note for part in parts for note in part.notes]
    sized = []
    for i, part in enumerate(parts):
        frame, more = _sized(part, sizes, like, level)
        sized.append(frame.with_columns(of_file(i)))
        notes += more
    cells = pl.concat(sized)
    tested = cells["model"].unique()
    for part in about:
        notes.append(metadata_note(part, tested))
    about = [replace(p, models=p.models.filter(pl.col("model").is_in(tested))) for p in about]
    models = merge_models([*parts, *about])
    settings = cells["setting"].unique(maintain_order=True).to_list()
    for setting in sizes:
        if setting not in settings:
            raise unknown("setting", setting, settings)
    check_evaluated(parts, models, cells)
    value, n = _arrays(parts, cells, models["model"], settings)
    homes = {part.home for part in parts}
    marked = any("in_fit_set" in part.models.columns for part in (*parts, *about))
    if like is not None:
        if fit is None and not marked:
            models, note = fit_set_of(models, like)
            notes.append(note)
        notes.append(_shared(like, settings))
    testbed = Testbed(
        name=name,
        models=models.with_columns(in_fit_set=fit_set(models, fit)),
        settings=tuple(settings),
        value=value,
        n=n,
        metrics=_metrics(parts, like),
        records={} if like is None else {s: like.records[s] for s in settings if s in like.records},
        results=_results(parts, models["model"]),
        line=published("openclip").line if homes == {"openclip"} else "line",
        citation=citation,
        licence=licence,
        source=source,
    )
    named = sizes_by_name(testbed, testbed.test_sets)
    notes += _by_name(testbed, named)
    shifts = _shifts(testbed, parts, shifts, like)
    return replace(testbed, n=named, shifts=shifts, notes=tuple(notes))


def _by_name(testbed: Testbed, named: NDArray[np.int64]) -> list[str]:
    """Which settings have their numbers of images by their name alone."""
    filled = np.flatnonzero((named != testbed.n).any(axis=0))
    sizes = [f"{testbed.settings[i]} {named[:, i].max():,}" for i in filled]
    return [f"n by the name of the test set: {listing(sizes)}"] if sizes else []


def _shared(like: Testbed, settings: Sequence[str]) -> str:
    same = [one for one in settings if one in like.settings]
    if not same:
        raise InputError(
            f"like (--like): none of the settings is in {like.name}: {listing(settings)}; "
            "setting_names (--setting) gives them its names"
        )
    return f"{len(same)} of {counted(len(settings), 'setting')} as in {like.name}"


# --- cells -----------------------------------------------------------------------------------


def _sized(
    part: FileResults, sizes: Mapping[str, int], like: Testbed | None, level: float
) -> tuple[pl.DataFrame, list[str]]:
    """Cells with sizes: the file's own, which the caller's must not contradict, else the caller's,
    else what the file's intervals give, else those known of the settings; and notes."""
    cells = part.cells.with_columns(pl.col("setting").replace(part.names))
    known: dict[str, int] = {}
    if like is not None:
        known = {s: like.usual_size(s) for s in cells["setting"].unique() if s in like.settings}
    if part.home is not None:
        home = published(part.home)
        known |= {part.renamed(s): home.usual_size(s) for s in home.settings}
    unsized = set(cells.filter(pl.col("n") == 0)["setting"].unique()) - set(sizes)
    found, notes = _recovered(part, unsized, known, level)
    known |= found | dict(sizes)
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
    return cells.with_columns(n=pl.when(pl.col("n") > 0).then("n").otherwise(wanted)), notes


def _recovered(
    part: FileResults, settings: set[str], known: Mapping[str, int], level: float
) -> tuple[dict[str, int], list[str]]:
    """Sizes of settings from the intervals that a file prints, and what they rest on."""
    found: dict[str, int] = {}
    notes = []
    bounds = [one.with_columns(pl.col("setting").replace(part.names)) for one in part.bounds]
    every = [one for frame in bounds for one in frame.partition_by("setting", maintain_order=True)]
    for frame in every:
        setting = str(frame["setting"][0])
        if setting not in settings:
            continue
        usual = known.get(setting) or catalogue.size(setting) or 0
        ends = [frame[c].to_numpy() for c in ("value", "low", "high")]
        size = None
        for unit in sorted({*frame["resolution"], *frame["coarser"]}):
            if size is None or not size.methods:
                size = recover_size(*ends, resolution=unit, level=level, known=usual) or size
        if size is None:
            notes.append(
                f"{part.path}: {setting}: its intervals are no {100 * level:g} % intervals of one "
                "number of images, so n is not taken from them"
            )
            continue
        found[setting] = size.n
        notes.append(f"{part.path}: {setting}: {_how(size, level)}{_against(size, usual)}")
    return found, notes


def _how(size: RecoveredSize, level: float) -> str:
    kinds = " or ".join(size.methods) if size.methods else "about"
    span = "" if size.least == size.most else f", from {size.least:,} to {size.most:,}"
    return f"n = {size.n:,} by its {100 * level:g} % intervals ({kinds}{span})"


def _against(size: RecoveredSize, usual: int) -> str:
    if not usual:
        return ""
    if size.n == usual:
        return ", as the test set of that name has"
    return f", although the test set of that name has {usual:,}"


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


def _metrics(parts: Sequence[FileResults], like: Testbed | None) -> dict[str, str]:
    metrics: dict[str, str] = {}
    seen: dict[str, FileResults] = {}
    for part in parts:
        known = dict(part.metrics)
        if part.home is not None:
            known |= published(part.home).metrics
        for setting in part.cells["setting"].unique(maintain_order=True):
            name = part.renamed(setting)
            usual = "accuracy" if like is None else like.metrics.get(name, "accuracy")
            metric = known.get(setting, usual)
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
        results[one.setting].bits.put(at, one.right)
        results[one.setting].known[at] = True
    return results


def _nothing(one: Predictions, models: int) -> ImageResults:
    """Room for the results of all models on the images of one setting."""
    images = one.right.shape[1]
    if models * images > LIMIT:
        raise InputError(f"{one.path}: {models} models × {images} images are too many")
    known = np.zeros(models, dtype=bool)
    return ImageResults(images=one.images, bits=Bits.nothing(models, images), known=known)


def _shifts(
    testbed: Testbed,
    parts: Sequence[FileResults],
    given: Sequence[Shift],
    like: Testbed | None,
) -> tuple[Shift, ...]:
    """The shifts given, and those that are published for these settings or that ``like`` has."""
    shifts = {}
    for shift in () if like is None else like.shifts:
        column = shift.fit_on.partition("=")[0].removesuffix("!").strip()
        if _has(testbed, shift) and (not column or column in testbed.models.columns):
            shifts[shift.name] = _whole(testbed, shift)
    for home in dict.fromkeys(part.home for part in parts if part.home is not None):
        names: dict[str, str] = {}
        for part in parts:
            names |= part.names if part.home == home else {}
        for shift in published(home).shifts:
            there = _renamed(shift, names)
            if _has(testbed, there):
                shifts[there.name] = _whole(testbed, there)
    for shift in given:
        testbed.shift(shift)
        if shift.full_source is not None:
            testbed.setting_index(shift.full_source)
        shifts[shift.name] = shift
    return tuple(shifts.values())


def _has(testbed: Testbed, shift: Shift) -> bool:
    return {*shift.source, shift.target} <= set(testbed.settings)


def _whole(testbed: Testbed, shift: Shift) -> Shift:
    """A shift with its whole ID set only if that is there."""
    return shift if shift.full_source in testbed.settings else replace(shift, full_source=None)


def _renamed(shift: Shift, names: Mapping[str, str]) -> Shift:
    full = shift.full_source
    return replace(
        shift,
        source=tuple(names.get(s, s) for s in shift.source),
        target=names.get(shift.target, shift.target),
        full_source=None if full is None else names.get(full, full),
    )
