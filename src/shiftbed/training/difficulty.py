"""How hard examples are: hold-out consistency of an ensemble trained here, like the C-score.

The C-score of an example (Jiang et al. 2021) is the probability that a model trained on a random
part of the data without it gets it right. Here the data is split into k folds, again in every
repeat; k models train on m folds each, so that every example is held out by exactly k − m models
per repeat. consistency = share of those that are right; score = 1 − consistency, larger is harder.
With k right of n its standard error is √(c(1 − c)/(n + 2)), c = (k + ½)/(n + 1), the spread of
Beta(k + ½, n − k + ½): from few models it is large, and never 0.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch.nn import functional

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.atomic import write_atomically
from shiftbed.display import Result, Table, csv_text
from shiftbed.engine.toml_files import model_beside
from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, open_test_set
from shiftbed.evaluation.data.parts import ranked
from shiftbed.evaluation.memory import reused_memory
from shiftbed.evaluation.models.torch_model import torch_threads
from shiftbed.training.arguments import one_of
from shiftbed.training.augment import keeping_generators
from shiftbed.training.loop import make_optimiser
from shiftbed.training.networks import make_network
from shiftbed.training.prepare import TrainingData, prepare, whole
from shiftbed.training.recipe import Recipe, read_recipe
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Difficulty(Result):
    """Scores per example, larger is harder.

    ``frame``: example, label, score, consistency, its standard error, low and high (its 95 %
    Clopper–Pearson interval), and n, the models that were asked; what ``difficulty = {scores = …}``
    of a recipe reads.
    """

    data: str
    file: str | None
    """Where the frame was written."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "file": self.file,
            "n": len(self.frame),
            "models_per_example": int(self.frame["n"][0]),
            "mean_error": float(self.frame["error"].to_numpy().mean()),
            "mean_score": float(1 - self.frame["consistency"].to_numpy().mean()),
            "always_right": int((self.frame["consistency"] == 1).sum()),
            "never_right": int((self.frame["consistency"] == 0).sum()),
        }

    def tables(self) -> Iterable[Table]:
        found = self.to_dict()
        yield Table(
            title=f"Difficulty of {self.data}",
            columns=("", ""),
            rows=tuple((key.replace("_", " "), str(value)) for key, value in found.items()),
            notes=(
                "Larger scores are harder: the share of wrong answers of "
                f"{found['models_per_example']} models, trained without the example; its standard "
                f"error is {found['mean_error']:.2f} on average.",
            ),
        )


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


def standard_error(right: Rows, asked: Rows) -> NDArray[np.float64]:
    """Of the share of right answers, as above.

    >>> standard_error(np.array([0, 5]), np.array([10, 10])).round(3).tolist()
    [0.06, 0.144]
    """
    centre = (right + 0.5) / (asked + 1)
    return np.asarray(np.sqrt(centre * (1 - centre) / (asked + 2)))


def _repeats(per_example: int, share: float) -> int:
    """Repeats after which every example was held out by so many models."""
    exact = Fraction(share).limit_denominator(MOST_FOLDS)
    each = exact.denominator - exact.numerator
    if per_example < 1 or each < 1 or per_example % each:
        raise InputError(
            f"per_example must be a multiple of {each} with share {share:g}, got {per_example}"
        )
    return per_example // each


@reused_memory()
def difficulty(
    source: str | Path | Recipe | TestSet | TrainingData,
    data: str | None = None,
    *,
    model: str | Answer,
    output: str | Path | None = None,
    share: float = 0.75,
    repeats: int = 3,
    per_example: int | None = None,
    epochs: int = 10,
    batch_size: int = 64,
    optimiser: str = "AdamW",
    lr: float = 1e-3,
    seed: int = 0,
    heard: Callable[[int, int], None] = lambda done, total: None,
) -> Difficulty:
    """Score examples by how many models get them wrong that were trained without them.

    ``source`` is a recipe (or its .toml file), ``data`` then one of its data sets; or the examples
    themselves, in any form that a test set has: a folder, .npz, .tar, Parquet, a manifest,
    NAME@DIR. ``model`` is what to train, its files beside the recipe, or a function from a member
    of the ensemble to its answers. ``per_example`` is how many models are asked about each example,
    instead of ``repeats`` of the split. ``output`` is a CSV or Parquet file to write the frame to.
    ``heard`` is called with how many of how many members are done.
    """
    examples, base, threads = _opened(source, data)
    answer = model
    if isinstance(answer, str):
        answer = train_member(
            examples,
            model_beside(answer, base),
            epochs=epochs,
            batch_size=batch_size,
            optimiser=optimiser,
            lr=lr,
            seed=seed,
        )
    ids = examples.examples
    repeats = repeats if per_example is None else _repeats(per_example, share)
    members = design(ids, examples.labels, share=share, repeats=repeats, seed=seed)
    right, asked = np.zeros((2, len(examples)), dtype=np.int64)
    with torch_threads(threads or torch.get_num_threads()):
        for member in members:
            own = member.held_out
            right[own] += answer(member) == examples.labels[own]
            asked[own] += 1
            heard(member.number + 1, len(members))
    low, high = clopper_pearson(right / asked, asked, 0.95)
    frame = pl.DataFrame(
        {
            "example": ids,
            "label": examples.labels,
            "score": 1 - right / asked,
            "consistency": right / asked,
            "error": standard_error(right, asked),
            "low": low,
            "high": high,
            "n": asked,
        }
    )
    if output is not None:
        with write_atomically(output) as file:
            if Path(output).suffix == ".parquet":
                frame.write_parquet(file)
            else:
                file.write(csv_text(frame).encode())
    return Difficulty(
        frame=frame,
        data=data or examples.name,
        file=None if output is None else str(output),
    )


def _opened(
    source: str | Path | Recipe | TestSet | TrainingData, data: str | None
) -> tuple[TrainingData, str, int | None]:
    """The examples, the folder that files are in, and the threads that a recipe says."""
    if isinstance(source, TestSet | TrainingData):
        if data is not None:
            raise InputError(f"data ({data!r}) names a data set of a recipe: give the recipe")
        return (whole(source) if isinstance(source, TestSet) else source), ".", None
    if not isinstance(source, Recipe) and Path(source).suffix.lower() != ".toml":
        if data is not None:
            raise InputError(f"data ({data!r}) names a data set of a recipe, which {source} is not")
        return whole(open_test_set(source)), ".", None
    recipe = source if isinstance(source, Recipe) else read_recipe(source)
    one_of(data, "data set", recipe.sources.data)
    found = prepare({"name": data}, recipe.sources.data, recipe.base)
    return found, recipe.base, int(recipe.options["threads"])


def train_member(
    data: TrainingData,
    model: str,
    *,
    epochs: int = 10,
    batch_size: int = 64,
    optimiser: str = "AdamW",
    lr: float = 1e-3,
    seed: int = 0,
) -> Answer:
    """A function that trains ``model`` from random weights on a member's rows, and asks it."""

    def answer(member: Member) -> Rows:
        with keeping_generators():
            torch.manual_seed(seed + member.number)
            network = make_network(model, data.classes, seed=seed + member.number)
            draws = {"batch_size": batch_size, "seed": seed + member.number}
            stream = make_stream(data, network.preprocessing, [], **draws)
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
