"""A testbed as pair tables."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.pairs import PairTable, metric_name
from shiftbed.errors import InputError, unknown
from shiftbed.records import KINDS, NATURAL, PERTURBED, Shift
from shiftbed.results.pairs.added import held_out
from shiftbed.results.pairs.networks import (
    NO_VALUE,
    chosen_errors,
    finished,
    networks_of,
)
from shiftbed.testbed import Testbed

Floats = NDArray[np.float64]


def pairs_from_testbed(
    testbed: Testbed,
    *,
    kinds: Sequence[str] | None = None,
    also: Sequence[str] = (),
    checkpoint: str = "last",
) -> tuple[PairTable, ...]:
    """A pair per shift with one ID setting; the metric is the error, 1 − accuracy.

    Corruptions and attacks of the ID set become ``corrupted:error`` and ``id:adversarial`` instead
    of pairs: the testbed's own mean of them where it has one (``avg_corruptions``), else the mean
    over their shifts. The ID set of a class-subset twin is the whole set, for these and for
    held-out OOD. Two variants of one OOD set count as two sets. The task is the
    shift's, or the testbed's name.
    """
    chosen = chosen_shifts(testbed.name, testbed.shifts, kinds)
    groups = [shift.full_source or shift.source[0] for shift in chosen]
    info: dict[str, Sequence[str | float | None]] = {
        {"kind": "model_kind"}.get(name, name): _plain(testbed.models[name])
        for name in testbed.models.columns
        if name not in ("model", "in_fit_set")
    }
    pairs = []
    for shift, group in zip(chosen, groups, strict=True):
        columns = {
            "id:error": 1.0 - testbed.accuracy(shift.source[0]),
            "ood:error": 1.0 - testbed.accuracy(shift.target),
        }
        for kind, name in zip(PERTURBED, ("corrupted:error", "id:adversarial"), strict=True):
            mean = _perturbed(testbed, group, kind)
            if mean is not None and shift.kind not in PERTURBED:
                columns[name] = 1.0 - mean
        if shift.validation in testbed.settings:
            columns["id:validation_error"] = 1.0 - testbed.accuracy(shift.validation)
        for setting in also:
            columns[metric_name("id", setting)] = testbed.accuracy(setting)
        task = shift.task or testbed.name
        pairs.append(make_pair(task, shift, testbed.models, columns, info, checkpoint))
    return held_out(pairs, groups)


def _plain(column: pl.Series) -> list[str | float | None]:
    if column.dtype.is_numeric():
        return list(column.cast(pl.Float64))
    return list(column.cast(pl.String))


def chosen_shifts(name: str, shifts: Iterable[Shift], kinds: Sequence[str] | None) -> list[Shift]:
    """Shifts with one source, of these kinds; by default all but corruptions and attacks."""
    for kind in kinds or ():
        if kind not in KINDS:
            raise unknown("kind of shift", kind, KINDS)
    simple = [shift for shift in shifts if len(shift.source) == 1]
    wanted = kinds or NATURAL
    found = [shift for shift in simple if shift.kind in wanted]
    if not found and kinds is None:
        found = simple
    if not found:
        raise InputError(
            f"{name} has no shift with one ID setting" + (" of that kind" * bool(kinds))
        )
    return found


def _perturbed(testbed: Testbed, group: str, kind: str) -> Floats | None:
    """Mean accuracy under an ID set's corruptions or attacks, None if there are none."""
    targets = [s.target for s in testbed.shifts if s.kind == kind and s.source == (group,)]
    if not targets:
        return None
    means = {t: len({*testbed.derived.get(t, ())} & {*targets}) for t in targets}
    best = max(targets, key=lambda t: means[t])
    if means[best] > 1:
        return testbed.accuracy(best)
    return np.asarray(np.mean([testbed.accuracy(t) for t in targets], axis=0))


def make_pair(
    task: str,
    shift: Shift,
    models: pl.DataFrame,
    columns: Mapping[str, Floats],
    info: Mapping[str, Sequence[str | float | None]],
    checkpoint: str = "last",
) -> PairTable:
    """A pair of its networks (``networks_of``) that have an ID and an OOD value."""
    names = models["model"].to_list()
    errors = chosen_errors(checkpoint, columns, f"{task}: {shift.source[0]}", models.columns)
    networks, left_out = networks_of(models, shift, finished(models, errors))
    there = networks & np.isfinite(columns["id:error"]) & np.isfinite(columns["ood:error"])
    if errors is not None:
        there &= np.isfinite(errors)
    lacking = tuple(names[i] for i in np.flatnonzero(networks & ~there))
    rows = np.flatnonzero(there)
    kept = {name: column[rows] for name, column in columns.items()}
    kept = {name: column for name, column in kept.items() if np.isfinite(column).any()}
    if not len(rows):
        trained = "" if shift.trained_on is None else f" trained on {shift.trained_on}"
        raise InputError(
            f"{task}: no network{trained} has both {shift.source[0]!r} and {shift.target!r}"
        )
    return PairTable(
        task=task,
        source=shift.source[0],
        target=shift.target,
        models=tuple(names[i] for i in rows),
        metrics=tuple(kept),
        values=np.column_stack(list(kept.values())),
        kind=shift.kind,
        chosen=True,
        info={name: [of[int(i)] for i in rows] for name, of in info.items()},
        left_out={**left_out, **({NO_VALUE: lacking} if lacking else {})},
        checkpoint=checkpoint,
    )
