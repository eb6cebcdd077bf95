"""ρ along training: runs averaged with their like, and a table of runs (``trajectories``).

andreassen2021: ρ over ID accuracy at every checkpoint (Figures 1 and 3), runs of one kind averaged
in bins of ID accuracy (Appendix B.4), the share of the gap to y = x that is covered (Figure 24),
and the maximum ρ by size of data and model (Figures 4 and 16).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Baseline, OnBoundary
from shiftbed.analysis.trajectory import HeldOutPeak, average_runs, held_out_peak
from shiftbed.display import SAID, Cell, Row, Table, interval, number, percent, points, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.charts import Charted
from shiftbed.results.lines import find_shift, fitting, usual_shift
from shiftbed.results.sources import Results, joined
from shiftbed.scales import Scale
from shiftbed.testbed import Source, Testbed, choose
from shiftbed.testbed.select import Choice

if TYPE_CHECKING:
    from shiftbed.figures.charts import Curves

Floats = NDArray[np.float64]
Draw = Literal["rho", "share", "largest"]
BINS = 100
LEAST_GAP = 0.005
"""Of less than half a point between the line and y = x no share is given."""
_OWN = ("model", "run", "called", "step", "seed", "parent", "setup", "in_fit_set")
"""Columns of models that tell runs or checkpoints apart, not kinds of runs."""
BIASED = "its own largest, biased by its noise"


def trajectories(
    source: Source,
    shift: str | Shift | None = None,
    *,
    id: Sequence[str] | None = None,
    ood: str | None = None,
    by: Sequence[str] | str | None = None,
    only: Choice = "all",
    run: Sequence[str] = (),
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    full_id: bool = False,
    knee: float | str | None = "published",
    on_boundary: OnBoundary = "raise",
    others: Sequence[Results] = (),
    bins: int | None = None,
    over: str | None = None,
    draw: Draw = "rho",
    level: float = 0.95,
) -> "Trajectories":
    """ρ of every run along its steps, and the mean over runs of one kind.

    Runs are of one kind if all of their arguments but the seed are the same; ``by`` names columns
    of models to go by instead. ``only`` and ``run`` narrow the runs, not the models that are fitted
    (``fit_on``). A run that has checkpoints in the line is judged against the line without them.
    ``bins`` of ID accuracy are 100, or as many as a run has checkpoints if these are fewer; a bin
    that fewer than half of the runs (or than two) reach is left out. ``over`` is a column of
    models, such as data_size or parameters, to list the maximum ρ by; ``draw`` is what ``chart``
    shows.
    """
    options = fitting(locals())
    bed = joined(source, others)
    for column in ("run", "step"):
        if column not in bed.models.columns:
            raise InputError(f"{bed.name} has no column {column!r}: no trajectory to draw")
    named = shift is not None or id or ood
    wanted = find_shift(bed, shift, id, ood) if named else usual_shift(bed)
    wanted = wanted.on_full_source() if full_id else wanted
    line = bed.fit(wanted, bootstrap=0, **options)
    if len(line.id_settings) != 1:
        raise InputError(f"a trajectory needs one ID setting, {line.shift!r} has several")
    steps = _checkpoints(bed, line, only, run, level)
    steps = _without_own(bed, line, wanted, options, steps).with_columns(
        share_of_gap=pl.when(pl.col("reference").abs() >= LEAST_GAP).then("share_of_gap")
    )
    kinds, about = _kinds(bed.models, steps, by)
    steps = steps.join(kinds, on="run", maintain_order="left")
    curves, rows, means = [], [], []
    for (kind,), some in steps.group_by(["kind_of_run"], maintain_order=True):
        found = _binned(some, bins)
        curves.append(found.with_columns(kind=pl.lit(kind)))
        rows += _runs(bed, line, some, level)
        means.append(_mean(bed, line, str(kind), some, found, level) | about[str(kind)])
    if over is not None and over not in pl.DataFrame(means, infer_schema_length=None).columns:
        raise unknown("column that is one for each kind of run", over, sorted(means[0]))
    return Trajectories(
        frame=pl.DataFrame(rows, infer_schema_length=None),
        citation=bed.citation,
        called=bed.called,
        kinds=pl.DataFrame(means, infer_schema_length=None),
        curves=pl.concat(curves).select("kind", pl.exclude("kind")),
        checkpoints=steps,
        line=line,
        testbed=bed,
        level=level,
        over=over,
        draw=draw,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trajectories(Charted):
    """Runs along training; ``frame`` has a row per run.

    run, kind, steps; of start, peak and final each start_rho, start_low, start_high, start_source
    (ID accuracy) and start_share (of the gap); step (of the peak), rule (how it was chosen);
    largest and largest_step (the plain maximum).
    """

    json_keys = "line.shift fitted=line.n level runs=frame kinds curves"
    kinds: pl.DataFrame
    """A row per kind of run: kind, runs; start_rho, peak_rho, final_rho and lost_rho with ends over
    runs (start_low, …), step, rule; largest (of the mean over bins), largest_at, largest_std (over
    all bins), largest_std_there; shares of the gap; and the columns of models that all runs of a
    kind have in common."""
    curves: pl.DataFrame
    """The mean over runs: kind, centre, mean, std, n, runs (checkpoints and runs in a bin)."""
    checkpoints: pl.DataFrame
    """model, run, step, source, target, effective, low, high, share_of_gap, reference (ρ of y = x
    there), kind_of_run."""
    line: Baseline
    testbed: Testbed
    level: float
    over: str | None = None
    draw: Draw = "rho"

    def answer(self) -> Iterable[str]:
        for row in records(self.kinds.head(SAID)):
            lost = (row["lost_low"] or 0.0) > 0
            yield (
                f"{row['kind']}: ρ is {points(row['start_rho'])} at the start, "
                f"{points(row['peak_rho'])} at its peak and {points(row['final_rho'])} at the end: "
                f"{'robustness is lost' if lost else 'no significant loss'}."
            )

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {"kind": "kind", "runs": "runs"}
        for name in ("start", "peak", "final", "lost"):
            columns[f"ρ {name}" if name != "lost" else "lost"] = _with_ends(name)
        columns |= {
            "step": ("step", lambda v: "" if v is None else f"{v:g}"),
            "gap covered, peak": ("peak_share", percent),
            "final": ("final_share", percent),
            "largest of bins": lambda r: _spread(r),
        }
        setting = self.testbed.title_of(self.line.id_settings[0])
        yield Table.of(
            f"{self.testbed.name}: ρ along training, {self.line.shift}",
            self.kinds,
            columns,
            notes=[
                f"Points; [{100 * self.level:g} % intervals over runs, of one run over images]. "
                f"Line through {self.line.n} models, a run's own left out.",
                *(f"Peak: {rule}." for rule in dict.fromkeys(self.kinds["rule"])),
                "Gap covered: ρ as a share of the way from the line to y = x (%), where that is "
                "half a point or more. Largest of bins: of the mean over runs, ± the largest "
                "standard deviation, biased upwards.",
                *self.notes,
            ],
        )
        each: dict[str, Cell] = {"run": "run", "kind": "kind", "steps": "steps"}
        for name in ("start", "peak", "final"):
            each |= {f"{name}: ID, %": (f"{name}_source", percent), f"ρ {name}": _with_ends(name)}
        each |= {"step": ("step", lambda v: f"{v:g}"), "peak by": "rule"}
        if self.frame["kind"].n_unique() == 1:
            del each["kind"]
        notes = [f"ID: {setting}. Intervals are of the test images and the line."]
        yield Table.of("Runs", self.frame, each, notes=notes, left=2)
        if self.over is not None:
            shown = {self.over: self.over, "kind": "kind", "runs": "runs"}
            largest = {"ρ peak": _with_ends("peak"), "largest of bins": _spread}
            title = f"Maximum ρ by {self.over}"
            yield Table.of(title, self.largest(), shown | largest, left=2)

    def largest(self) -> pl.DataFrame:
        """The kinds in the order of the column ``over``."""
        return self.kinds if self.over is None else self.kinds.sort(self.over)

    def chart(
        self,
        draw: str | None = None,
        *,
        colour: str | None = None,
        highlight: Sequence[str] = (),
        level: float | None = None,
    ) -> "Curves":
        """ρ over ID accuracy (``rho``), the ``share`` of the gap, or the ``largest`` ρ by ``over``.

        ``colour`` is a column of models that is one for each kind; ``highlight`` names kinds, runs
        or models.
        """
        from shiftbed.results.charts.trajectories import drawn

        return drawn(self, draw or self.draw, colour=colour, highlight=highlight, level=level)


def _with_ends(name: str) -> Cell:
    def cell(row: Row) -> str:
        rho = row[f"{name}_rho"]
        if rho is None:
            return ""
        ends = interval(row[f"{name}_low"], row[f"{name}_high"])
        return f"{points(rho)} [{ends}]" if ends else points(rho)

    return cell


def _spread(row: Row) -> str:
    if row["largest"] is None:
        return ""
    return f"{points(row['largest'])} ± {number(100 * row['largest_std'], 2)}"


def _checkpoints(
    bed: Testbed, line: Baseline, only: Choice, run: Sequence[str], level: float
) -> pl.DataFrame:
    """ρ of the checkpoints of runs with two or more steps, in their order."""
    kept = ("model", "source", "target", "effective", "low", "high", "share_of_gap", "reference")
    found = bed.robustness([line], level=level).select(kept)
    steps = bed.models.filter(pl.Series(choose(bed.models, only))).select("model", "run", "step")
    table = steps.drop_nulls().with_columns(pl.col("run").cast(pl.String))
    table = table.join(found, on="model", maintain_order="left")
    table = table.filter(pl.col("effective").is_finite() & pl.col("source").is_finite())
    table = table.filter(pl.len().over("run") > 1)
    known = table["run"].unique(maintain_order=True).to_list()
    for name in run:
        if name not in known:
            raise unknown("run", name, known)
    if run:
        table = table.filter(pl.col("run").is_in(list(run)))
    if not len(table):
        raise InputError(f"{bed.name} has no run with two or more steps: nothing to draw")
    order = {name: i for i, name in enumerate(known)}
    return table.sort(pl.col("run").replace_strict(order, return_dtype=pl.Int64), "step")


def _without_own(
    bed: Testbed,
    line: Baseline,
    shift: Shift,
    options: Mapping[str, Any],
    steps: pl.DataFrame,
) -> pl.DataFrame:
    """Runs in the fit judged by the line through the others; their intervals move with ρ."""
    fitted = set(line.models)
    inside = steps.filter(pl.col("model").is_in(list(fitted)))["run"].unique(maintain_order=True)
    if not len(inside):
        return steps
    rows = bed.fit_set(shift, options["models"])
    runs = bed.models["run"].cast(pl.String).fill_null("").to_numpy()
    parts = []
    for (name,), own in steps.group_by(["run"], maintain_order=True):
        left = rows & (runs != name)
        if name in set(inside) and left.any():
            other = bed.fit(shift, bootstrap=0, **{**options, "models": left})
            x, y = own["source"].to_numpy(), own["target"].to_numpy()
            rho = y - other.predict(x)
            gap = x - other.predict(x)
            moved = pl.Series(rho - own["effective"].to_numpy())
            own = own.with_columns(
                effective=pl.Series(rho),
                reference=pl.Series(gap),
                share_of_gap=pl.Series(rho / np.where(gap == 0, np.nan, gap)),
                low=pl.col("low") + moved,
                high=pl.col("high") + moved,
            )
        parts.append(own)
    return pl.concat(parts)


def _kinds(
    models: pl.DataFrame, steps: pl.DataFrame, by: Sequence[str] | str | None
) -> tuple[pl.DataFrame, dict[str, dict[str, Any]]]:
    """The kind of each run, and what the models of a kind have in common.

    By ``by``; else by ``setup`` (all arguments but the seed), where ``train`` wrote it, and by
    every column that is the same along each run.
    """
    mine = models.join(steps.select("model"), on="model", how="semi")
    mine = mine.with_columns(pl.col("run").cast(pl.String))
    named = [by] if isinstance(by, str) else list(by or ())
    for column in named:
        if column not in models.columns:
            raise unknown("column of models", column, models.columns)
    per_run = mine.group_by("run", maintain_order=True)
    single = [
        c
        for c in mine.columns
        if c == "run" or per_run.agg(pl.col(c).n_unique()).get_column(c).max() == 1
    ]
    for column in named:
        if column not in single:
            raise InputError(f"by: {column!r} changes along a run, so runs cannot be grouped by it")
    first = per_run.first()
    plain = [c for c in single if c not in _OWN]
    keys = named or [*(["setup"] if "setup" in single else []), *plain]
    if not keys:
        first, keys = first.with_columns(all=pl.lit("all runs")), ["all"]
    differ = [c for c in named if first[c].n_unique() > 1] if named else _telling(first, plain)
    labels: dict[tuple[Any, ...], str] = {}
    found: dict[str, dict[str, Any]] = {}
    kind_of = []
    for row in first.iter_rows(named=True):
        key = tuple(row[c] for c in keys)
        if key not in labels:
            there = [c for c in differ if row[c] is not None] or differ[:1]
            name = ", ".join(_said(c, row[c], bool(named)) for c in there) or "all runs"
            same = sum(one.partition(" (setup ")[0] == name for one in labels.values())
            labels[key] = name if not same else f"{name} (setup {same + 1})"
        kind_of.append(labels[key])
    with_kind = first.with_columns(kind_of_run=pl.Series(kind_of))
    for name in dict.fromkeys(kind_of):
        own = with_kind.filter(kind_of_run=name)
        shared = {c: own[c][0] for c in plain if c != "kind" and own[c].n_unique() == 1}
        found[name] = shared
    return with_kind.select("run", "kind_of_run"), found


def _telling(runs: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Few columns that tell apart what all of them do, those known of every run first.

    >>> runs = pl.DataFrame({"kind": ["a", "b"], "tune": ["x", "y"], "lr": [0.1, 0.1]})
    >>> _telling(runs, ["kind", "tune", "lr"])
    ['kind']
    """
    chosen: list[str] = []
    groups = 1
    for column in sorted(columns, key=lambda c: runs[c].null_count() > 0):
        more = runs.select(*chosen, column).unique().height
        if more > groups:
            chosen, groups = [*chosen, column], more
    return chosen


def _said(column: str, value: Any, bare: bool) -> str:
    """A value as part of a kind's name: a number or a boolean needs its column beside it."""
    if value is None:
        return f"no {column}"
    if isinstance(value, str):
        return value
    text = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return text if bare else f"{column} {text}"


def _binned(some: pl.DataFrame, bins: int | None) -> pl.DataFrame:
    """The mean over runs in bins of ID accuracy that half of the runs, and two, reach."""
    counts = some.group_by("run").len()["len"]
    wide = bins if bins is not None else min(BINS, int(np.median(counts.to_numpy())))
    x, rho, run = (some[c].to_numpy() for c in ("source", "effective", "run"))
    fewest = min(len(counts), max(2, (len(counts) + 1) // 2))
    mean = average_runs(x, rho, run, bins=wide, fewest=fewest)
    names = ("centre", "mean", "std", "n", "runs")
    return pl.DataFrame({name: getattr(mean, name) for name in names})


def _runs(bed: Testbed, line: Baseline, some: pl.DataFrame, level: float) -> list[dict[str, Any]]:
    """A row per run of one kind; its peak where the other runs have theirs."""
    rows = []
    for (name,), own in some.group_by(["run"], maintain_order=True):
        rest = some.filter((pl.col("run") != name) & pl.col("step").is_in(own["step"].implode()))
        start, final = own.row(0, named=True), own.row(-1, named=True)
        most = own.row(int(own["effective"].arg_max() or 0), named=True)
        row = {"run": name, "kind": own["kind_of_run"][0], "steps": len(own)}
        on_images = None if len(rest) else _on_images(bed, line, own, level)
        if len(rest):
            chosen = rest.group_by("step").agg(pl.col("effective").mean()).sort("step")
            best = chosen["step"][int(chosen["effective"].arg_max() or 0)]
            top, rule = own.filter(step=best).row(0, named=True), "the other runs of its kind"
        elif on_images is not None:
            best, top = on_images.step, own.filter(step=on_images.step).row(0, named=True)
            at = on_images.peak
            top |= {"effective": at.value, "low": at.low, "high": at.high, "share_of_gap": None}
            rule = "the other half of the images"
        else:
            best, top, rule = most["step"], most, BIASED
        for part, one in (("start", start), ("peak", top), ("final", final)):
            row |= {f"{part}_rho": one["effective"], f"{part}_source": one["source"]}
            row |= {f"{part}_low": one["low"], f"{part}_high": one["high"]}
            row[f"{part}_share"] = one["share_of_gap"]
        largest = {"largest": most["effective"], "largest_step": most["step"]}
        rows.append(row | {"step": best, "rule": rule} | largest)
    return rows


def _on_images(bed: Testbed, line: Baseline, own: pl.DataFrame, level: float) -> HeldOutPeak | None:
    """The peak of one run with its step chosen on half of the images, where answers are known."""
    settings = (line.id_settings[0], line.ood_setting)
    results = [bed.results.get(setting) for setting in settings]
    rows = [bed.model_index(name) for name in own["model"]]
    if any(one is None or not one.known[rows].all() for one in results):
        return None
    rho, errors = np.zeros((2, len(rows))), np.zeros((2, len(rows)))
    for half in (0, 1):
        right = [one.bits[rows][:, half::2] for one in results if one is not None]
        (x, y), (n_id, n_ood) = [r.mean(axis=1) for r in right], [r.shape[1] for r in right]
        inside = np.clip(x, 0.5 / n_id, 1 - 0.5 / n_id)
        rho[half] = y - line.predict(inside)
        step = 1e-4
        slope = (line.predict(np.minimum(inside + step, 1 - 1e-9)) - line.predict(inside)) / step
        errors[half] = np.sqrt(y * (1 - y) / n_ood + slope**2 * inside * (1 - inside) / n_id)
    steps = own["step"].to_numpy()
    return held_out_peak(rho, steps=steps, errors=errors, across="images", level=level)


def _mean(
    bed: Testbed, line: Baseline, kind: str, some: pl.DataFrame, curve: pl.DataFrame, level: float
) -> dict[str, Any]:
    """A kind's row: start, peak, final and lost over its runs, and the largest of the bins."""
    runs = some["run"].n_unique()
    row: dict[str, Any] = {"kind": kind, "runs": runs}
    wide = some.pivot("run", index="step", values="effective").drop_nulls().sort("step")
    found = None
    if runs == 1:
        found = _on_images(bed, line, some, level)
    elif len(wide) > 1:
        values = wide.drop("step").to_numpy().T
        found = held_out_peak(values, steps=wide["step"].to_numpy(), level=level)
    for part in ("start", "peak", "final", "lost"):
        one = getattr(found, part, None)
        for end, value in (("_rho", "value"), ("_low", "low"), ("_high", "high")):
            row[part + end] = None if one is None else getattr(one, value)
    row["step"] = None if found is None else found.step
    row["rule"] = "no steps in common, or no answers per image" if found is None else found.rule
    firsts = some.group_by("run", maintain_order=True)
    row["start_share"] = firsts.first()["share_of_gap"].mean()
    at = some.filter(step=row["step"])["share_of_gap"] if found is not None else None
    row["peak_share"] = None if at is None else at.mean()
    row["final_share"] = firsts.last()["share_of_gap"].mean()
    top = curve.row(int(curve["mean"].arg_max() or 0), named=True) if len(curve) else {}
    row |= {"largest": top.get("mean"), "largest_at": top.get("centre")}
    row |= {"largest_std": curve["std"].max() if len(curve) else None}
    return row | {"largest_std_there": top.get("std"), "largest_n": top.get("n")}
