"""What there is to say about a testbed, before anything is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.tables.correlation import NATURAL
from shiftbed.testbed.record import Testbed

__all__ = ["Findings", "findings"]

TRUSTED_R2 = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """Lines and models of a testbed, on the shifts that could be computed."""

    lines: pl.DataFrame
    """shift, id, ood, n, slope, intercept, r2, mae, trusted."""
    robustness: pl.DataFrame
    """As ``Testbed.effective_robustness`` gives it."""
    not_computed: tuple[tuple[str, str], ...]
    """Shifts without a line, with the reason."""
    fdr: float

    @property
    def out_of_line(self) -> pl.DataFrame:
        """Rows out of line, the largest |ρ| beyond its prediction interval first."""
        rows = self.robustness.filter("out_of_line")
        return rows.sort("p_value", descending=False)


def findings(
    testbed: Testbed, shifts: Sequence[str] | None = None, *, fdr: float = 0.05
) -> Findings:
    """Fit and judge the given shifts (default: the natural ones, or all if there are none).

    A line is trusted if its R² in scaled space is at least 0.9.
    """
    chosen = [testbed.shift(name) for name in shifts] if shifts else _default(testbed)
    if not chosen:
        raise InputError(f"testbed {testbed.name} has no shifts to report on")
    lines, usable, failed = [], [], []
    for shift in chosen:
        try:
            line = testbed.fit(shift, bootstrap=0)
        except InputError as error:
            failed.append((shift.name, str(error)))
            continue
        usable.append(shift)
        pieces = [piece.weights[0] for piece in line.lines]
        lines.append(
            {
                "shift": shift.name,
                "id": " + ".join(shift.source),
                "ood": shift.target,
                "n": line.n,
                "slope": " / ".join(f"{slope:.4f}" for slope in pieces),
                "r2": line.r2,
                "mae": line.mae,
                "trusted": line.r2 >= TRUSTED_R2,
            }
        )
    if not usable:
        raise InputError(f"no shift of {testbed.name} could be fitted: {failed[0][1]}")
    return Findings(
        lines=pl.DataFrame(lines),
        robustness=testbed.effective_robustness(usable, fdr=fdr),
        not_computed=tuple(failed),
        fdr=fdr,
    )


def _default(testbed: Testbed) -> list[Shift]:
    natural = [shift for shift in testbed.shifts if shift.kind in NATURAL]
    return natural or list(testbed.shifts)
