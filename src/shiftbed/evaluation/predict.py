"""The inner loop: images in, a part of predictions out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.data import Batch, Unreadable
from shiftbed.labels import LabelPolicy
from shiftbed.store import part_from_logits

Floats = NDArray[np.float32]
Perturb = Callable[[Floats, NDArray[np.int64], Sequence[str]], Floats]
"""From (N, C, H, W) pixels in [0, 1], their labels and ids, to perturbed pixels."""
Pixels = NDArray[np.float32] | NDArray[np.uint8]


class Scorer(Protocol):
    """Turns pixels (N, C, H, W), uint8 or in [0, 1], into logits (N, K): a model, a backend."""

    def logits(self, pixels: Pixels) -> Floats: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Predictions for examples start … stop−1, and the images that could not be read."""

    start: int
    frame: pl.DataFrame
    unreadable: tuple[Unreadable, ...]


def pixels_to_float(pixels: NDArray[np.uint8]) -> Floats:
    """uint8 (N, H, W, C) to float32 in [0, 1], seen as (N, C, H, W) without moving memory."""
    scaled = np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
    return scaled.transpose(0, 3, 1, 2)


def predict_part(
    scorer: Scorer,
    loaded: Iterable[Batch],
    examples: Sequence[str],
    labels: NDArray[np.int64],
    policy: LabelPolicy | None,
    start: int,
    stop: int,
    *,
    top: int = 5,
    keep_logits: bool = False,
    on_unreadable: str = "skip",
    perturb: Perturb | None = None,
) -> Part:
    """Predict examples start … stop−1, whose batches are ``loaded``.

    ``labels`` are those of the target label space. Batches start at ``start``, so that a part is
    the same whenever and by whomever it is computed. ``perturb`` acts on [0, 1] pixels, the
    examples' labels and ids. Unreadable images are null in the part and listed; with
    ``on_unreadable = "stop"`` the first one raises.
    """
    answers = _scored(scorer, loaded, examples, labels, perturb)
    return part_of(
        answers,
        labels,
        policy,
        start,
        stop,
        top=top,
        keep_logits=keep_logits,
        on_unreadable=on_unreadable,
    )


class Answer(NamedTuple):
    """A batch that was scored: numbers of the examples, their logits, and what cannot be read."""

    rows: NDArray[np.int64]
    logits: Floats | None
    unreadable: Sequence[Unreadable]


def seen_by_model(
    batch: Batch, examples: Sequence[str], labels: NDArray[np.int64], perturb: Perturb | None
) -> Pixels:
    """(N, C, H, W) pixels of a batch as they are, or perturbed."""
    if perturb is None:
        return batch.pixels.transpose(0, 3, 1, 2)
    ids = [examples[i] for i in batch.rows]
    return perturb(pixels_to_float(batch.pixels), labels[batch.rows], ids)


def _scored(
    scorer: Scorer,
    loaded: Iterable[Batch],
    examples: Sequence[str],
    labels: NDArray[np.int64],
    perturb: Perturb | None,
) -> Iterator[Answer]:
    for batch in loaded:
        logits = None
        if len(batch.rows):
            logits = scorer.logits(seen_by_model(batch, examples, labels, perturb))
        yield Answer(np.asarray(batch.rows), logits, batch.unreadable)


def part_of(
    answers: Iterable[Answer],
    labels: NDArray[np.int64],
    policy: LabelPolicy | None,
    start: int,
    stop: int,
    *,
    top: int = 5,
    keep_logits: bool = False,
    on_unreadable: str = "skip",
) -> Part:
    """A part of answers, batch by batch; see ``predict_part``."""
    n = stop - start
    scores: Floats | None = None
    readable = np.ones(n, dtype=bool)
    unreadable: list[Unreadable] = []
    for some, found, bad in answers:
        if bad and on_unreadable == "stop":
            raise InputError(f"cannot read {bad[0].example}: {bad[0].reason}")
        unreadable += bad
        if found is None:
            continue
        logits = found if policy is None else policy.apply(found)
        if scores is None:
            scores = np.zeros((n, logits.shape[1]), dtype=np.float32)
            readable[:] = False
        at = np.asarray(some) - start
        scores[at] = logits
        readable[at] = True
    if scores is None:  # nothing in this part could be read
        scores, readable = np.zeros((n, top), dtype=np.float32), np.zeros(n, dtype=bool)
    frame = part_from_logits(
        scores, labels[start:stop], top=top, keep_logits=keep_logits, readable=readable
    )
    return Part(start=start, frame=frame, unreadable=tuple(unreadable))
