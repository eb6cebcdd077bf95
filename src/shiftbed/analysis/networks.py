"""From (ID, OOD) pairs to one table with a row per network.

A network is a model fine-tuned on one ID data set. wenzel2022 (Appendix B) gives it its metrics on
ID and corrupted ID data and the mean of each OOD metric over all OOD data sets of the task.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
COLUMNS = ("metrics", "settings")
PLACES = ("id", "corrupted", "ood")


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkTable:
    """Networks × columns, NaN where a cell is missing."""

    networks: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(networks, columns)"""
    models: tuple[str, ...]
    """Model of each network."""
    sources: tuple[str, ...]
    """Task and ID data set of each network; "" where a row is a model in all settings."""

    def __post_init__(self) -> None:
        if not len(self.models) == len(self.sources) == len(self.networks):
            raise InputError("every network of a table needs a model and a source")
        if self.values.shape != (len(self.networks), len(self.columns)):
            raise InputError(
                f"a table of {len(self.networks)} networks and {len(self.columns)} columns "
                f"cannot have values of shape {self.values.shape}"
            )


def network_table(pairs: Sequence[PairTable], metrics: Sequence[str] | None = None) -> NetworkTable:
    """A row per (task, ID data set, model); OOD metrics are means over the OOD data sets.

    ``metrics`` are columns such as ``ood:error``; default all on ID, corrupted ID and OOD data.
    A mean is over the OOD data sets that have the cell.

    >>> def pair(target, error):
    ...     return PairTable(task="PACS", source="photo", target=target, models=("a", "b"),
    ...                      metrics=("id:error", "ood:error"),
    ...                      values=np.array([[0.1, error], [0.2, error + 0.1]]))
    >>> table = network_table([pair("art", 0.3), pair("sketch", 0.5)])
    >>> table.networks, table.values.round(3).tolist()
    (('PACS: photo: a', 'PACS: photo: b'), [[0.1, 0.4], [0.2, 0.5]])
    """
    columns = _columns(pairs, metrics)
    rows: dict[tuple[str, str], int] = {}
    for pair in pairs:
        for model in pair.models:
            rows.setdefault((f"{pair.task}: {pair.source}", model), len(rows))
    total, count = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)))
    for pair in pairs:
        at = [rows[f"{pair.task}: {pair.source}", model] for model in pair.models]
        for j, column in enumerate(columns):
            if column in pair.metrics:
                _add(total, count, at, j, pair.column(column))
    return NetworkTable(
        networks=tuple(f"{source}: {model}" for source, model in rows),
        columns=columns,
        values=_mean(total, count),
        models=tuple(model for _, model in rows),
        sources=tuple(source for source, _ in rows),
    )


def settings_table(
    pairs: Sequence[PairTable], metrics: Sequence[str] | None = None
) -> NetworkTable:
    """A row per model; each metric in each setting is a column of its own, ``metric@setting``.

    For a testbed with one metric and many test sets: which test sets measure the same thing?
    """
    wanted = _columns(pairs, metrics)
    rows: dict[str, int] = {}
    cells: dict[str, list[tuple[list[int], Floats]]] = {}
    for pair in pairs:
        at = [rows.setdefault(model, len(rows)) for model in pair.models]
        for column in (c for c in wanted if c in pair.metrics):
            setting = pair.target if column.startswith(("ood:", "held-out:")) else pair.source
            cells.setdefault(f"{column}@{setting}", []).append((at, pair.column(column)))
    total, count = np.zeros((len(rows), len(cells))), np.zeros((len(rows), len(cells)))
    for j, parts in enumerate(cells.values()):
        for at, values in parts:
            _add(total, count, at, j, values)
    return NetworkTable(
        networks=tuple(rows),
        columns=tuple(cells),
        values=_mean(total, count),
        models=tuple(rows),
        sources=("",) * len(rows),
    )


def _columns(pairs: Sequence[PairTable], metrics: Sequence[str] | None) -> tuple[str, ...]:
    known = list(dict.fromkeys(column for pair in pairs for column in pair.metrics))
    if metrics is None:
        places = [c for place in PLACES for c in known if c.partition(":")[0] == place]
        return tuple(places)
    for column in metrics:
        if column not in known:
            raise unknown("metric", column, known)
    return tuple(dict.fromkeys(metrics))


def _add(total: Floats, count: Floats, rows: list[int], column: int, values: Floats) -> None:
    there = np.isfinite(values)
    at = np.asarray(rows, dtype=np.int64)[there]
    np.add.at(total[:, column], at, values[there])
    np.add.at(count[:, column], at, 1.0)


def _mean(total: Floats, count: Floats) -> Floats:
    return np.where(count > 0, total / np.where(count > 0, count, 1.0), np.nan)
