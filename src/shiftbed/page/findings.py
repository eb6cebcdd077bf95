"""What there is to say about a testbed, before anything is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.trust import Limits, trust_line
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.results.correlation import NATURAL
from shiftbed.results.plot import Source, open_source
from shiftbed.testbed.record import Testbed

TRUSTED_R2 = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """Lines and models of a testbed, on the shifts that could be computed."""

    lines: pl.DataFrame
    """shift, id, ood, n, slopes, intercepts, r2, mae, reason (why not to trust it, or null)."""
    robustness: pl.DataFrame
    """As ``Testbed.effective_robustness`` gives it."""
    not_computed: tuple[tuple[str, str], ...]
    """Shifts without a line, with the reason."""
    fdr: float
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
) -> Findings:
    """Fit and judge the given shifts (default: the natural ones, or all if there are none).

    A line is trusted if its R² in scaled space is at least 0.9 and nothing else that
    ``analysis.trust`` checks speaks against it.
    """
    opened = open_source(source)
    testbed = opened.testbed
    chosen = [testbed.shift(name) for name in shifts] if shifts else _default(testbed)
    if not chosen:
        raise InputError(f"testbed {testbed.name} has no shifts to report on")
    lines, fitted, failed = [], [], []
    for shift in chosen:
        try:
            line = opened.line(shift)
        except InputError as error:
            failed.append((shift.name, str(error)))
            continue
        fitted.append(line)
        doubts = _doubts(testbed, shift, line)
        lines.append(
            {
                "shift": shift.name,
                "id": " + ".join(shift.source),
                "ood": shift.target,
                "n": line.n,
                "slopes": [weight for piece in line.lines for weight in piece.weights],
                "intercepts": [piece.intercept for piece in line.lines],
                "r2": line.r2,
                "mae": line.mae,
                "reason": "; ".join(doubts) or None,
            }
        )
    if not fitted:
        raise InputError(f"no shift of {testbed.name} could be fitted: {failed[0][1]}")
    table = pl.DataFrame(lines, schema_overrides={"reason": pl.String})
    robustness = testbed.robustness(fitted, fdr=fdr, level=level)
    return Findings(
        lines=table,
        robustness=robustness,
        not_computed=tuple(failed),
        fdr=fdr,
        sentences=tuple(_sentences(testbed, table, robustness, failed, fdr, level)),
    )


def _doubts(testbed: Testbed, shift: Shift, line: Baseline) -> list[str]:
    """What speaks against a line through the fit set."""
    if len(shift.source) > 1 or shift.knee is not None:
        return [f"R² {line.r2:.2f} is below {TRUSTED_R2:g}"] if line.r2 < TRUSTED_R2 else []
    rows = testbed.fit_set(shift)
    sizes = (testbed.usual_size(shift.source[0]), testbed.usual_size(shift.target))
    found = trust_line(
        testbed.accuracy(shift.source[0])[rows],
        testbed.accuracy(shift.target)[rows],
        models=[m for m, fitted in zip(testbed.model_names, rows, strict=True) if fitted],
        sizes=sizes if min(sizes) > 0 else None,
        limits=Limits(r2=TRUSTED_R2),
        line=line,
    )
    return list(found.reasons)


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
        said.append(("warning", f"Lines not to be trusted: {names}."))
    said += [("warning", f"Not computed: {name} ({why}).") for name, why in failed]
    if not robustness["paired"].all():
        said.append(
            (
                "note",
                "Intervals of ρ are conservative where only accuracies are known: images that "
                "models share count as independent.",
            )
        )
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
    if not len(out):
        return text
    best = out.sort("effective", descending=True).row(0, named=True)
    return f"{text} The largest: {_one(best, level)}."


def _own(testbed: Testbed, robustness: pl.DataFrame) -> list[tuple[str, str]]:
    """A sentence for each own model, at most ten."""
    own = robustness.filter(pl.col("kind") == "own")
    said = []
    for (model,), rows in list(own.group_by(["model"], maintain_order=True))[:10]:
        parts = [
            f"{r['shift']} {100 * r['effective']:+.2f}"
            + (" (out of line)" if r["out_of_line"] else "")
            for r in rows.to_dicts()
        ]
        said.append(("finding", f"{model}: ρ in points on {', '.join(parts)}."))
    return said


def _one(row: Mapping[str, Any], level: float) -> str:
    around = ""
    if row["low"] is not None:
        around = f", {100 * level:g} % interval {100 * row['low']:+.2f} to {100 * row['high']:+.2f}"
    return f"{row['model']} on {row['shift']}, ρ {100 * row['effective']:+.2f} points{around}"
