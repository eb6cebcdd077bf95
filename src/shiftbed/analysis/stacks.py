"""Baselines side by side: the lines of many shifts as one record with a further axis in front.

Judging one shift after the other costs more in calls than in arithmetic. The formulas of a line
are therefore over the last axes of their arrays, and serve one line as well as a stack of lines
through the same models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Baseline, Line
from shiftbed.analysis.families import Families
from shiftbed.scales import Scale

Floats = NDArray[np.float64]
AT_ONCE = 2**14
"""Models times baselines to compute together: arrays that fit into a processor's cache."""
Record = TypeVar("Record", Line, Families)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """What placing models takes of baselines: of one, or of S with (S,) in front of all shapes."""

    scale: Scale
    lines: tuple[Line, ...]
    """One, or two where there is a knee."""
    support: Floats
    """(k, 2): lowest and highest fitted accuracy on each ID setting."""
    sizes: Floats
    """(k+1,): usual test-set size of the fitted models, OOD last; 0 if unknown."""

    @classmethod
    def one(cls, baseline: Baseline) -> "Stack":
        """Of a single baseline, without an axis in front."""
        kept = {field.name: getattr(baseline, field.name) for field in fields(cls)}
        return cls(**kept)

    @classmethod
    def of(cls, baselines: Sequence[Baseline]) -> "Stack":
        """Of baselines that are ``alike``, but for their bootstrap draws."""
        pieces = zip(*(baseline.lines for baseline in baselines), strict=True)
        return cls(
            scale=baselines[0].scale,
            lines=tuple(_stack_lines(lines) for lines in pieces),
            support=np.stack([baseline.support for baseline in baselines]),
            sizes=np.stack([baseline.sizes for baseline in baselines]),
        )


def alike(baselines: Sequence[Baseline], most: int) -> list[list[int]]:
    """Positions of baselines that make a stack: same models, families, scale; at most so many.

    At least one, whatever ``most`` is.
    """
    most = max(most, 1)
    groups: dict[Any, list[int]] = {}
    for i, one in enumerate(baselines):
        pieces = tuple((line.low, line.fitted.tobytes(), _families(line)) for line in one.lines)
        groups.setdefault((one.scale, len(one.id_settings), one.models, pieces), []).append(i)
    return [group[i : i + most] for group in groups.values() for i in range(0, len(group), most)]


def _families(line: Line) -> Any:
    return None if line.families is None else (line.families.names, line.families.codes.tobytes())


def _stack_lines(lines: Sequence[Line]) -> Line:
    families = [line.families for line in lines if line.families is not None]
    together = _stacked(families, "names", "codes") if families else None
    none = np.empty((len(lines), 0, lines[0].coefficients.shape[-1]))
    return _stacked(lines, "low", "high", "fitted", families=together, draws=none)


def _stacked(records: Sequence[Record], *shared: str, **given: Any) -> Record:
    """The first record, with an array of all but for what is ``shared`` or ``given``."""
    kept = {field.name for field in fields(records[0])} - {*shared, *given}
    arrays: dict[str, Any] = {
        name: np.stack([getattr(record, name) for record in records]) for name in kept
    }
    return replace(records[0], **given | arrays)
