"""Which models of a testbed or store are networks of a pair.

wenzel2022, Section 3: a network is a finished run with its training data, and a pair (ID, OOD) is
about the networks trained on that ID set. A run's earlier checkpoints are no networks of their own,
and a network trained on another domain says nothing about this pair's ID error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.records import Shift
from shiftbed.testbed import choose

CHECKPOINTS = "earlier checkpoints of the same runs"
OTHER_DATA = "networks trained on other data"


def networks_of(models: pl.DataFrame, shift: Shift) -> tuple[NDArray[np.bool_], Mapping[str, int]]:
    """(models,): the networks of a shift's pair; and how many others were left out, by reason.

    Of the models with a ``run``, the one whose ``final`` is true is the network, or where that is
    not recorded the one with the largest ``step``. Where the shift's line goes through models
    of some training data (``Shift.trained_on``), the others are left out.

    >>> models = pl.DataFrame({"model": ["a@1", "a@2", "b@2"], "run": ["a", "a", "b"],
    ...                        "step": [1, 2, 2], "training_data": ["photo", "photo", "sketch"]})
    >>> shift = Shift(name="s", kind="natural-dataset", source=("photo",), target="sketch",
    ...               fit_on="training_data=photo")
    >>> mask, left_out = networks_of(models, shift)
    >>> mask.tolist(), dict(left_out)
    ([False, True, False], {'earlier checkpoints of the same runs': 1, 'networks trained on other \
data': 1})
    """
    last = _last(models)
    trained = np.ones(len(models), dtype=bool)
    if shift.trained_on is not None:
        trained = choose(models, shift.fit_on)
    left_out = {CHECKPOINTS: int((~last).sum()), OTHER_DATA: int((last & ~trained).sum())}
    return last & trained, {why: n for why, n in left_out.items() if n}


def _last(models: pl.DataFrame) -> NDArray[np.bool_]:
    """Models that are the end of their run, or of no run."""
    mask = np.ones(len(models), dtype=bool)
    if "run" not in models.columns:
        return mask
    runs = models["run"].to_list()
    final = models["final"].to_list() if "final" in models.columns else [None] * len(runs)
    step: list[Any] = models["step"].to_list() if "step" in models.columns else [None] * len(runs)
    members: dict[str, list[int]] = {}
    for row, run in enumerate(runs):
        if run is not None:
            members.setdefault(str(run), []).append(row)
    for rows in members.values():
        ends = [row for row in rows if str(final[row]).lower() in ("true", "1", "1.0")]
        if not ends and all(step[row] is not None for row in rows):
            ends = [max(rows, key=lambda row: float(step[row]))]
        if ends:
            mask[rows] = False
            mask[ends] = True
    return mask


def said(left_out: Sequence[Mapping[str, int]]) -> list[str]:
    """The sentence about networks that pairs leave out, if any does."""
    most: dict[str, int] = {}
    for one in left_out:
        for why, n in one.items():
            most[why] = max(most.get(why, 0), n)
    if not most:
        return []
    text = " and ".join(f"{n} {why}" for why, n in most.items())
    return [f"A network is a finished run on the pair's ID data; left out of a pair: up to {text}."]
