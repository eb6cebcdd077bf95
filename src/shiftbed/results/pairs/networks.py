"""Which models of a testbed, store or file are networks of a pair.

wenzel2022, Section 3: a network is a finished run with its training data, and a pair (ID, OOD) is
about the networks trained on that ID set. A run's other checkpoints are no networks of their own,
and a network trained on another domain says nothing about this pair's ID error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.pairs import PairTable
from shiftbed.display import Table, counted
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.charts import Charted
from shiftbed.testbed import choose

if TYPE_CHECKING:
    from shiftbed.figures.charts import Chart

ChartOf = TypeVar("ChartOf", bound="Chart")
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
CHECKPOINTS = "other checkpoints of the same runs"
OTHER_DATA = "networks trained on other data"
NO_VALUE = "networks that lack an accuracy"
NOT_ASKED = "networks that --only leaves out"
CHOICES = {"last": None, "id-validation": "id:validation_error", "id-test": "id:error"}
"""Which checkpoint of a run is the network: its last, or the one with the lowest such error."""
_NAMED = 20
"""So many of the models left out are named in JSON, by pair and reason."""


def finished(models: pl.DataFrame, errors: Floats | None = None) -> Mask:
    """(models,): models that are the end of their run, or of no run.

    Of the models with a ``run`` it is the one whose ``final`` is true, or where that is not
    recorded the one with the largest ``step``; with ``errors`` the one with the lowest (of equal
    ones the earliest), where a checkpoint has one.

    >>> models = pl.DataFrame({"model": ["a@1", "a@2", "b"], "run": ["a", "a", None],
    ...                        "step": [1, 2, None]})
    >>> finished(models).tolist(), finished(models, np.array([0.1, 0.2, 0.3])).tolist()
    ([False, True, True], [True, False, True])
    """
    mask = np.ones(len(models), dtype=bool)
    if "run" not in models.columns:
        return mask
    columns = {name: _column(models, name) for name in ("run", "final", "step")}
    members: dict[str, list[int]] = {}
    for row, run in enumerate(columns["run"]):
        if run is not None and run != "":
            members.setdefault(str(run), []).append(row)
    steps = [np.nan if one is None else float(one) for one in columns["step"]]
    for rows in members.values():
        known = [] if errors is None else [row for row in rows if np.isfinite(errors[row])]
        if known and errors is not None:
            ends = [min(known, key=lambda row: (errors[row], steps[row]))]
        else:
            ends = [row for row in rows if str(columns["final"][row]).lower() in _TRUE]
            if not ends and np.isfinite([steps[row] for row in rows]).all():
                ends = [max(rows, key=steps.__getitem__)]
        if ends:
            mask[rows] = False
            mask[ends] = True
    return mask


_TRUE = ("true", "1", "1.0")


def _column(models: pl.DataFrame, name: str) -> list[Any]:
    return models[name].to_list() if name in models.columns else [None] * len(models)


def networks_of(
    models: pl.DataFrame, shift: Shift | None, ends: Mask | None = None
) -> tuple[Mask, Mapping[str, tuple[str, ...]]]:
    """(models,): the networks of a shift's pair; and the names of the others, by reason.

    ``ends`` are the models that are networks at all (default: ``finished``). Where the shift's line
    goes through models of some training data (``Shift.trained_on``), the others are left out.

    >>> models = pl.DataFrame({"model": ["a@1", "a@2", "b@2"], "run": ["a", "a", "b"],
    ...                        "step": [1, 2, 2], "training_data": ["photo", "photo", "sketch"]})
    >>> shift = Shift(name="s", kind="natural-dataset", source=("photo",), target="sketch",
    ...               fit_on="training_data=photo")
    >>> mask, left_out = networks_of(models, shift)
    >>> mask.tolist(), sorted(left_out.values())
    ([False, True, False], [('a@1',), ('b@2',)])
    """
    ends = finished(models) if ends is None else ends
    trained = np.ones(len(models), dtype=bool)
    if shift is not None and shift.trained_on is not None:
        trained = choose(models, shift.fit_on)
    return _sorted_out(models["model"].to_list(), ends, trained)


def _sorted_out(
    names: Sequence[str], ends: Mask, trained: Mask
) -> tuple[Mask, dict[str, tuple[str, ...]]]:
    masks = {CHECKPOINTS: ~ends, OTHER_DATA: ends & ~trained}
    left_out = {
        why: tuple(names[i] for i in np.flatnonzero(mask).tolist()) for why, mask in masks.items()
    }
    return ends & trained, {why: some for why, some in left_out.items() if some}


def chosen_errors(
    checkpoint: str, columns: Mapping[str, Floats], where: str, models: Iterable[str]
) -> Floats | None:
    """(models,): the errors that choose a run's checkpoint, None for the last one."""
    if checkpoint not in CHOICES:
        raise unknown("checkpoint", checkpoint, CHOICES)
    metric = CHOICES[checkpoint]
    if metric is None:
        return None
    if "run" not in models:
        raise InputError(f"--checkpoint {checkpoint}: no model of {where} has a run to choose from")
    if metric not in columns:
        raise InputError(f"--checkpoint {checkpoint}: {where} has no {metric}")
    return columns[metric]


def networks_in(pairs: Sequence[PairTable], checkpoint: str = "last") -> tuple[PairTable, ...]:
    """The pairs of a file with only their networks, by the columns of recipes.

    ``run``, ``step`` and ``final`` say what a network is. ``training_data`` is compared with the ID
    set where it names ID sets at all: ``pacs/photo`` is the data of the ID sets pacs/photo,
    pacs/photo/held-out and, in the task pacs, photo. Pairs of a testbed or a store have been asked
    by their shifts already (``chosen``).
    """
    named = any(
        _is_data(value, pair) for pair in pairs for value in pair.info.get("training_data", ())
    )
    found = []
    for pair in pairs:
        info = {name: pair.info[name] for name in ("run", "step", "final") if name in pair.info}
        columns = {name: pair.column(name) for name in pair.metrics}
        errors = chosen_errors(checkpoint, columns, pair.name, info)
        models = pl.DataFrame({"model": pair.models, **info}, strict=False)
        trained = np.ones(len(models), dtype=bool)
        if named and not pair.chosen and "training_data" in pair.info:
            trained = np.array([_is_data(v, pair) for v in pair.info["training_data"]], dtype=bool)
        mask, left_out = _sorted_out(pair.models, finished(models, errors), trained)
        if errors is not None:
            lacking = mask & ~np.isfinite(errors)
            names = tuple(m for m, lacks in zip(pair.models, lacking, strict=True) if lacks)
            left_out |= {NO_VALUE: names} if names else {}
            mask &= ~lacking
        if not mask.any():
            raise InputError(f"{pair.name}: no network is trained on {pair.source!r}")
        kept = keep(pair, mask, left_out)
        found.append(kept if checkpoint == "last" else replace(kept, checkpoint=checkpoint))
    return tuple(found)


def _is_data(value: Any, pair: PairTable) -> bool:
    """Whether a value of ``training_data`` names the pair's ID set."""
    name = str(value)
    own = (pair.source, f"{pair.task}/{pair.source}")
    return value is not None and (name in own or pair.source.startswith(f"{name}/"))


def keep(pair: PairTable, mask: Mask, left_out: Mapping[str, tuple[str, ...]]) -> PairTable:
    """The pair with some of its networks, and with who was left out added."""
    if mask.all():
        return pair
    rows = np.flatnonzero(mask)
    return replace(
        pair,
        models=tuple(pair.models[i] for i in rows),
        values=pair.values[rows],
        info={name: [of[int(i)] for i in rows] for name, of in pair.info.items()},
        left_out={why: (*pair.left_out.get(why, ()), *left_out.get(why, ()))
                  for why in {**pair.left_out, **left_out}},
    )  # fmt: skip


# --- how many there are --------------------------------------------------------------------------


def said(pairs: Sequence[PairTable]) -> list[str]:
    """How many networks pairs have, and which were left out, in sentences."""
    counts = [len(pair.models) for pair in pairs]
    least, most = (min(counts), max(counts)) if counts else (0, 0)
    have = counted(least, "network") if least == most else f"{least} to {most} networks"
    notes = [f"{have} in each of {counted(len(pairs), 'pair')}."]
    notes += left_out_said([pair.left_out for pair in pairs])
    return [*notes, *chosen_said(pair.checkpoint for pair in pairs)]


def chosen_said(checkpoints: Iterable[str]) -> list[str]:
    """Which checkpoint of a run is its network, where it is not the last."""
    notes = []
    for name in sorted(set(checkpoints) - {"last"}):
        flatters = ", which flatters the ID error" if name == "id-test" else ""
        what = "validation" if name == "id-validation" else "test"
        notes.append(f"Of a run the checkpoint with the lowest ID {what} error{flatters}.")
    return notes


def left_out_said(left_out: Sequence[Mapping[str, tuple[str, ...]]]) -> list[str]:
    """The sentence about models that pairs leave out, if any does."""
    largest: dict[str, int] = {}
    for one in left_out:
        for why, names in one.items():
            largest[why] = max(largest.get(why, 0), len(names))
    if not largest:
        return []
    text = " and ".join(f"{n} {why}" for why, n in largest.items())
    return [f"A network is a finished run on the pair's ID data; left out of a pair: up to {text}."]


def listed(left_out: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """As JSON: how many by reason, and the first of them by name."""
    return {
        why: {"n": len(names), "models": list(names[:_NAMED])} for why, names in left_out.items()
    }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairStudy(Charted):
    """A result over the networks of (ID, OOD) pairs, which says how many there are."""

    pairs: tuple[PairTable, ...]

    def noted(self, chart: ChartOf) -> ChartOf:
        """A chart that says how many networks it is of."""
        return replace(chart, notes=(*chart.notes, *said(self.pairs)))

    def to_dict(self) -> dict[str, Any]:
        """With how networks were chosen, and a row per pair with who was left out."""
        rows = [
            {
                "task": pair.task,
                "id": pair.source,
                "ood": pair.target,
                "networks": len(pair.models),
                "left_out": listed(pair.left_out),
            }
            for pair in self.pairs
        ]
        chosen = list(dict.fromkeys(pair.checkpoint for pair in self.pairs))
        own = {"checkpoint": chosen[0] if len(chosen) == 1 else chosen, "networks": rows}
        return super().to_dict() | own | {"notes": list(self.notes)}

    def networks_table(self) -> Table:
        """A row per ID set: OOD sets, networks, and how many were left out and why."""
        sets: dict[tuple[str, str], list[PairTable]] = {}
        for pair in self.pairs:
            sets.setdefault((pair.task, pair.source), []).append(pair)
        rows = []
        for (task, source), some in sets.items():
            counts = sorted({len(pair.models) for pair in some})
            networks = str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
            reasons = dict.fromkeys(why for pair in some for why in pair.left_out)
            left = [f"{max(len(p.left_out.get(why, ())) for p in some)} {why}" for why in reasons]
            rows.append((task, source, str(len(some)), networks, "; ".join(left)))
        return Table(
            title="Networks of each ID set",
            columns=("task", "ID set", "OOD sets", "networks", "left out"),
            rows=tuple(rows),
            left=2,
        )
