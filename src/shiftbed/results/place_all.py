"""Any number of models against a testbed's lines: every row of a file (``place --from``)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import OnBoundary
from shiftbed.analysis.intervals import benjamini_hochberg, check_level
from shiftbed.analysis.trajectory import held_out_peak
from shiftbed.display import SAID, Cell, Table, counted, interval, p_value, percent, points, records
from shiftbed.errors import InputError
from shiftbed.importing.models import UNSPECIFIED
from shiftbed.records import Shift
from shiftbed.results.caveats import (
    badges,
    caveat_notes,
    failure_notes,
    headline,
    in_words,
    judge,
    verdict,
)
from shiftbed.results.lines import Drawn, fitting, interval_notes
from shiftbed.results.sources import Results, open_results
from shiftbed.scales import Scale
from shiftbed.testbed import Source, Testbed, open_testbed
from shiftbed.testbed.naming import joins, not_recognised
from shiftbed.testbed.select import Choice

_SHOWN = 40
"""Rows of a table that are printed; JSON and files have all."""

_ROUNDING = 0.001
"""Accuracies of one model under two names of a test set may differ by what rounding does."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlacedAll(Drawn):
    """Models of a file on the lines of a testbed; ``frame`` has a row per model and shift, with
    the columns of ``place``."""

    json_keys = (
        "testbed=testbed.name source level fdr all_runs not_matched not_placed not_computed "
        "citation"
    )
    source: str
    fdr: float
    runs: pl.DataFrame
    """Runs of several steps: run, shift, steps, start, peak, peak_step and final ρ. A single run's
    peak is its largest ρ, which is too large by its own noise."""
    all_runs: pl.DataFrame
    """Start, peak and final ρ over the runs of a shift that have steps in common, with intervals;
    the peak at a step that other runs chose (``analysis.trajectory.held_out_peak``)."""
    not_matched: tuple[str, ...]
    """Settings of the file that the testbed does not have."""
    not_placed: tuple[str, ...]
    """Models without both accuracies of any shift."""
    not_computed: tuple[tuple[str, str], ...] = ()

    def answer(self) -> Iterable[str]:
        models, shifts = self.frame["model"].n_unique(), self.frame["shift"].n_unique()
        out = int(self.frame["out_of_line"].sum())
        best = headline(self.frame)
        yield (
            f"{counted(models, 'model')} of {self.source} on {counted(shifts, 'shift')} of "
            f"{self.testbed.name}: {out} of {counted(len(self.frame), 'verdict')} out of line."
        )
        if best is not None:
            yield f"Largest: {best['model']} on {in_words(best, self.level)}"
        elif len(self.frame) <= SAID:
            for row in records(self.frame):
                yield f"{row['model']} on {in_words(row, self.level)}"

    def tables(self) -> Iterable[Table]:
        title = f"{self.source} on {self.testbed.name}"
        alone = self.frame.filter(~pl.col("model").is_in(self._steps.implode()))
        if len(alone):
            columns: dict[str, Cell] = {
                "model": "model",
                "shift": "shift",
                "ID": ("source", percent),
                "OOD": ("target", percent),
                "ρ": ("effective", points),
                f"{100 * self.level:g} % interval": lambda r: interval(r["low"], r["high"]),
                "q": ("q_value", p_value),
                "verdict": badges,
            }
            left = len(alone) - _SHOWN
            more = [f"{counted(left, 'more row')} in the JSON."] if left > 0 else []
            yield Table.of(title, alone.head(_SHOWN), columns, notes=more, left=2)
        if len(self.runs):
            columns = {"run": "run", "shift": "shift", "steps": "steps"}
            columns |= {f"{w} ρ": (w, points) for w in ("start", "peak", "final")}
            columns["peak at step"] = "peak_step"
            noisy = "The peak of one run is its largest ρ, which is too large by its own noise."
            yield Table.of("Runs", self.runs.head(_SHOWN), columns, notes=[noisy], left=2)
        if len(self.all_runs):
            columns = {"shift": "shift", "runs": "n"}
            for when in ("start", "peak", "final"):
                columns[f"{when} ρ"] = (when, points)
                columns[f"{100 * self.level:g} % of {when}"] = _ends(when)
            rule = f"Peak: {self.all_runs['rule'][0]}."
            yield Table.of("All runs", self.all_runs, columns, notes=[rule])
        yield Table(notes=(*self.notes, *([f"Cite: {self.citation}"] if self.citation else [])))

    @property
    def _steps(self) -> pl.Series:
        """Models that are steps of runs."""
        if not len(self.runs):
            return pl.Series("model", [], pl.String)
        return self.frame.filter(pl.col("run").is_in(self.runs["run"].implode()))["model"]

    def to_dict(self) -> dict[str, Any]:
        groups = self.frame.group_by(["model"], maintain_order=True)
        runs = self.runs.group_by(["run"], maintain_order=True)
        models = [{"model": m, "shifts": records(rows.drop("model"))} for (m,), rows in groups]
        told = [{"run": run, "shifts": records(rows.drop("run"))} for (run,), rows in runs]
        return super().to_dict() | {"models": models, "runs": told}


def place_all(
    testbed: Source,
    results: Results | Sequence[Results],
    *,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    unit: str | None = None,
    models: Sequence[str | Path] = (),
    own_images: bool = False,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    knee: float | str | None = "published",
    on_boundary: OnBoundary = "raise",
    level: float = 0.95,
    fdr: float = 0.05,
) -> PlacedAll:
    """Every model of ``results`` on every shift of a testbed that it has the accuracies for.

    ``results`` is a CSV, JSON, JSONL or Parquet file (or a frame, or several) as
    ``import_results`` reads it with ``columns``, ``unit`` and ``models``, a testbed or a store.
    ``own_images`` says that all were measured on other images than the testbed's.

    A model without the accuracy on a shift's class twin is judged by the line
    over the whole ID set, and its caveats say so. Lines are fitted once per shift, through the
    testbed's models only. q-values control the false discovery rate over the whole table. Models
    with a run and a step are told as runs. The options are those of ``place``.

    >>> mine = pl.DataFrame({"model": ["a", "b"], "val": [0.76, 0.8], "imagenet-v2": [0.63, 0.75]})
    >>> place_all("imagenet-testbed-2020", mine).frame["effective"].round(4).to_list()
    [-0.0082, 0.0637]
    """
    options = fitting(locals())
    check_level(fdr, "fdr")
    reading = {"columns": columns, "unit": unit, "models": list(models)}
    bed, given = open_testbed(testbed), open_results(results, **reading)
    matched = joins(bed, given)
    doubts = not_recognised({s: given.usual_size(s) for s in given.settings if s not in matched})
    whole, names = _with_models(bed, given, matched)
    wanted = _shifts(bed, whole.value[len(bed.models) :], list(names))
    if not wanted:
        raise InputError(
            f"no model of {given.name} has both accuracies of a shift of {bed.name}; it has "
            f"{', '.join(given.settings[:8])}" + "".join(f"; {why}" for why in doubts[:2])
        )
    fit_set = {shift: bed.fit_set(shift, fit_on) for shift in wanted}
    found, failed = [], []
    apart = list(names) if own_images else []
    for shift, placed_on in wanted.items():
        chosen = np.append(fit_set[shift], np.zeros(len(names), dtype=bool))
        try:
            judged = judge(
                whole, [shift], level=level, own_images=apart, **options | {"models": chosen}
            )
        except InputError as error:
            failed.append((shift.name, str(error)))
            continue
        found.append(judged.frame.filter(pl.col("model").is_in(list(placed_on))))
    if not found:
        raise InputError(f"no shift of {bed.name} could be fitted: {failed[0][1]}")
    frame = _ordered(pl.concat(found), names, fdr)
    placed = set(frame["model"])
    frame = _with_runs(frame, given)
    not_placed = [name for name in given.model_names if name not in placed]
    unmatched = tuple(s for s in given.settings if s not in matched)
    return PlacedAll(
        frame=frame,
        notes=(
            *_notes(frame, fdr, unmatched, not_placed, failed),
            *(f"{why[:1].upper()}{why[1:]}." for why in doubts),
        ),
        citation=bed.citation,
        called=whole.called,
        testbed=whole,
        shifts=tuple(
            {s.name: s for s in reversed(wanted) if s.name in set(frame["shift"])}.values()
        ),
        options=options,
        level=level,
        marked=(),
        source=given.name,
        fdr=fdr,
        runs=_runs(frame),
        all_runs=_all_runs(frame, level),
        not_matched=unmatched,
        not_placed=tuple(not_placed),
        not_computed=tuple(failed),
    )


def _with_models(
    bed: Testbed, given: Testbed, matched: Mapping[str, str]
) -> tuple[Testbed, dict[str, str]]:
    """The testbed with the file's models outside the fit set, and these models' own names."""
    taken = set(bed.model_names)
    again = {m: f"{m} ({given.name})" if m in taken else m for m in given.model_names}
    value = np.full((len(again), len(bed.settings)), np.nan)
    n = np.zeros(value.shape, dtype=np.int64)
    for setting, meant in matched.items():
        at = bed.setting_index(meant)
        here = given.accuracy(setting)
        other = np.flatnonzero(np.abs(value[:, at] - here) > _ROUNDING)
        if len(other):
            names = " and ".join(repr(s) for s, one in matched.items() if one == meant)
            raise InputError(
                f"{given.name}: {names} are one test set, but model "
                f"{given.model_names[other[0]]!r} has two accuracies on it: "
                f"{value[other[0], at]:g} and {here[other[0]]:g}"
            )
        new = np.isfinite(here) & np.isnan(value[:, at])
        size = np.where(given.size(setting) > 0, given.size(setting), bed.usual_size(meant))
        value[new, at], n[new, at] = here[new], size[new]
    parents = [again.get(p, p) if p is not None else None for p in given.models["parent"]]
    kind = pl.when(pl.col("kind") == UNSPECIFIED).then(pl.lit("own")).otherwise("kind")
    info = given.models.select(kind.fill_null("own").alias("kind")).with_columns(
        pl.Series("model", list(again.values())),
        pl.lit(False).alias("in_fit_set"),
        pl.Series("parent", parents, pl.String),
        pl.lit(given.name).alias("testbed"),
    )
    known = (
        bed.models
        if "testbed" in bed.models.columns
        else bed.models.with_columns(pl.lit(bed.name).alias("testbed"))
    )
    results = {
        setting: replace(
            one,
            bits=one.bits.more(len(again)),
            known=np.append(one.known, np.zeros(len(again), dtype=bool)),
        )
        for setting, one in bed.results.items()
    }
    whole = replace(
        bed,
        models=pl.concat([known, info], how="diagonal"),
        value=np.vstack([bed.value, value]),
        n=np.vstack([bed.n, n]),
        results=results,
    )
    return whole, {new: old for old, new in again.items()}


def _shifts(bed: Testbed, value: np.ndarray[Any, Any], names: list[str]) -> dict[Shift, set[str]]:
    """Which models are judged on which shift: by its class twin, else by the whole ID set."""
    there = np.isfinite(value)
    found: dict[Shift, set[str]] = {}
    for shift in bed.shifts:
        target = there[:, bed.setting_index(shift.target)]
        twin = target & there[:, [bed.setting_index(s) for s in shift.source]].all(axis=1)
        found[shift] = {names[i] for i in np.flatnonzero(twin)}
        if shift.full_source is not None:
            whole = target & ~twin & there[:, bed.setting_index(shift.full_source)]
            found[shift.on_full_source()] = {names[i] for i in np.flatnonzero(whole)}
    return {shift: models for shift, models in found.items() if models}


def _ordered(frame: pl.DataFrame, names: Mapping[str, str], fdr: float) -> pl.DataFrame:
    """Rows in the order of the file, under its own names, false discoveries over all of them."""
    q = pl.Series("q_value", benjamini_hochberg(frame["p_value"]), nan_to_null=True)
    frame = frame.with_columns(q, (q <= fdr).alias("out_of_line"))
    order = pl.col("model").replace_strict(
        {m: i for i, m in enumerate(names)}, return_dtype=pl.Int64
    )
    return frame.sort(order, maintain_order=True).with_columns(
        verdict().alias("verdict"), pl.col("model").replace(dict(names))
    )


def _with_runs(frame: pl.DataFrame, given: Testbed) -> pl.DataFrame:
    if not {"run", "step"} <= set(given.models.columns):
        return frame
    steps = given.models.select("model", pl.col("run").cast(pl.String), pl.col("step"))
    return frame.join(steps, on="model", how="left", maintain_order="left")


def _runs(frame: pl.DataFrame) -> pl.DataFrame:
    """Start, peak and final ρ of every run of two or more steps."""
    if "run" not in frame.columns:
        frame = frame.with_columns(run=pl.lit(None, pl.String), step=pl.lit(None, pl.Int64))
    rows = frame.drop_nulls(["run", "step"]).sort("run", "step", maintain_order=True)
    rho = pl.col("effective")
    return (
        rows.group_by("run", "shift", maintain_order=True)
        .agg(
            pl.len().alias("steps"),
            rho.first().alias("start"),
            rho.max().alias("peak"),
            pl.col("step").get(rho.arg_max()).alias("peak_step"),
            rho.last().alias("final"),
            *(pl.col(end).last().alias(f"final_{end}") for end in ("low", "high")),
        )
        .filter(pl.col("steps") > 1)
    )


def _all_runs(frame: pl.DataFrame, level: float) -> pl.DataFrame:
    """Start, peak and final ρ over the runs of each shift, where two have steps in common."""
    found = []
    for (shift,), rows in frame.group_by(["shift"], maintain_order=True):
        if not {"run", "step"} <= set(rows.columns):
            break
        there = rows.drop_nulls(["run", "step", "effective"])
        wide = there.pivot("run", index="step", values="effective", aggregate_function="first")
        wide = wide.drop_nulls().sort("step")
        if len(wide) < 2 or wide.width < 3:
            continue
        steps = wide["step"].cast(pl.Float64).to_numpy()
        one = held_out_peak(wide.drop("step").to_numpy().T, steps=steps, level=level)
        row: dict[str, Any] = {"shift": shift, "n": one.n, "rule": one.rule, "step": one.step}
        for when in ("start", "peak", "final", "lost"):
            ends = getattr(one, when)
            row |= {when: ends.value, f"{when}_low": ends.low, f"{when}_high": ends.high}
        found.append(row)
    return pl.DataFrame(found)


def _ends(when: str) -> Cell:
    return lambda row: interval(row[f"{when}_low"], row[f"{when}_high"])


def _notes(
    frame: pl.DataFrame,
    fdr: float,
    unmatched: tuple[str, ...],
    not_placed: list[str],
    failed: list[tuple[str, str]],
) -> list[str]:
    notes = [
        "ρ in points. 'out of line': unusual among the baseline models at a false discovery rate "
        f"of {fdr:g} over the whole table.",
        *interval_notes(frame),
        *caveat_notes(frame),
        *failure_notes(failed),
    ]
    if unmatched:
        more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
        notes.append(f"Not in the testbed: {', '.join(unmatched[:5])}{more}.")
    if not_placed:
        notes.append(f"{counted(len(not_placed), 'model')} without both accuracies of a shift.")
    return notes
