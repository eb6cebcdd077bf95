"""What there is to say about a testbed, before anything is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from shiftbed.analysis.baseline import Baseline, OnBoundary
from shiftbed.analysis.trust import Trust
from shiftbed.display import counted
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.results.caveats import headline, judge
from shiftbed.results.correlation import NATURAL
from shiftbed.results.lines import interval_notes
from shiftbed.results.plot import Source, open_source
from shiftbed.testbed.record import Testbed

MOST = 10
"""Own models that are told of in words."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """Lines and models of a testbed, on the shifts that could be computed."""

    lines: pl.DataFrame
    """shift, id, ood, n, slopes, intercepts, r2, mae, reason (why not to trust it, or null)."""
    robustness: pl.DataFrame
    """As ``results.caveats.judge`` gives it: ρ, verdict, trust and caveats of every model."""
    not_computed: tuple[tuple[str, str], ...]
    """Shifts without a line, with the reason."""
    fdr: float
    level: float
    on_boundary: OnBoundary
    judged: tuple[tuple[Shift, Baseline, Trust], ...]
    """The shifts with their lines, in order."""
    sentences: tuple[tuple[str, str], ...]
    """(level, text): finding, warning or note, in the order they are told."""

    @property
    def out_of_line(self) -> pl.DataFrame:
        """Rows out of line, the smallest p-value first."""
        rows = self.robustness.filter("out_of_line")
        return rows.sort("p_value", descending=False)


def findings(
    source: Testbed | Source,
    shifts: Sequence[str] | None = None,
    *,
    fdr: float = 0.05,
    level: float = 0.95,
    on_boundary: OnBoundary = "raise",
) -> Findings:
    """Fit and judge the given shifts (default: the natural ones, or all if there are none)."""
    opened = open_source(source)
    testbed = opened.testbed
    chosen = [testbed.shift(name) for name in shifts] if shifts else _default(testbed)
    if not chosen:
        raise InputError(f"testbed {testbed.name} has no shifts to report on")
    usual = opened.line if on_boundary == "raise" else None
    judged = judge(testbed, chosen, level=level, fdr=fdr, fit=usual, on_boundary=on_boundary)
    lines = [
        {
            "shift": shift.name,
            "id": " + ".join(shift.source),
            "ood": shift.target,
            "n": line.n,
            "slopes": [weight for piece in line.lines for weight in piece.weights],
            "intercepts": [piece.intercept for piece in line.lines],
            "r2": line.r2,
            "mae": line.mae,
            "reason": "; ".join(trust.reasons) or None,
        }
        for shift, line, trust in judged.lines
    ]
    table = pl.DataFrame(lines, schema_overrides={"reason": pl.String})
    failed = judged.not_computed
    return Findings(
        lines=table,
        robustness=judged.frame,
        not_computed=failed,
        fdr=fdr,
        level=level,
        on_boundary=on_boundary,
        judged=judged.lines,
        sentences=tuple(_sentences(testbed, table, judged.frame, failed, fdr, level)),
    )


def _default(testbed: Testbed) -> list[Shift]:
    natural = [shift for shift in testbed.shifts if shift.kind in NATURAL]
    return natural or list(testbed.shifts)


def _sentences(
    testbed: Testbed,
    lines: pl.DataFrame,
    robustness: pl.DataFrame,
    failed: Sequence[tuple[str, str]],
    fdr: float,
    level: float,
) -> list[tuple[str, str]]:
    """The opening of the page, in words and numbers."""
    out = robustness.filter("out_of_line")
    said = [("finding", _scope(testbed, lines)), ("finding", _unusual(out, robustness, fdr, level))]
    said += _own(testbed, robustness)
    weak = lines.filter(pl.col("reason").is_not_null())
    if len(weak):
        names = ", ".join(f"{r['shift']} ({r['reason']})" for r in weak.to_dicts())
        said.append(("warning", f"Lines through the baseline models not to be trusted: {names}."))
    for row in robustness.filter(pl.col("artefact").is_not_null()).to_dicts():
        said.append(("note", f"{row['model']} on {row['shift']}: {row['artefact']}."))
    said += [("warning", f"Not computed: {name} ({why}).") for name, why in failed]
    said += [("note", note.rstrip(".") + ".") for note in testbed.notes]
    said += [("note", text) for text in interval_notes(robustness)]
    return said


def _scope(testbed: Testbed, lines: pl.DataFrame) -> str:
    shifts = len(lines)
    r2 = lines["r2"].to_numpy()
    around = f"R² {r2[0]:.3f}" if shifts == 1 else f"R² {r2.min():.3f} to {r2.max():.3f}"
    return (
        f"{len(testbed.models)} models on {shifts} shift{'s' if shifts > 1 else ''}. Each "
        f"{testbed.line} goes through the baseline models only ({around}); effective robustness ρ "
        "is accuracy beyond it."
    )


def _unusual(out: pl.DataFrame, robustness: pl.DataFrame, fdr: float, level: float) -> str:
    count = out["model"].n_unique()
    models = "No model is" if count == 0 else "1 model is" if count == 1 else f"{count} models are"
    text = (
        f"{models} out of line on at least one shift (unusual among baseline models, false "
        f"discovery rate {fdr:g}): {len(out)} of {len(robustness)} pairs of model and shift."
    )
    best = headline(out)
    if best is not None:
        text += f" The largest: {_one(best, level)}."
    unfair = out.filter(~pl.col("trusted") | pl.col("artefact").is_not_null())
    if len(unfair):
        text += (
            f" {counted(len(unfair), 'pair')} left out of that: the line is not trusted, or the "
            "test set was filtered with the model, or the model trained on it."
        )
    return text


def _own(testbed: Testbed, robustness: pl.DataFrame) -> list[tuple[str, str]]:
    """A sentence for each own model, at most ten, and how many more there are."""
    own = robustness.filter(pl.col("kind") == "own")
    said = []
    models = list(own.group_by(["model"], maintain_order=True))
    for (model,), rows in models[:MOST]:
        parts = [
            f"{r['shift']} {100 * r['effective']:+.2f}"
            + (" (out of line)" if r["out_of_line"] else "")
            for r in rows.to_dicts()
        ]
        said.append(("finding", f"{model}: ρ in points on {', '.join(parts)}."))
    if len(models) > MOST:
        left = len(models) - MOST
        said.append(("note", f"{left} more of the models that were added are in the charts."))
    return said


def _one(row: Mapping[str, Any], level: float) -> str:
    around = ""
    if row["low"] is not None:
        around = f", {100 * level:g} % interval {100 * row['low']:+.2f} to {100 * row['high']:+.2f}"
    return f"{row['model']} on {row['shift']}, ρ {100 * row['effective']:+.2f} points{around}"
