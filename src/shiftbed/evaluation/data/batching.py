"""Batches of preprocessed images, in order, prepared ahead by threads.

Threads are enough: PIL releases the interpreter's lock while it decodes and resizes, and so does
NumPy while it copies. No processes are started, nothing is pickled, and at most two batches
besides the one in use are in memory.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data.images import Draft, cores
from shiftbed.evaluation.data.test_set import TestSet, Unreadable, UnreadableImage, checked_rows

Transform = Callable[[Image.Image], NDArray[np.uint8]]
"""A picture in any mode to uint8 (H, W, C), the same shape for all."""
_AHEAD = 2
"""Batches in memory besides the one in use."""
_TASKS = 4
"""Tasks per worker and batch: few enough to be cheap, enough to keep workers busy to the end."""


class Batch(NamedTuple):
    """Some rows of a test set, preprocessed."""

    rows: NDArray[np.int64]
    """(B,) rows that could be read, in the order asked for."""
    pixels: NDArray[np.uint8]
    """(B, H, W, C)"""
    unreadable: list[Unreadable]
    """The other rows of the batch."""


def batches(
    test_set: TestSet,
    rows: ArrayLike | None,
    transform: Transform,
    batch_size: int,
    workers: int | None = None,
    draft: Draft | None = None,
) -> Iterator[Batch]:
    """The images of ``rows`` (all, if None) in batches, in order.

    ``workers`` threads prepare them, one per processor by default, none for 0. What is yielded does
    not depend on their number. An exception of the transform is raised where its batch is due, but
    for ``UnreadableImage``: a transform may refuse an image, too. ``draft`` is how JPEGs may be
    decoded, as the transform's ``Preprocessing.draft`` says.
    """
    size = len(test_set)
    chosen = checked_rows(np.arange(size) if rows is None else rows, size)
    workers = cores() if workers is None else workers
    if batch_size < 1 or workers < 0:
        raise InputError("batch_size must be at least 1, workers at least 0")
    parts = (chosen[at : at + batch_size] for at in range(0, len(chosen), batch_size))
    tray = _Tray(test_set, transform, draft)
    if workers == 0:
        return (tray.batch(part, tray.prepared(part)) for part in parts)
    return _in_threads(tray, parts, workers)


def _in_threads(tray: "_Tray", parts: Iterator[NDArray[np.int64]], workers: int) -> Iterator[Batch]:
    waiting: deque[tuple[NDArray[np.int64], list[Future[list[_Prepared]]]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="images")

    def start() -> None:
        part = next(parts, None)
        if part is not None:
            step = -(-len(part) // (workers * _TASKS))
            pieces = [part[at : at + step] for at in range(0, len(part), step)]
            waiting.append((part, [pool.submit(tray.prepared, piece) for piece in pieces]))

    try:
        for _ in range(_AHEAD + 1):
            start()
        while waiting:
            part, tasks = waiting.popleft()
            batch = tray.batch(part, [one for task in tasks for one in task.result()])
            del tasks
            start()
            yield batch
            del batch
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_Prepared = NDArray[np.uint8] | Unreadable


class _Tray:
    """What all batches share: the transform and the shape that it makes."""

    def __init__(self, test_set: TestSet, transform: Transform, draft: Draft | None) -> None:
        self.test_set = test_set
        self.transform = transform
        self.draft = draft
        self.shape: tuple[int, ...] | None = None
        self.lock = Lock()

    def prepared(self, rows: NDArray[np.int64]) -> list[_Prepared]:
        """Some images, or why they cannot be read."""
        found: list[_Prepared] = []
        for row in rows.tolist():
            try:
                found.append(self.prepare(row))
            except UnreadableImage as error:
                found.append(Unreadable(row, error.example, error.reason))
        return found

    def prepare(self, row: int) -> NDArray[np.uint8]:
        """One image, of the shape of all."""
        example = self.test_set.examples[row]
        image = self.test_set.load(row, self.draft)
        try:
            pixels = self.transform(image)
        except Exception as error:
            error.add_note(f"while preprocessing {example!r}")
            raise
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3:
            got = getattr(pixels, "dtype", type(pixels).__name__), getattr(pixels, "shape", "")
            raise InputError(f"{example!r}: the transform must give uint8 (H, W, C), gave {got}")
        with self.lock:
            if self.shape is None:
                self.shape = pixels.shape
        if pixels.shape != self.shape:
            raise InputError(
                f"{example!r}: the transform gave {pixels.shape}, for others {self.shape}; all "
                "images must come out alike"
            )
        return pixels

    def batch(self, rows: NDArray[np.int64], found: list[_Prepared]) -> Batch:
        """What was read, and what was not."""
        bad = [one for one in found if isinstance(one, Unreadable)]
        good = [one for one in found if not isinstance(one, Unreadable)]
        none = np.empty((0, *(self.shape or (0, 0, 0))), dtype=np.uint8)
        there = rows[~np.isin(rows, [one.row for one in bad])] if bad else rows
        return Batch(there, np.stack(good) if good else none, bad)
