"""Progress bars on a terminal; quiet where nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self


class Progress:
    """Hears of cells and their parts: a bar over all images, and one per cell."""

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
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )
        self.tasks: dict[Any, Any] = {}

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
        self.tasks[key] = self.bars.add_task(name, total=total, rate="", visible=visible)

    def cells(self, cells: list[Any]) -> None:
        """What is to be done."""
        if not cells:
            return
        self.add(None, f"{len(cells)} cells", sum(cell.images for cell in cells))
        for cell in cells:
            self.add(cell.key, f"{cell.key[0]} on {cell.key[1]}", cell.images, visible=False)

    def part(self, done: Any) -> None:
        """A part is done."""
        if done.key not in self.tasks:
            return
        rate = f"{done.images / done.seconds:,.0f} images/s" if done.seconds else ""
        self.bars.update(self.tasks[done.key], advance=done.images, rate=rate, visible=True)
        self.bars.update(self.tasks[None], advance=done.images, rate=rate)
        task = next(task for task in self.bars.tasks if task.id == self.tasks[done.key])
        self.bars.update(task.id, visible=not task.finished)


class RunProgress(Progress):
    """Hears of training runs and their checkpoints: a bar of runs, and one of steps for each."""

    def runs(self, tasks: list[Any]) -> None:
        """What is to be trained."""
        if not tasks:
            return
        self.add(None, f"{len(tasks)} runs", len(tasks))
        for task in tasks:
            self.add(task.key, task.job.run, None, visible=False)

    def part(self, done: Any) -> None:
        """A checkpoint is there."""
        if done.key not in self.tasks:
            return
        rate = f"{done.images / done.seconds:,.0f} examples/s" if done.seconds else ""
        last = done.step == done.steps
        steps = {"total": done.steps, "completed": done.step, "visible": not last}
        self.bars.update(self.tasks[done.key], rate=rate, **steps)
        self.bars.update(self.tasks[None], advance=int(last), rate=rate)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar per thing that is done, hearing (what, how much is done, of how much)."""
    with Progress(quiet=quiet) as heard:

        def report(what: str, done: int, total: int | None) -> None:
            if what not in heard.tasks:
                heard.add(what, what, total)
            heard.bars.update(heard.tasks[what], completed=done, total=total)

        yield report
