"""What there is to say about a testbed, before anything is drawn."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from shiftbed.analysis.baseline import Baseline, OnBoundary
from shiftbed.analysis.trust import Trust
from shiftbed.display import counted
from shiftbed.errors import InputError
from shiftbed.records import NATURAL, Shift
from shiftbed.results.caveats import Verdicts, elsewhere_notes, headline, judge
from shiftbed.results.lines import interval_notes
from shiftbed.results.plot import Source, open_source
from shiftbed.testbed.record import Testbed

MOST = 8
"""Findings that are told; what is left is in the tables."""
OWN = 4
"""Own models that are told of in words."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something to say, and the shift and models whose small chart shows it."""

    level: str
    """finding, warning or note; opening for the author's own words."""
    text: str
    shift: str = ""
    models: tuple[str, ...] = ()


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
    told: tuple[Finding, ...]
    """At most eight findings and warnings, the most important first, then notes."""

    @property
    def sentences(self) -> tuple[tuple[str, str], ...]:
        """(level, text) of what is told, in order."""
        return tuple((one.level, one.text) for one in self.told)

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
        told=tuple(_told(testbed, table, judged, fdr, level)),
    )


def _default(testbed: Testbed) -> list[Shift]:
    natural = [shift for shift in testbed.shifts if shift.kind in NATURAL]
    return natural or list(testbed.shifts)


def shift_titles(testbed: Testbed) -> dict[str, str]:
    """What to call shifts: the OOD set, and the ID set too where several have that OOD set.

    >>> from shiftbed.testbed import published
    >>> shift_titles(published("imagenet-testbed-2020"))["imagenet-v2"]
    'ImageNetV2'
    """
    ood = {shift.name: testbed.title_of(shift.target) for shift in testbed.shifts}
    often = Counter(ood.values())
    return {
        shift.name: ood[shift.name]
        if often[ood[shift.name]] == 1
        else f"{ood[shift.name]} over {' and '.join(map(testbed.title_of, shift.source))}"
        for shift in testbed.shifts
    }


def _told(
    testbed: Testbed,
    lines: pl.DataFrame,
    judged: Verdicts,
    fdr: float,
    level: float,
) -> list[Finding]:
    """The opening of the page, in words and numbers."""
    failed = judged.not_computed
    about = elsewhere_notes(testbed, [shift for shift, _, _ in judged.lines])
    robustness = judged.frame.with_columns(
        said_model=pl.col("model").replace(testbed.called),
        said_shift=pl.col("shift").replace(titles := shift_titles(testbed)),
    )
    out = robustness.filter("out_of_line")
    best = headline(out)
    where = {} if best is None else {"shift": best["shift"], "models": (best["model"],)}
    said = [
        Finding(level="finding", text=" ".join([_scope(testbed, lines), *about])),
        Finding(level="finding", text=_unusual(out, robustness, fdr, level), **where),
    ]
    own, more = _own(robustness)
    said += own
    weak = lines.filter(pl.col("reason").is_not_null())
    warnings = []
    if len(weak):
        names = ", ".join(f"{titles[r['shift']]} ({r['reason']})" for r in weak.to_dicts())
        text = f"Lines through the baseline models not to be trusted: {names}."
        warnings.append(Finding(level="warning", text=text, shift=weak["shift"][0]))
    if failed:
        names = "; ".join(f"{titles.get(name, name)} ({why})" for name, why in failed)
        warnings.append(Finding(level="warning", text=f"Not computed: {names}."))
    told = {one.shift for one in said}
    room = MOST - len(said) - len(warnings)
    said += [one for one in _by_shift(robustness) if one.shift not in told][: max(room, 0)]
    notes = [
        f"{row['said_model']} on {row['said_shift']}: {row['artefact']}."
        for row in robustness.filter(pl.col("artefact").is_not_null()).to_dicts()
    ]
    notes += [*more, *(note.rstrip(".") + "." for note in testbed.notes)]
    notes += interval_notes(robustness)
    return [*said, *warnings, *(Finding(level="note", text=text) for text in notes)]


def _by_shift(robustness: pl.DataFrame) -> list[Finding]:
    """A finding per shift with models out of line that nothing speaks against, most first."""
    fair = robustness.filter(
        pl.col("out_of_line") & pl.col("trusted") & pl.col("artefact").is_null()
    )
    found = []
    for (shift,), rows in fair.group_by(["shift"], maintain_order=True):
        ranked = rows.sort("effective", descending=True)
        above = int((rows["effective"] > 0).sum())
        first = ranked.row(0 if above else -1, named=True)
        text = (
            f"{first['said_shift']}: {counted(len(rows), 'model')} out of line, {above} above the "
            f"line and {len(rows) - above} below; the furthest "
            f"{'above' if above else 'below'} is {first['said_model']} "
            f"({100 * first['effective']:+.2f} points)."
        )
        models = tuple(ranked["model"].head(2) if above else ranked["model"].tail(2))
        found.append((len(rows), Finding(level="finding", text=text, shift=shift, models=models)))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def _scope(testbed: Testbed, lines: pl.DataFrame) -> str:
    shifts = len(lines)
    r2 = lines["r2"].to_numpy()
    around = f"R² {r2[0]:.3f}" if shifts == 1 else f"R² {r2.min():.3f} to {r2.max():.3f}"
    return (
        f"{len(testbed.models):,} models on {shifts} shift{'s' if shifts > 1 else ''}. Each "
        f"{testbed.line} goes through the baseline models only ({around}); effective robustness ρ "
        "is accuracy beyond it."
    )


def _unusual(out: pl.DataFrame, robustness: pl.DataFrame, fdr: float, level: float) -> str:
    count = out["model"].n_unique()
    models = (
        "No model is" if count == 0 else "1 model is" if count == 1 else f"{count:,} models are"
    )
    text = (
        f"{models} out of line on at least one shift (unusual among baseline models, false "
        f"discovery rate {fdr:g}): {len(out):,} of {len(robustness):,} pairs of model and shift."
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


def _own(robustness: pl.DataFrame) -> tuple[list[Finding], list[str]]:
    """A finding for each own model, a few at most, and how many more there are."""
    own = robustness.filter(pl.col("kind") == "own")
    said = []
    models = list(own.group_by(["model"], maintain_order=True))
    for (model,), rows in models[:OWN]:
        parts = [
            f"{r['said_shift']} {100 * r['effective']:+.2f}"
            + (" (out of line)" if r["out_of_line"] else "")
            for r in rows.to_dicts()
        ]
        text = f"{rows['said_model'][0]}: ρ in points on {', '.join(parts)}."
        shift = rows.sort("p_value", nulls_last=True)["shift"][0]
        said.append(Finding(level="finding", text=text, shift=shift, models=(str(model),)))
    left = len(models) - len(said)
    more = [f"{left} more of the models that were added are in the charts."] if left > 0 else []
    return said, more


def _one(row: Mapping[str, Any], level: float) -> str:
    around = ""
    if row["low"] is not None:
        around = f", {100 * level:g} % interval {100 * row['low']:+.2f} to {100 * row['high']:+.2f}"
    rho = f"ρ {100 * row['effective']:+.2f} points{around}"
    return f"{row['said_model']} on {row['said_shift']}, {rho}"
