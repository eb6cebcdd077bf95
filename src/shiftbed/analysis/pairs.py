"""What is known of networks for one (ID, OOD) pair: what wenzel2022's questions are asked of.

wenzel2022 (Section 3) fine-tunes many networks on the ID data set of each pair and measures many
metrics on ID, corrupted ID, held-out OOD and OOD data. One ``PairTable`` holds one pair; a study is
a sequence of them.
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
