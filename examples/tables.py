"""Tables that the examples print."""

from collections.abc import Iterable, Sequence
from typing import Any

from shiftbed.display import Table, terminal


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    notes: Iterable[str] = (),
    left: int = 1,
) -> None:
    """A table with the first ``left`` columns aligned left, then notes, one a line."""
    texts = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)
    made = Table(title=title, columns=tuple(columns), rows=texts, notes=tuple(notes), left=left)
    made.print(terminal())
