"""Progress: bars on a terminal, a line a minute where the output goes to a file or a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from shiftbed.errors import plain

MINUTE = 60.0
"""Seconds between two lines, where there is no terminal."""


class Progress:
    """Hears of cells and their parts: a bar over all images, and one per cell."""

    unit = "images"

    def __init__(self, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )
        self.tasks: dict[Any, Any] = {}
        self.lines = not quiet and not sys.stderr.isatty()
        self.begun = self.said = time.monotonic()

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def add(self, key: Any, name: str, total: int | None, *, visible: bool = True) -> None:
        self.tasks[key] = self.bars.add_task(plain(name), total=total, rate="", visible=visible)

    def say(self) -> None:
        """A line about everything, once a minute, where there are no bars."""
        now = time.monotonic()
        if not self.lines or now - self.said < MINUTE or None not in self.tasks:
            return
        self.said = now
        whole = next(task for task in self.bars.tasks if task.id == self.tasks[None])
        done, total = int(whole.completed), int(whole.total or 0)
        print(line(whole.description, self.unit, done, total, now - self.begun), file=sys.stderr)

    def cells(self, cells: list[Any]) -> None:
        """What is to be done."""
        if not cells:
            return
        self.add(None, f"{len(cells)} cells", sum(cell.images for cell in cells))
        for cell in cells:
            self.add(cell.key, cell.title, cell.images, visible=False)

    def part(self, done: Any) -> None:
        """A part is done."""
        if done.key not in self.tasks:
            return
        rate = f"{done.images / done.seconds:,.0f} images/s" if done.seconds else ""
        self.bars.update(self.tasks[done.key], advance=done.images, rate=rate, visible=True)
        self.bars.update(self.tasks[None], advance=done.images, rate=rate)
        task = next(task for task in self.bars.tasks if task.id == self.tasks[done.key])
        self.bars.update(task.id, visible=not task.finished)
        self.say()


def line(what: str, unit: str, done: int, total: int, seconds: float) -> str:
    """How far a run is, how fast, and how long it will take at that rate.

    >>> line("4 cells", "images", 3000, 12000, 60.0)
    '4 cells: 3,000 of 12,000 images (25 %), 50 images/s, 3 min left'
    >>> line("2 runs", "runs", 0, 2, 60.0)
    '2 runs: 0 of 2 runs (0 %)'
    """
    said = f"{what}: {done:,} of {total:,} {unit} ({100 * done // max(total, 1)} %)"
    if not done or not seconds:
        return said
    rate, left = done / seconds, (total - done) * seconds / done
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    time_left = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    time_left = time_left if left < 6000 else f"{left / 3600:.1f} h"
    return f"{said}, {shown} {unit}/s, {time_left} left"


class RunProgress(Progress):
    """Hears of training runs and their checkpoints: a bar of runs, and one of steps for each."""

    unit = "runs"

    def runs(self, tasks: list[Any]) -> None:
        """What is to be trained."""
        if not tasks:
            return
        self.add(None, f"{len(tasks)} runs", len(tasks))
        for task in tasks:
            self.add(task.key, task.job.called or task.job.run, None, visible=False)

    def part(self, done: Any) -> None:
        """A checkpoint is there."""
        if done.key not in self.tasks:
            return
        rate = f"{done.images / done.seconds:,.0f} examples/s" if done.seconds else ""
        last = done.step == done.steps
        steps = {"total": done.steps, "completed": done.step, "visible": not last}
        self.bars.update(self.tasks[done.key], rate=rate, **steps)
        self.bars.update(self.tasks[None], advance=int(last), rate=rate)
        self.say()


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar per thing that is done, hearing (what, how much is done, of how much)."""
    with Progress(quiet=quiet) as heard:

        def report(what: str, done: int, total: int | None) -> None:
            if what not in heard.tasks:
                heard.add(what, what, total)
            heard.bars.update(heard.tasks[what], completed=done, total=total)
            now = time.monotonic()
            if heard.lines and total and now - heard.said >= MINUTE:
                heard.said = now
                print(line(what, "steps", done, total, now - heard.begun), file=sys.stderr)

        yield report
