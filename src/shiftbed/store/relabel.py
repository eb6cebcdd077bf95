"""What a model answers under another label policy, from the predictions that are kept.

Logits decide every image. Without them the best k classes decide most: under a subset, or a map by
max, the answer is the first of the k that has a target; under a map by mean or sum it is the
target whose probability cannot be overtaken by what the k leave over. Where they do not decide,
the image is undecided, and nothing is guessed.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.labels import LabelPolicy
from shiftbed.labels.steps import ClassMap, Subset
from shiftbed.reading.files import whole_parquet
from shiftbed.store.store import PredictionStore

UNDECIDED = -1
UNREADABLE = -2
_BLOCK = 8192
_SLACK = 1e-6
"""Stored probabilities are rounded to float32; closer ones are not told apart."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Decided:
    """Answers under a policy, for all examples of a cell."""

    predicted: Integers
    """(n,): classes of the policy's label space, ``UNDECIDED`` or ``UNREADABLE``."""
    computed_from: str
    """logits, or the best classes that were kept, such as top-5."""


def decide(frame: pl.DataFrame, policy: LabelPolicy) -> Integers:
    """(n,) answers under a policy from one part's columns: logits, or best classes."""
    if "logits" in frame.columns:
        return from_logits(frame, policy)[0]
    classes = [c for c in frame.columns if c.startswith("class_")]
    if not classes:
        raise InputError("predictions without classes")
    readable = frame["class_1"].is_not_null().to_numpy()
    best = [frame[c].fill_null(0).to_numpy() for c in classes]
    if _keeps_order(policy):
        predicted = _first_with_target(best, policy)
    elif _adds_up(policy) and "prob_1" in frame.columns:
        probabilities = frame.select(f"prob_{j + 1}" for j in range(len(best)))
        predicted = _cannot_be_overtaken(best, probabilities.fill_null(0.0).to_numpy(), policy)
    else:
        lacking = "logits" if not _adds_up(policy) else "logits, or probabilities of best classes"
        raise InputError(f"{policy.describe()}: the store would need {lacking}")
    answers: Integers = np.where(readable, predicted, UNREADABLE)
    return answers


def _keeps_order(policy: LabelPolicy) -> bool:
    """Whether the best class that has a target decides."""
    return all(isinstance(s, Subset) or s.how in ("max", "max-logit") for s in policy.steps)


def _adds_up(policy: LabelPolicy) -> bool:
    """Whether there is one mean or sum, and otherwise subsets."""
    maps = [step for step in policy.steps if isinstance(step, ClassMap)]
    return len(maps) == 1 and maps[0].how in ("mean", "sum")


def _targets(policy: LabelPolicy, largest: int) -> NDArray[np.int32]:
    """For each of the classes 0 … largest its target, −1 if it has none."""
    if not policy.steps:
        return np.arange(largest + 1, dtype=np.int32)
    needs = policy.steps[0].needs
    table = np.full(max(needs, largest + 1), -1, dtype=np.int32)
    table[:needs] = policy.relabel(np.arange(needs))
    return table


def _first_with_target(best: list[NDArray[Any]], policy: LabelPolicy) -> Integers:
    table = _targets(policy, max((int(one.max()) for one in best if one.size), default=0))
    predicted: Integers = table[best[0]].astype(np.int64)
    open_ = np.flatnonzero(predicted < 0)
    for one in best[1:]:
        if not len(open_):
            break
        predicted[open_] = table[one[open_]]
        open_ = open_[predicted[open_] < 0]
    return predicted


def _cannot_be_overtaken(
    best: list[NDArray[Any]], probability: NDArray[Any], policy: LabelPolicy
) -> Integers:
    """The target whose known probability exceeds what any other can have at most.

    A class that was not kept has at most the least kept probability, and all of them together
    what the kept ones leave over.
    """
    table = _targets(policy, max((int(one.max()) for one in best if one.size), default=0))
    width = policy.width or int(table.max()) + 1
    sizes = np.bincount(table[table >= 0], minlength=width)
    mean = any(isinstance(s, ClassMap) and s.how == "mean" for s in policy.steps)
    share = 1.0 / np.maximum(sizes, 1) if mean else np.ones(width)
    predicted = np.full(len(best[0]), UNDECIDED, dtype=np.int64)
    for at in range(0, len(predicted), _BLOCK):
        p = probability[at : at + _BLOCK].astype(np.float64)
        rows = np.arange(len(p))
        known, seen = np.zeros((len(p), width + 1)), np.zeros((len(p), width + 1))
        for j, one in enumerate(best):
            target = table[one[at : at + _BLOCK]]  # −1 is the last column, left out below
            known[rows, target] += p[:, j]
            seen[rows, target] += 1
        known, seen = known[:, :width], seen[:, :width]
        rest = np.maximum(0.0, 1.0 - p.sum(axis=1))[:, None]
        most = known + np.minimum(rest, (sizes - seen) * p[:, -1:])
        known, most = known * share, most * share
        first = known.argmax(axis=1)
        least = known[rows, first]
        most[rows, first] = -1.0
        sure = least > most.max(axis=1) + _SLACK
        predicted[at : at + _BLOCK] = np.where(sure, first, UNDECIDED)
    return predicted


def from_logits(frame: pl.DataFrame, policy: LabelPolicy) -> tuple[Integers, NDArray[np.float32]]:
    """Answers and scores; equal scores are ranked by class, as everywhere in the store."""
    logits = frame["logits"]
    readable = logits.is_not_null().to_numpy()
    scores = np.zeros((len(frame), policy.width or 1), dtype=np.float32)
    if readable.any():
        kept = logits.drop_nulls().cast(pl.Array(pl.Float32, _width(logits))).to_numpy()
        found = policy.apply(kept).astype(np.float32)
        scores = np.zeros((len(frame), found.shape[1]), dtype=np.float32)
        scores[readable] = found
    return np.where(readable, scores.argmax(axis=1), UNREADABLE), scores


def _width(logits: pl.Series) -> int:
    kind = logits.dtype
    if not isinstance(kind, pl.Array):
        raise InputError(f"logits are {kind}, expected an array of numbers")
    return kind.shape[0]


def kept_parts(
    store: PredictionStore, model: str, setting: str, policy: LabelPolicy
) -> Iterator[pl.DataFrame]:
    """What a policy needs: a cell's logits part by part, or else its best classes in one piece.

    Best classes are small, and many short pieces would cost more than a long one.
    """
    pieces = store.pieces(model, setting)
    if not pieces:
        raise InputError(f"no predictions of {model!r} on {setting!r} in the store")
    with whole_parquet(f"predictions of {model!r} on {setting!r}"):
        there = list(pl.read_parquet_schema(io.BytesIO(store.piece_bytes(pieces[0]))))
    wanted = ("class_",) if _keeps_order(policy) else ("class_", "prob_")
    columns = ["logits"] if "logits" in there else [c for c in there if c.startswith(wanted)]
    if "logits" in there:
        yield from (store.read_piece(one, columns) for one in pieces)
    else:
        yield store.read(model, setting, columns)


def twin_answers(store: PredictionStore, model: str, setting: str, policy: LabelPolicy) -> Decided:
    """What a model answers under a policy, for every example of a setting; nothing is written."""
    found, kind = [], ""
    for frame in kept_parts(store, model, setting, policy):
        kind = computed_from(frame)
        found.append(decide(frame, policy))
    return Decided(predicted=np.concatenate(found), computed_from=kind)


def computed_from(frame: pl.DataFrame) -> str:
    kept = sum(column.startswith("class_") for column in frame.columns)
    return "logits" if "logits" in frame.columns else f"top-{kept}"
