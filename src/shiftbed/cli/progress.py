"""Progress bars of a run: one per cell, one overall; quiet where nobody watches."""

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """Hears of cells and parts and shows them on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.shown = not quiet and sys.stderr.isatty()
        self.bars: Any = None
        self.tasks: dict[tuple[str, str], Any] = {}
        self.overall: Any = None

    def __enter__(self) -> Self:
        if self.shown:
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
            )
            self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bars is not None:
            self.bars.stop()

    def cells(self, cells: list[Any]) -> None:
        """What is to be done."""
        if self.bars is None or not cells:
            return
        total = sum(cell.images for cell in cells)
        self.overall = self.bars.add_task(f"{len(cells)} cells", total=total, rate="")
        for cell in cells:
            name = f"{cell.key[0]} on {cell.key[1]}"
            bar = self.bars.add_task(name, total=cell.images, rate="", visible=False)
            self.tasks[cell.key] = bar

    def part(self, done: Any) -> None:
        """A part is done."""
        if self.bars is None or done.key not in self.tasks:
            return
        bar = self.tasks[done.key]
        rate = f"{done.images / done.seconds:,.0f} images/s" if done.seconds else ""
        self.bars.update(bar, advance=done.images, rate=rate, visible=True)
        self.bars.update(self.overall, advance=done.images, rate=rate)
        task = next(t for t in self.bars.tasks if t.id == bar)
        if task.finished:
            self.bars.update(bar, visible=False)


class RunProgress(Progress):
    """Hears of training runs and their checkpoints: a bar of runs, and one of steps for each."""

    def runs(self, tasks: list[Any]) -> None:
        """What is to be trained."""
        if self.bars is None or not tasks:
            return
        self.overall = self.bars.add_task(f"{len(tasks)} runs", total=len(tasks), rate="")
        for task in tasks:
            bar = self.bars.add_task(task.job.run, total=None, rate="", visible=False)
            self.tasks[task.key] = bar

    def part(self, done: Any) -> None:
        """A checkpoint is there."""
        if self.bars is None or done.key not in self.tasks:
            return
        rate = f"{done.images / done.seconds:,.0f} examples/s" if done.seconds else ""
        last = done.step == done.steps
        self.bars.update(
            self.tasks[done.key],
            total=done.steps,
            completed=done.step,
            rate=rate,
            visible=not last,
        )
        self.bars.update(self.overall, advance=int(last), rate=rate)
