"""What is known of networks for one (ID, OOD) pair: what wenzel2022's questions are asked of.

wenzel2022 (Section 3) fine-tunes many networks on the ID data set of each pair and measures many
metrics on ID, corrupted ID, held-out OOD and OOD data. One ``PairTable`` holds one pair; a study is
a sequence of them. A network is a model fine-tuned on one ID data set: a ``NetworkTable`` has a row
for each, with its metrics on ID and corrupted ID data and the mean of each OOD metric over all OOD
data sets of the task (Appendix B).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown

WHERE = ("id", "corrupted", "held-out", "ood", "upstream")
"""Where a metric is measured: on ID data, on corrupted ID data, on the task's other OOD domains, on
the OOD data, or on what the backbone was trained for before."""


def metric_name(where: str, metric: str) -> str:
    """The column of a metric, such as ``ood:error``.

    >>> metric_name("held-out", "nll")
    'held-out:nll'
    """
    if where not in WHERE:
        raise unknown("place of a metric", where, WHERE)
    return f"{where}:{metric}"


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTable:
    """Networks × metrics for one (ID, OOD) pair of a task.

    >>> pair = PairTable(task="PACS", source="photo", target="sketch", models=("a", "b"),
    ...                  metrics=("id:error", "ood:error"),
    ...                  values=np.array([[0.1, 0.4], [0.2, 0.6]]))
    >>> pair.column("ood:error")
    array([0.4, 0.6])
    """

    task: str
    source: str
    """ID data set."""
    target: str
    """OOD data set."""
    models: tuple[str, ...]
    metrics: tuple[str, ...]
    """``WHERE:METRIC``, see ``metric_name``."""
    values: NDArray[np.float64]
    """(models, metrics), NaN where a cell is missing."""
    kind: str = ""
    """Type of the shift: real, artificial, or a kind of ``shiftbed.records``."""
    info: Mapping[str, Sequence[str | float | None]] = field(default_factory=dict)
    """Columns of the networks' recipes (architecture, augmentation, …), one value per model."""
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The models that are no networks of this pair, by reason."""
    checkpoint: str = "last"
    """Which checkpoint of a run is its network: the last, or one chosen on ID data."""
    chosen: bool = False
    """Whether a testbed or a store said which models are networks of this pair."""
    shift_type: str = ""
    """What the ID and the OOD set show: ``artificial → real`` (Appendix A.4)."""
    classes: int | None = None
    """Classes of the OOD set, where they are known: chance is one of them."""

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.models), len(self.metrics)):
            raise InputError(
                f"pair {self.name}: values must have shape "
                f"{(len(self.models), len(self.metrics))}, have {self.values.shape}"
            )
        if len(set(self.metrics)) < len(self.metrics):
            raise InputError(f"pair {self.name}: a metric is there twice")
        for column, of in self.info.items():
            if len(of) != len(self.models):
                raise InputError(f"pair {self.name}: {len(of)} values of {column!r}")

    @property
    def name(self) -> str:
        return f"{self.task}: {self.source} → {self.target}"

    def column(self, metric: str) -> NDArray[np.float64]:
        """(models,): one metric."""
        if metric not in self.metrics:
            raise unknown(f"metric of {self.name}", metric, self.metrics)
        return self.values[:, self.metrics.index(metric)]


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

    ``metrics`` are columns such as ``ood:error``; default all on ID, corrupted ID and OOD data
    but the validation error, which is the ID error again. A mean is over the OOD data sets that
    have the cell.

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
        places = [c for c in places if c != "id:validation_error"]
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
