"""Fractions and percentages: what is said of files, settings and models, and what gives it away."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from shiftbed.errors import InputError, shown
from shiftbed.importing.merge_settings import file_keys
from shiftbed.importing.parts import DIVIDED, FILE, FileResults, of_file, place

Unit = Literal["fraction", "percent"]
_ONE = 1 / 100


@dataclass(frozen=True, kw_only=True)
class Units:
    """What accuracies of tables are in: as a rule, and for settings, models and files by name."""

    rule: Unit | None = None
    named: Mapping[str, Unit] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The rule, as a note says it."""
        return {"percent": " in percent", "fraction": " in fractions", None: ""}[self.rule]

    def of(self, path: str, models: pl.Series, settings: pl.Series) -> pl.Series:
        """The unit that is said of each row by name, null where none is: of the file, or rather of
        the setting, or rather of the model."""
        whole = next((self.named[key] for key in file_keys(path) if key in self.named), None)
        said = pl.Series([whole], dtype=pl.String).new_from_index(0, len(models))
        for keys in (settings, models):
            for name, unit in self.named.items():
                said = said.set(keys == name, unit)
        return said


def guess_unit(units: Units, path: str, values: Iterable[tuple[str, pl.Series]]) -> Units:
    """The units, with a rule for a file of which none is said: percent if half of the values in
    some setting are above 1, fractions if none is, and no rule for what is neither.

    ``values`` are the numbers of each setting; those whose unit is said by name do not count.

    >>> guess_unit(Units(), "a.csv", [("val", pl.Series([76.1, 69.8]))]).rule
    'percent'
    """
    if units.rule is not None or any(key in units.named for key in file_keys(path)):
        return units
    found = [one.drop_nulls() for name, one in values if name not in units.named]
    above = [int((one > 1.0).sum()) for one in found]
    if any(2 * count >= len(one) > 0 for count, one in zip(above, found, strict=True)):
        return replace(units, rule="percent")
    return units if any(above) else replace(units, rule="fraction")


def check_units(parts: Sequence[FileResults]) -> None:
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
                f"units={{{name!r}: 'fraction'}} (--unit {name}=fraction), or 'percent', or leave "
                "out what is no accuracy (--ignore, --info)"
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
