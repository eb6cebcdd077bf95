"""Models in groups: what is drawn alike, and what gets a line of its own."""

from collections import Counter

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.figures.palette import KINDS, MOST, OTHER, OWN

Bools = NDArray[np.bool_]
FEWEST = 3
"""A line needs this many models."""
_NOT_GIVEN = "not given"


def grouped(
    models: pl.DataFrame, column: str, shown: Bools
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The group of each shown model, and the groups in the order of the legend.

    Known kinds come first, then larger groups before smaller ones; those beyond the colours there
    are become ``other``. Models a user added are a group of their own whatever the column.
    """
    values = _values(models, column)
    own = [kind == OWN for kind in models["kind"].to_list()]
    mine = [OWN if o else v for v, o, s in zip(values, own, shown, strict=True) if s]
    counts = Counter(group for group in mine if group not in (OWN, OTHER))
    rank = {kind: i for i, kind in enumerate(KINDS)}
    order = sorted(counts, key=lambda g: (rank.get(g, len(rank)), -counts[g], g))
    kept = sorted(order, key=lambda g: -counts[g])[:MOST]
    order = [group for group in order if group in kept]
    final = tuple(group if group in (*order, OWN) else OTHER for group in mine)
    return final, (*order, *(group for group in (OTHER, OWN) if group in final))


def split_by(
    models: pl.DataFrame, column: str | None, fit: Bools
) -> tuple[dict[str, Bools], Bools]:
    """Masks of the models that each line serves, by name, and of those no line serves.

    Without a column one line serves all. With one, each of its values that at least three of the
    models to ``fit`` have gets a line.
    """
    if column is None:
        return {"": np.ones(len(models), dtype=bool)}, np.zeros(len(models), dtype=bool)
    values = np.array(_values(models, column), dtype=object)
    counts = Counter(values[fit].tolist())
    names = sorted(
        (v for v, count in counts.items() if count >= FEWEST and v != _NOT_GIVEN),
        key=lambda v: (-counts[v], v),
    )
    if not names:
        raise InputError(f"no value of {column!r} has the {FEWEST} models to fit that a line needs")
    if len(names) > MOST:
        raise InputError(
            f"{len(names)} values of {column!r} would each get a line, of which {MOST} can be told "
            "apart; choose fewer models"
        )
    return {name: values == name for name in names}, ~np.isin(values.astype(str), names)


def _values(models: pl.DataFrame, column: str) -> list[str]:
    if column not in models.columns:
        raise unknown("column of models", column, models.columns)
    return [_text(value) for value in models[column].to_list()]


def _text(value: object) -> str:
    if value is None or value == "":
        return _NOT_GIVEN
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
