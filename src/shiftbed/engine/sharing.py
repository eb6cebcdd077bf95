"""Cells that several runs on one store are at work on: claimed, waited for, or taken over."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from shiftbed.engine.plan import CellPlan, Task, ranges
from shiftbed.store import PredictionStore
from shiftbed.store.claims import Claims
from shiftbed.store.store import not_in


class SharedCells:
    """The cells of a run, which other runs on the same store may be at work on as well.

    A cell is claimed when its first task is given out. One that another run has claimed waits until
    that run has completed it, or is dead.
    """

    def __init__(
        self,
        store: PredictionStore,
        cells: list[CellPlan],
        cut: Callable[[CellPlan], Iterable[Task]],
    ) -> None:
        self.store, self.cut = store, cut
        self.waiting = {cell.key: cell for cell in cells}
        self.claims = Claims(store.files)
        self.left: Counter[tuple[str, str]] = Counter()
        self.finished: list[tuple[str, str]] = []

    def announce(self) -> None:
        """A claim for the run itself: that others are at work is seen by one listing, always."""
        if not self.store.in_memory and self.waiting:
            self.claims.take(f"run {self.claims.owner}")

    def tasks(self) -> Iterator[Task]:
        """Tasks of the cells that can be claimed now, each when it is asked for."""
        for key, cell in list(self.waiting.items()):
            if key not in self.waiting:  # given up meanwhile
                continue
            if not self.store.in_memory and not self.claims.take(_claim(key)):
                continue
            del self.waiting[key]
            found = self._now(cell) if self.claims.others else cell
            todo = list(self.cut(found))
            self.left[key] = len(todo)
            if not todo:
                self.finished.append(key)
                self.release(key)
            yield from todo

    def _now(self, cell: CellPlan) -> CellPlan:
        """The cell with what is missing now: another run may have done some of it, or all."""
        record, there = self.store.cell(*cell.key) or {}, self.store.there(*cell.key)
        if record.get("status") == "complete" and not record.get("unreadable"):
            return replace(cell, missing=())
        again = [part for part in cell.missing if part in there] if record else []
        missing = {*not_in(ranges(cell.n), there), *again}
        return replace(cell, missing=tuple(sorted(missing)))

    def is_last(self, key: tuple[str, str]) -> bool:
        """Whether a task that is done was the last of its cell."""
        self.left[key] -= 1
        return not self.left[key]

    def give_up(self, model: str) -> list[tuple[str, str]]:
        """The cells of a model that nobody has begun; they are not run."""
        found = [key for key in self.waiting if key[0] == model]
        for key in found:
            del self.waiting[key]
        return found

    def release(self, key: tuple[str, str], *, complete: bool = False) -> None:
        """Give a cell up; of one that is complete everybody sees that it is."""
        self.claims.release(_claim(key), at_once=not complete)

    def done_elsewhere(self) -> list[tuple[str, str]]:
        """Cells that another run has completed since this was last asked."""
        if self.waiting:
            for one in self.store.cells():
                key = one["model"], one["setting"]
                if key in self.waiting and one.get("status") == "complete":
                    del self.waiting[key]
                    self.finished.append(key)
        found, self.finished = self.finished, []
        return found


def _claim(key: tuple[str, str]) -> str:
    return f"{key[0]} on {key[1]}"
