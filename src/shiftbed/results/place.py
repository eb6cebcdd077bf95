"""Where a model stands: its accuracies against a testbed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from shiftbed.analysis.intervals import benjamini_hochberg
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.testbed.record import Testbed


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An accuracy in a setting, with its number of images and (perhaps) the results per image."""

    accuracy: float
    n: int = 0
    right: ArrayLike | None = None


def shifts_of(testbed: Testbed, ids: Sequence[str], ood: Sequence[str]) -> list[Shift]:
    """The shifts to judge a model on that has these settings.

    For each OOD setting: the testbed's shifts whose ID settings are all given; else those whose
    whole ID set is given instead of the class twin; else an ad-hoc shift from all given ID
    settings (a plane if there are several).
    """
    found: list[Shift] = []
    for target in ood:
        candidates = [s for s in testbed.shifts if s.target == target]
        twin = [s for s in candidates if set(s.source) <= set(ids)]
        full = [s.on_full_source() for s in candidates if s.full_source in ids]
        adhoc = Shift(name=target, kind="natural-dataset", source=tuple(ids), target=target)
        found += twin or full or [adhoc]
    return found


def resolve_ood(testbed: Testbed, name: str) -> str:
    """An OOD setting by its own name, or by the name of the shift towards it."""
    if name in testbed.settings:
        return name
    for shift in testbed.shifts:
        if shift.name == name:
            return shift.target
    names = [*testbed.settings, *(shift.name for shift in testbed.shifts)]
    raise unknown(f"setting or shift in {testbed.name}", name, names)


def with_measured(
    testbed: Testbed, name: str, measured: Mapping[str, Measured], parent: str | None = None
) -> Testbed:
    """The testbed with the model added."""
    return testbed.with_model(
        name,
        {setting: one.accuracy for setting, one in measured.items()},
        n={setting: one.n for setting, one in measured.items()},
        right={s: one.right for s, one in measured.items() if one.right is not None},
        parent=parent,
    )


def place(
    testbed: Testbed,
    ids: Mapping[str, Measured],
    ood: Mapping[str, Measured],
    *,
    name: str = "your model",
    parent: str | None = None,
    multi: bool = False,
    **options: Any,
) -> pl.DataFrame:
    """ρ of one model on every shift its accuracies allow.

    ``multi`` controls for all given ID settings at once (a plane) instead of one each.

    >>> from shiftbed import published
    >>> table = place(
    ...     published("imagenet-testbed-2020"),
    ...     {"val": Measured(accuracy=0.7613)},
    ...     {"imagenetv2-matched-frequency-format-val": Measured(accuracy=0.6321)},
    ... )
    >>> table["effective"].round(4).to_list()
    [-0.0077]
    """
    if not ids or not ood:
        raise InputError("placing a model needs at least one ID and one OOD accuracy")
    if multi:
        shifts = [Shift(name=t, kind="natural-dataset", source=tuple(ids), target=t) for t in ood]
    else:
        shifts = shifts_of(testbed, list(ids), list(ood))
    bigger = with_measured(testbed, name, {**ids, **ood}, parent)
    return of_model(bigger, name, shifts, **options)


def of_model(
    testbed: Testbed,
    name: str,
    shifts: Sequence[str | Shift] | None = None,
    *,
    fdr: float = 0.05,
    **options: Any,
) -> pl.DataFrame:
    """ρ of one model of the testbed; the false discovery rate is over its shifts alone."""
    table = testbed.effective_robustness(shifts, **options).filter(pl.col("model") == name)
    q = pl.Series("q_value", benjamini_hochberg(table["p_value"]), nan_to_null=True)
    return table.with_columns(q, (q <= fdr).alias("out_of_line"))


def nearest(
    testbed: Testbed, shift: str | Shift, accuracy: float, *, most: int = 5, **options: Any
) -> pl.DataFrame:
    """The models closest in (first) ID accuracy, with their ρ."""
    table = testbed.effective_robustness(shift, **options)
    gap = np.abs(table["source"].to_numpy() - accuracy)
    return table[np.argsort(gap, kind="stable")[:most]]
