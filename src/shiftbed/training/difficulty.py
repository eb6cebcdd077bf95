"""How hard examples are: hold-out consistency of an ensemble trained here, like the C-score.

The C-score of an example (Jiang et al. 2021) is the probability that a model trained on a random
part of the data without it gets it right. Here the data is split into k folds, anew in every
repeat; k models train on m folds each, so that every example is held out by exactly k − m models
per repeat. consistency = share of those that are right; score = 1 − consistency, larger is harder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch.nn import functional

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.training.augment import keeping_generators
from shiftbed.training.loop import make_optimiser
from shiftbed.training.networks import make_network
from shiftbed.training.prepare import TrainingData
from shiftbed.training.select import ranked
from shiftbed.training.stream import make_stream

Rows = NDArray[np.int64]
MOST_FOLDS = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One model of the ensemble: what it trains on and what it is asked about."""

    number: int
    train: Rows
    held_out: Rows


Answer = Callable[[Member], Rows]
"""A trained member's answers to its held-out rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Difficulty:
    """Scores per example, larger is harder."""

    examples: tuple[str, ...]
    labels: Rows
    right: Rows
    """(N,) models that were right on it without having seen it."""
    asked: Rows
    """(N,) models that had not seen it."""

    @property
    def consistency(self) -> NDArray[np.float64]:
        return np.asarray(self.right / self.asked)

    @property
    def score(self) -> NDArray[np.float64]:
        return 1 - self.consistency


def design(
    examples: Sequence[str], labels: Rows, *, share: float = 0.75, repeats: int = 1, seed: int = 0
) -> list[Member]:
    """Which rows each member trains on: ``share`` = m/k of every class, to within one example.

    Folds depend on ids, not on the order of rows.

    >>> members = design([str(i) for i in range(12)], np.zeros(12, int), share=0.75)
    >>> [(len(m.train), len(m.held_out)) for m in members]
    [(9, 3), (9, 3), (9, 3), (9, 3)]
    """
    exact = Fraction(share).limit_denominator(MOST_FOLDS)
    folds, used = exact.denominator, exact.numerator
    if not 0 < used < folds or repeats < 1:
        raise InputError(
            f"share must lie between 1/{MOST_FOLDS} and {MOST_FOLDS - 1}/{MOST_FOLDS} and repeats "
            f"be 1 or more, got {share!r} and {repeats!r}"
        )
    found = []
    for repeat in range(repeats):
        order = ranked(examples, f"folds:{seed}:{repeat}")
        order = order[np.argsort(labels[order], kind="stable")]
        fold = np.empty(len(order), dtype=np.int64)
        fold[order] = np.arange(len(order)) % folds
        for first in range(folds):
            inside = (fold - first) % folds < used
            number = repeat * folds + first
            train, rest = np.flatnonzero(inside), np.flatnonzero(~inside)
            found.append(Member(number=number, train=train, held_out=rest))
    return found


def difficulty(
    data: TrainingData,
    answer: Answer,
    *,
    share: float = 0.75,
    repeats: int = 3,
    seed: int = 0,
    heard: Callable[[int, int], None] = lambda done, total: None,
) -> Difficulty:
    """Train the ensemble and count, for each example, the models that get it right unseen.

    ``heard`` is told how many of how many members are done.
    """
    examples = data.examples
    members = design(examples, data.labels, share=share, repeats=repeats, seed=seed)
    right, asked = np.zeros((2, len(data)), dtype=np.int64)
    for member in members:
        answers = answer(member)
        right[member.held_out] += answers == data.labels[member.held_out]
        asked[member.held_out] += 1
        heard(member.number + 1, len(members))
    return Difficulty(examples=tuple(examples), labels=data.labels, right=right, asked=asked)


def train_member(
    data: TrainingData,
    model: str,
    *,
    epochs: int = 10,
    batch_size: int = 64,
    optimiser: str = "AdamW",
    lr: float = 1e-3,
    seed: int = 0,
    memory_gib: float = 2.0,
) -> Answer:
    """A function that trains ``model`` from random weights on a member's rows, and asks it."""

    def answer(member: Member) -> Rows:
        with keeping_generators():
            torch.manual_seed(seed + member.number)
            network = make_network(model, data.classes, seed=seed + member.number)
            stream = make_stream(
                data,
                network.preprocessing,
                [],
                batch_size=batch_size,
                seed=seed + member.number,
                memory_gib=memory_gib,
            )
            stream.keep(member.train)
            module = network.module.train()
            steps = make_optimiser({"name": optimiser, "lr": lr}, module.parameters())
            for epoch in range(epochs):
                for batch in stream.epoch(epoch):
                    loss = functional.cross_entropy(module(batch.pixels), batch.labels)
                    steps.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    steps.step()
            stream.keep(member.held_out)
            answers = np.empty(len(data), dtype=np.int64)
            module.eval()
            with torch.inference_mode():
                for batch in stream.epoch(0):
                    answers[batch.rows] = module(batch.pixels).argmax(dim=1).cpu().numpy()
        return answers[member.held_out]

    return answer


def write_difficulty(path: str | Path, found: Difficulty) -> None:
    """A CSV or Parquet file, a row per example: what ``difficulty = {scores = …}`` reads.

    Columns: example, label, score, consistency, low and high (its 95 % Clopper–Pearson interval),
    and n, the models that were asked.
    """
    low, high = clopper_pearson(found.consistency, found.asked, 0.95)
    frame = pl.DataFrame(
        {
            "example": list(found.examples),
            "label": found.labels,
            "score": found.score,
            "consistency": found.consistency,
            "low": low,
            "high": high,
            "n": found.asked,
        }
    )
    buffer = BytesIO()
    if Path(path).suffix == ".parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer)
    with write_atomically(path) as file:
        file.write(buffer.getvalue())
