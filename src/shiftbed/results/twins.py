"""Class twins of a stored setting, with accuracies or the bounds that undecided images leave."""

from collections.abc import Iterable
from typing import Any

import polars as pl

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.labels import LabelPolicy
from shiftbed.store import PredictionStore, Twin, make_twin

_SCHEMA = {
    "model": pl.String,
    "setting": pl.String,
    "value": pl.Float64,
    "at_least": pl.Float64,
    "at_most": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "undecided": pl.Int64,
    "unreadable": pl.Int64,
    "computed_from": pl.String,
    "label_policy": pl.String,
    "note": pl.String,
}


def twin_table(
    store: PredictionStore,
    setting: str,
    policy: LabelPolicy,
    *,
    name: str | None = None,
    models: Iterable[str] | None = None,
    level: float = 0.95,
) -> pl.DataFrame:
    """Write the twins of a setting into the store; a row per model.

    Where images are undecided there is no ``value``: the accuracy lies between ``at_least`` (all
    of them wrong) and ``at_most`` (all of them right), and the Clopper–Pearson interval reaches
    from the lower end of the first to the upper end of the second.
    """
    check_level(level)
    made = make_twin(store, setting, policy, name=name, models=models)
    return pl.DataFrame([_row(one, level) for one in made], schema=_SCHEMA, orient="row")


def _row(twin: Twin, level: float) -> dict[str, Any]:
    row: dict[str, Any] = {name: vars(twin).get(name) for name in _SCHEMA}
    if not twin.written or not twin.n:
        return row | {"note": twin.note or "no example could be read"}
    least, most = twin.right / twin.n, (twin.right + twin.undecided) / twin.n
    low, high = clopper_pearson([least, most], twin.n, level)
    ends = {"at_least": least, "at_most": most, "low": float(low[0]), "high": float(high[1])}
    return row | ends | {"value": None if twin.undecided else least}
