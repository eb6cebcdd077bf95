"""Held-out OOD, and what is missing from a study."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.pairs import PairTable, metric_name

Floats = NDArray[np.float64]


def held_out(
    pairs: Sequence[PairTable], groups: Sequence[str] | None = None
) -> tuple[PairTable, ...]:
    """The pairs with each ``ood:`` metric's mean over the task's *other* OOD sets (Section 3).

    The other sets are the targets of the pairs of the same task and the same ID set (or the same
    of ``groups``, one per pair). Where a network lacks one of them the mean is missing; where there
    is none at all, the pair has no held-out metric. Held-out metrics already there are kept.

    >>> one = {"task": "t", "source": "a", "models": ("m",), "metrics": ("ood:error",)}
    >>> pairs = [PairTable(target=t, values=np.array([[v]]), **one)
    ...          for t, v in (("b", 0.1), ("c", 0.2), ("d", 0.4))]
    >>> round(float(held_out(pairs)[0].column("held-out:error")[0]), 3)
    0.3
    """
    family = [p.source for p in pairs] if groups is None else list(groups)
    found = []
    for i, pair in enumerate(pairs):
        others = [
            other
            for j, other in enumerate(pairs)
            if (other.task, family[j]) == (pair.task, family[i]) and other.target != pair.target
        ]
        others = list({other.target: other for other in others}.values())
        added: dict[str, Floats] = {}
        for name in pair.metrics:
            place, _, metric = name.partition(":")
            new = metric_name("held-out", metric)
            known = [other for other in others if name in other.metrics]
            if place == "ood" and new not in pair.metrics and known:
                mean = np.mean([_aligned(other, name, pair.models) for other in known], axis=0)
                if np.isfinite(mean).any():
                    added[new] = mean
        found.append(_with_columns(pair, added))
    return tuple(found)


def _aligned(pair: PairTable, metric: str, models: tuple[str, ...]) -> Floats:
    """A metric of another pair in the order of these models."""
    column = pair.column(metric)
    if pair.models == models:
        return column
    at = {name: i for i, name in enumerate(pair.models)}
    return np.array([column[at[name]] if name in at else np.nan for name in models])


def _with_columns(pair: PairTable, added: Mapping[str, Floats]) -> PairTable:
    if not added:
        return pair
    values = np.column_stack([pair.values, *added.values()])
    return replace(pair, metrics=(*pair.metrics, *added), values=values)


def notes_of(pairs: Sequence[PairTable], *, held_out: bool = True) -> list[str]:
    """What is missing from a study, in sentences: cells, and held-out OOD where there is none."""
    notes = []
    cells = sum(pair.values.size for pair in pairs)
    missing = sum(int(np.isnan(pair.values).sum()) for pair in pairs)
    if missing:
        notes.append(
            f"{missing} of {cells} cells are missing; each number uses the networks it has."
        )
    without = [p for p in pairs if not any(m.startswith("held-out:") for m in p.metrics)]
    if held_out and without:
        tasks = sorted({pair.task for pair in without})
        notes.append(
            f"No held-out OOD for {len(without)} of {len(pairs)} pairs ({', '.join(tasks[:6])}"
            f"{', …' if len(tasks) > 6 else ''}): no other OOD set with that ID set."
        )
    return notes
