"""Batches of training data in an order that the seed and the epoch fix, and nothing else.

How many workers prepare them, how much is held in memory, and where a run was continued make no
difference: the order is drawn from (seed, epoch), each example's augmentation from (seed, epoch,
row, view).
"""

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from shiftbed.errors import InputError
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.training.augment import (
    Augmentation,
    example_seed,
    fractions,
    keeping_generators,
    make_augmentation,
)
from shiftbed.training.objective import TrainingBatch
from shiftbed.training.prepare import TrainingData

Rows = NDArray[np.int64]


class Stream:
    """Training data as batches, epoch after epoch.

    ``held``: (N, …) tensor of what the network takes, uint8 (N, H, W, C) pixels or float32
    features; None: pictures are read when they are due. Several: one for each epoch, in turn.
    """

    def __init__(
        self,
        labels: Rows,
        *,
        batch_size: int,
        seed: int,
        held: Tensor | Sequence[Tensor] | None = None,
        data: TrainingData | None = None,
        augmentation: Augmentation | None = None,
        views: int = 0,
        clean_first: bool = False,
        workers: int = 0,
        device: str = "cpu",
    ) -> None:
        self.labels = torch.from_numpy(np.ascontiguousarray(labels))
        self.batch_size = batch_size
        self.seed = seed
        self.turns: Sequence[Tensor] = ()
        if held is not None and not isinstance(held, Tensor):
            self.turns, held = held, held[0]
        self.held = held
        self.device = device
        self.kept: Rows = np.arange(len(labels))
        self.workers = 0 if multiprocessing.current_process().daemon else workers
        self._prepared: _Prepared | None = None
        plain = augmentation is None or not (augmentation.steps or augmentation.whole or views)
        if augmentation is not None and (held is None or not plain):
            self._prepared = _Prepared(data, held, augmentation, views, clean_first)
        elif held is None or views:
            raise InputError("a stream without an augmentation needs its data in memory, no views")

    def keep(self, rows: ArrayLike) -> None:
        """Only these rows from the next epoch on."""
        chosen = np.unique(np.asarray(rows, dtype=np.int64))
        if not len(chosen) or chosen[0] < 0 or chosen[-1] >= len(self.labels):
            raise InputError(f"rows to keep must lie between 0 and {len(self.labels) - 1}")
        self.kept = chosen

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch; a last batch of one example joins the one before it."""
        full, rest = divmod(len(self.kept), self.batch_size)
        return max(1, full + (rest > 1))

    def order(self, epoch: int) -> list[Rows]:
        """The rows of each batch of an epoch."""
        generator = np.random.Generator(np.random.Philox(example_seed(self.seed, epoch)))
        rows = generator.permutation(self.kept)
        ends = [self.batch_size * k for k in range(1, self.steps_per_epoch)]
        return np.split(rows, ends)

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[TrainingBatch]:
        """The batches of an epoch, the first ``skip`` left out."""
        order = self.order(epoch)[skip:]
        held = self.turns[epoch % len(self.turns)] if self.turns else self.held
        made: Iterable[tuple[Tensor, ...]] = (self._from_memory(rows, held) for rows in order)
        if self._prepared is not None:
            made = self._prepared.batches(order, epoch, self.workers)
        for rows, seen in zip(order, made, strict=True):
            first, *views = (x.to(self.device) for x in seen)
            labels = self.labels[torch.from_numpy(rows)].to(self.device)
            yield TrainingBatch(pixels=first, labels=labels, rows=rows, views=tuple(views))

    def _from_memory(self, rows: Rows, held: Tensor | None) -> tuple[Tensor, ...]:
        assert held is not None
        x = held[torch.from_numpy(rows)].to(self.device)
        if x.dtype == torch.uint8:
            x = fractions(x.permute(0, 3, 1, 2))  # channels last in memory, as it was
        return (x,)

    def view(self, number: int, size: int = 64) -> Iterator[Tensor]:
        """Every example in order as it is augmented in one epoch, (B, C, H, W) at a time."""
        assert self._prepared is not None
        for start in range(0, len(self.labels), size):
            rows = list(range(start, min(start + size, len(self.labels))))
            yield self._prepared[rows, number][0]


class _Prepared(Dataset[tuple[Tensor, ...]]):
    """Augmented batches; indexed by (rows, epoch), so that nothing else decides what is drawn."""

    def __init__(
        self,
        data: TrainingData | None,
        held: Tensor | None,
        augmentation: Augmentation,
        views: int,
        clean_first: bool,
    ) -> None:
        if data is None and (held is None or augmentation.whole is not None):
            raise InputError("this augmentation needs the pictures themselves")
        self.data = data
        self.held = None if augmentation.whole is not None else held
        self.augmentation = augmentation
        self.views, self.clean_first = views, clean_first

    def __getitem__(self, at: tuple[list[int], int]) -> tuple[Tensor, ...]:
        rows, epoch = np.array(at[0], dtype=np.int64), at[1]
        found = []
        crops: Tensor | None = None
        for view in range(self.views + 1):
            if crops is None or (self.augmentation.whole is not None and not self.clean_first):
                crops = self._cropped(rows, epoch, view)
            first = self.clean_first and view == 0
            shared = {"of_one_crop": self.clean_first, "basic_only": first}
            found.append(self.augmentation(crops, rows, epoch, view, **shared))
        return tuple(found)

    def _cropped(self, rows: Rows, epoch: int, view: int) -> Tensor:
        """(B, C, H, W) uint8, before any step on batches."""
        if self.held is not None:
            return self.held[torch.from_numpy(rows)].permute(0, 3, 1, 2)
        assert self.data is not None
        load, crop = self.data.load, self.augmentation.picture
        with keeping_generators():
            return torch.stack([crop(load(row), row, epoch, view) for row in rows.tolist()])

    def batches(self, order: list[Rows], epoch: int, workers: int) -> Iterator[tuple[Tensor, ...]]:
        asked = [(rows.tolist(), epoch) for rows in order]
        if workers == 0:
            yield from map(self.__getitem__, asked)
            return
        with keeping_generators():
            loader = DataLoader(
                self,
                batch_size=None,
                sampler=asked,
                num_workers=workers,
                worker_init_fn=_single_thread,
            )
            made = iter(loader)
        yield from map(tuple, made)


def _single_thread(worker: int) -> None:
    torch.set_num_threads(1)


def make_stream(
    data: TrainingData,
    preprocessing: Preprocessing,
    steps: list[dict[str, object]],
    *,
    seed: int,
    memory_gib: float = 2.0,
    **options: Any,
) -> Stream:
    """The stream of a job: in memory where it fits and nothing needs the whole picture.

    ``options`` are those of ``Stream``.
    """
    augmentation = make_augmentation(steps, preprocessing, seed)
    height, width = preprocessing.size
    size = len(data) * height * width * preprocessing.channels
    held = None
    if augmentation.whole is None and size <= memory_gib * 2**30:
        held = torch.from_numpy(data.pixels(preprocessing))
    return Stream(
        data.labels, seed=seed, held=held, data=data, augmentation=augmentation, **options
    )
