"""The transfer grid trained-on × tested-on as a heat map."""

import numpy as np
import polars as pl

from shiftbed.errors import InputError, unknown
from shiftbed.figures.charts import Heatmap
from shiftbed.figures.severities import FAMILIES
from shiftbed.results.transfer_grid import CLEAN

VALUES = ("accuracy", "gain")
_ORDER = ("none", CLEAN, *(name for family in FAMILIES.values() for name in family))


def transfer_heatmap(grid: pl.DataFrame, value: str = "accuracy") -> Heatmap:
    """The table of ``transfer_grid`` in percent; cells trained and tested on the same are marked.

    ``value``: ``accuracy``, or ``gain`` over models trained without augmentation.
    """
    if value not in VALUES:
        raise unknown("value of the transfer grid", value, VALUES)
    gains = value == "gain"
    shown = grid.filter(pl.col("gain").is_not_null()) if gains else grid
    if not len(shown):
        raise InputError("a gain needs models that were trained without augmentation")
    rows, columns = _ordered(shown["trained_on"]), _ordered(shown["tested_on"])
    values = np.full((len(rows), len(columns)), np.nan)
    for trained, tested, number in shown.select("trained_on", "tested_on", value).iter_rows():
        if number is not None:
            values[rows.index(trained), columns.index(tested)] = 100 * number
    same = np.array([[_trains(row, column) for column in columns] for row in rows])
    reach = float(np.nanmax(np.abs(values), initial=0.0)) if gains else None
    what = "gain over no augmentation (points)" if gains else "accuracy (%)"
    return Heatmap(
        title=f"Trained on × tested on: {'gain' if gains else 'accuracy'}",
        reading="Mean over severities, then over models; marked where a model was trained on what "
        "it is tested on.",
        rows=rows,
        columns=columns,
        values=values,
        row_title="trained on",
        column_title="tested on",
        value_title=what,
        digits=1,
        low=None if reach is None else -reach,
        high=reach,
        diverging=gains,
        marked=same,
        notes=_notes(shown),
    )


def _notes(shown: pl.DataFrame) -> tuple[str, ...]:
    """How many models, severities and images, and what is blank."""
    texts = []
    for name in ("models", "severities", "n"):
        sizes = sorted(set(shown[name].drop_nulls().to_list()))
        texts.append(" to ".join(str(size) for size in dict.fromkeys([sizes[0], sizes[-1]])))
    found = [f"{texts[0]} models a cell, {texts[1]} severities, n = {texts[2]} images."]
    half = (50 * (shown["high"] - shown["low"])).drop_nulls().to_list()
    if half:
        found.append(f"Intervals reach at most ±{max(half):.1f} points; the table has each.")
    blank = int(shown["accuracy"].null_count())
    return (*found, f"{blank} cells were not evaluated.") if blank else tuple(found)


def _trains(augmentation: str, corruption: str) -> bool:
    """Whether an augmentation such as ``crop-flip+fog/snow:3@0.5`` has a corruption in it."""
    steps = (step.partition("@")[0].partition(":")[0] for step in augmentation.split("+"))
    return any(corruption in step.replace("-", "_").split("/") for step in steps)


def _ordered(names: pl.Series) -> tuple[str, ...]:
    """None and clean first, corruptions by family, others after them by name."""
    known = {name: at for at, name in enumerate(_ORDER)}

    def place(name: str) -> tuple[int, str]:
        return known.get(name.partition(":")[0], len(known)), name

    return tuple(sorted(set(names.to_list()), key=place))
