"""A testbed's models by effective robustness: all of them (``rank``), or two (``compare``)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import OnBoundary
from shiftbed.analysis.intervals import benjamini_hochberg
from shiftbed.display import SAID, Cell, Row, Table, interval, p_value, percent, points, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.caveats import (
    caveat_notes,
    doubts,
    failure_notes,
    headline,
    in_words,
    judge,
    unjudged_notes,
)
from shiftbed.results.lines import TESTBED, Drawn, find_shift, fitting, interval_notes
from shiftbed.results.sources import Results, joined
from shiftbed.scales import Scale
from shiftbed.testbed import Source, choose
from shiftbed.testbed.select import Choice

SORTED_BY = ("effective", "relative", "p_value", "target")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ranked(Drawn):
    """Models in the order of their effective robustness; ``frame`` has a row per model and shift,
    with the columns of ``Testbed.effective_robustness``."""

    title: str
    most: int
    """How many rows are shown; 0 for all."""
    listed: int
    """How many rows JSON has; 0 for all."""
    not_computed: tuple[tuple[str, str], ...] = ()
    """Shifts without a line, with the reason."""

    @property
    def shown(self) -> pl.DataFrame:
        return self.frame.head(self.most) if self.most else self.frame

    def answer(self) -> Iterable[str]:
        return [self.headline]

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {
            "model": "model",
            "kind": "kind",
            "shift": "shift",
            "ID": ("source", percent),
            "OOD": ("target", percent),
            "ρ": ("effective", points),
            f"{100 * self.level:g} % interval": _interval,
            "τ": ("relative", points),
            "p": ("p_value", p_value),
            "": _badges,
        }
        if self.frame["testbed"].n_unique() > 1:
            columns["testbed"] = "testbed"
        notes = [f"{len(self.shown)} of {len(self.frame)} rows. {self.notes[0]}", *self.notes[1:]]
        return [Table.of(self.title, self.shown, columns, notes=notes, left=3)]

    @property
    def headline(self) -> str:
        """The largest ρ that is no artefact and whose line is trusted, in words."""
        best = headline(self.frame)
        if best is None:
            return "No model is out of line on a line that is trusted."
        return f"Largest: {best['model']} on {in_words(best, self.level)}"

    def to_dict(self) -> dict[str, Any]:
        largest = headline(self.frame)
        return {
            "n": len(self.frame),
            "largest": None if largest is None else [largest["model"], largest["shift"]],
            "models": records(self.frame.head(self.listed) if self.listed else self.frame),
            "not_computed": [list(one) for one in self.not_computed],
        }


def rank(
    testbed: Source = TESTBED,
    shift: str | Shift | None = None,
    *,
    id: Sequence[str] | None = None,
    ood: str | None = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    full_id: bool = False,
    knee: float | str | None = "published",
    on_boundary: OnBoundary = "raise",
    others: Sequence[Results] = (),
    only: Choice = "all",
    by: str = "effective",
    most: int | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> Ranked:
    """A testbed's models by effective robustness on a shift, or on all of its shifts.

    ``only`` narrows the models that are ranked, not those that are fitted (``fit_on``); ``by``
    is effective, relative, p_value or target; ``most`` is how many rows are shown: 15 by default
    (JSON has all where there are others), 0 for all. ``others`` are further testbeds, stores or
    files of results, whose models the testbed's lines judge too. A model that its test set was
    filtered with or that was trained on it, and any model on a line that is not trusted, is listed
    with that badge and is not called the largest.

    >>> rank("imagenet-testbed-2020", "imagenet-v2").frame["model"][0]
    'resnet152-imagenet11k'
    """
    options = fitting(locals())
    if by not in SORTED_BY:
        raise unknown("column to sort by", by, SORTED_BY)
    if most is not None and most < 0:
        raise InputError(f"most must not be negative (0 shows all rows), got {most}")
    bed, shown = joined(testbed, others), 15 if most is None else most
    several = shift is None and not id and not ood
    wanted = None if several else find_shift(bed, shift, id, ood)
    if full_id and several and not any(one.full_source for one in bed.shifts):
        raise InputError(f"no shift of {bed.name} has a class twin to replace by the whole ID set")
    shifts = bed.shifts if wanted is None else (wanted,)
    if full_id:
        shifts = tuple(s.on_full_source() if s.full_source or wanted else s for s in shifts)
    judged = judge(bed, shifts, level=level, fdr=fdr, **options)
    names = bed.models.filter(pl.Series(choose(bed.models, only)))["model"]
    found = judged.frame.filter(pl.col("model").is_in(names.implode()))
    found = found.sort(by, descending=by != "p_value", nulls_last=True)
    notes = [
        "ρ and τ in points. 'out of line': unusual among the baseline models at a false "
        f"discovery rate of {fdr:g}.",
        *interval_notes(found),
        *caveat_notes(found.head(shown) if shown else found),
        *failure_notes(judged.not_computed),
        *(unjudged_notes(bed, [judged.lines[0][0]]) if wanted else []),
        *bed.notes,
    ]
    return Ranked(
        frame=found,
        notes=tuple(notes),
        citation=bed.citation,
        called=bed.called,
        title=f"{bed.name}: {'all shifts' if wanted is None else wanted.name}",
        most=shown,
        listed=0 if most is None and others else shown,
        not_computed=judged.not_computed,
        testbed=bed,
        shifts=shifts,
        options=options,
        level=level,
    )


def _interval(row: Row) -> str:
    return interval(row["low"], row["high"])


def _badges(row: Row) -> str:
    return ", ".join([*(["out of line"] if row["out_of_line"] else []), *doubts(row)])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Compared(Drawn):
    """Two models a and b, and the difference of their effective robustness.

    ``frame`` has a row per shift: ID and OOD accuracy and ρ with its interval of each (id_a, …),
    then the difference ρ(a) − ρ(b) with low, high, p_value, q_value and paired, and the caveats.
    """

    models: tuple[str, str]
    fdr: float
    rows: pl.DataFrame
    """Both models on every shift, as ``rank`` lists them: ρ, verdict, trust, caveats, …"""
    not_evaluated: tuple[str, ...]
    """Shifts on which one of the two was not evaluated."""
    not_computed: tuple[tuple[str, str], ...] = ()
    """Shifts without a line, with the reason."""

    def answer(self) -> Iterable[str]:
        return [self._in_words(row) for row in records(self.frame.head(SAID))]

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {"shift": "shift"}
        for title, key, form in (("ID", "id", percent), ("OOD", "ood", percent),
                                 ("ρ", "effective", points)):  # fmt: skip
            columns |= {f"{title} A": (f"{key}_a", form), f"{title} B": (f"{key}_b", form)}
        columns |= {"ρ A − ρ B": ("difference", points), "interval": _interval}
        columns["q"] = ("q_value", p_value)
        title = f"{self.testbed.name}: A = {self.models[0]}, B = {self.models[1]}"
        return [Table.of(title, self.frame, columns, notes=self.notes)]

    def _in_words(self, row: Row) -> str:
        better = self.models[0 if row["difference"] > 0 else 1]
        told = row["q_value"] is not None and row["q_value"] <= self.fdr
        who = f"{better} is more robust" if told else "no significant difference in robustness"
        around = f", {100 * self.level:g} % interval {_interval(row)}" if _interval(row) else ""
        return f"{row['shift']}: {who} (ρ A − ρ B {points(row['difference'])} points{around})."

    def to_dict(self) -> dict[str, Any]:
        shifts = []
        for row in records(self.frame):
            both = [_row(self.rows, model, row["shift"]) for model in self.models]
            shifts.append(
                {
                    "shift": row["shift"],
                    **{k: [row[f"{k}_a"], row[f"{k}_b"]] for k in ("id", "ood", "effective")},
                    **{k: row[k] for k in ("difference", "low", "high", "p_value", "paired")},
                    "q_value": row["q_value"],
                    **{k: [one[k] for one in both] for k in ("source", "extrapolated", "verdict")},
                    **{k: both[0][k] for k in ("trusted", "r2", "families", "id_settings")},
                    "interval": row["interval"],
                    "caveats": row["caveats"],
                    "rows": both,
                }
            )
        found = {"models": list(self.models), "shifts": shifts}
        return found | {
            "not_evaluated": list(self.not_evaluated),
            "not_computed": [list(one) for one in self.not_computed],
        }


def _row(rows: pl.DataFrame, model: str, shift: str) -> dict[str, Any]:
    wanted = (pl.col("model") == model) & (pl.col("shift") == shift)
    return rows.row(by_predicate=wanted, named=True)


def compare(
    a: str,
    b: str,
    testbed: Source = TESTBED,
    *,
    shift: str | Shift | Sequence[str | Shift] | None = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    on_boundary: OnBoundary = "raise",
    others: Sequence[Results] = (),
    level: float = 0.95,
    fdr: float = 0.05,
) -> Compared:
    """Two models of a testbed on its shifts (or those given): ρ of each, and the difference.

    Image noise that both share cancels in the difference, so its interval is not that of two
    separate measurements. q-values of differences control the false discovery rate over the shifts;
    what ``rank`` says of each model (``rows``), ``fdr`` over the models judged on a shift.
    ``others`` are as for ``rank``.

    >>> found = compare("resnet50", "vgg16", shift="imagenet-v2")
    >>> found.frame["difference"].round(4).to_list()
    [-0.0044]
    """
    options = fitting(locals())
    bed = joined(testbed, others)
    at = [bed.model_index(a), bed.model_index(b)]
    names = (bed.model_names[at[0]], bed.model_names[at[1]])
    given = [shift] if isinstance(shift, str | Shift) else shift
    there, skipped = [], []
    for one in [bed.shift(s) for s in given] if given else bed.shifts:
        values = [bed.accuracy(setting)[at] for setting in (*one.source, one.target)]
        if np.isfinite(values).all():
            there.append(one)
        else:
            skipped.append(one.name)
    if not there:
        raise InputError(f"{names[0]!r} and {names[1]!r} were not both evaluated on any shift")
    judged = judge(bed, there, level=level, fdr=fdr, **options)
    rows = judged.frame.filter(pl.col("model").is_in(names))
    found = []
    for one, line, _ in judged.lines:
        gap = asdict(bed.difference(line, *names, level=level))
        record: dict[str, Any] = {"shift": one.name}
        caveats: list[str] = []
        for which, model in zip("ab", names, strict=True):
            row = _row(rows, model, one.name)
            record |= {f"id_{which}": row["source"], f"ood_{which}": row["target"]}
            record |= {f"{key}_{which}": row[key] for key in ("effective", "low", "high")}
            caveats += row["caveats"]
        record |= {"difference": gap.pop("effective"), **gap}
        found.append({**record, "caveats": list(dict.fromkeys(caveats))})
    frame = pl.DataFrame(found, schema_overrides={"caveats": pl.List(pl.String)}).with_columns(
        pl.Series("q_value", benjamini_hochberg([one["p_value"] for one in found]))
    )
    frame = frame.with_columns(pl.col(pl.Float64).fill_nan(None))
    notes = [f"Not evaluated for both: {', '.join(skipped)}."] if skipped else []
    return Compared(
        frame=frame,
        notes=(
            *notes,
            *interval_notes(frame),
            *caveat_notes(rows),
            *failure_notes(judged.not_computed),
        ),
        citation=bed.citation,
        called=bed.called,
        testbed=bed,
        shifts=tuple(shift for shift, _, _ in judged.lines),
        options=options,
        level=level,
        marked=names,
        models=names,
        fdr=fdr,
        rows=rows,
        not_evaluated=tuple(skipped),
        not_computed=judged.not_computed,
    )
