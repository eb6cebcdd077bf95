"""A cell as it is scored: what one model answered in one setting, and what was right."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.store.store import PredictionStore, StoredTestSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What one model answered in one setting, for the examples that count."""

    model: str
    setting: str
    frame: pl.DataFrame
    right: NDArray[np.bool_]
    labels: NDArray[np.int64]
    groups: NDArray[np.str_] | None
    unreadable: int
    unlabelled: int
    label_policy: str


def read_answers(
    store: PredictionStore, model: str, test_set: StoredTestSet, columns: list[str]
) -> Answers:
    """Read some columns of a cell; unreadable and unlabelled examples are left out and counted."""
    frame = store.read_all(model, test_set, sorted({"class_1", *columns}))
    best = frame["class_1"]
    readable = np.ones(len(best), dtype=bool)
    if best.null_count():
        readable, best = best.is_not_null().to_numpy(), best.fill_null(0)
    right, labelled = test_set.judge(best.to_numpy())
    keep = readable & labelled
    groups = None if test_set.groups is None else np.asarray(test_set.groups)[keep]
    return Answers(
        model=model,
        setting=test_set.setting,
        frame=frame.filter(pl.Series(keep)) if not keep.all() else frame,
        right=right[keep],
        labels=test_set.labels[keep],
        groups=groups,
        unreadable=int((~readable).sum()),
        unlabelled=int((readable & ~labelled).sum()),
        label_policy=test_set.label_policy,
    )
