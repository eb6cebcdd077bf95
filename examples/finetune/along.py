"""ρ along training, as tables: by step, at its largest and at the end, twins against other runs.

A line through checkpoints of the twins says little about those same checkpoints. A twin's run is
therefore judged against the line through all other runs. And the largest of a dozen noisy numbers
is too large: which step is a run's largest is decided by the other runs.
"""

from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from examples.tables import table
from shiftbed.analysis.baseline import Baseline
from shiftbed.display import interval, percent, points
from shiftbed.results.trajectories import trajectories
from shiftbed.testbed import Testbed

__all__ = ["by_step", "gained_and_lost", "judged", "mean_interval", "resampled", "show"]

Pair = tuple[float, float]
RHO = ("effective", "low", "high")
TUNED_ON = "digits"
"""Checkpoints of earlier stages, on other data, are left out."""
COLUMNS = ("model", "run", "step", "in_fit_set", "training_data", "data_size", "grid")


def judged(bed: Testbed, shift: str) -> pl.DataFrame:
    """ρ of every checkpoint on digits; those of the fit set against the line without their own run.

    Columns: those of models named above, source, target (accuracies), effective, low, high (of the
    measurement).
    """
    only = f"training_data={TUNED_ON}"
    found = trajectories(bed, shift, only=only, on_boundary="clip").checkpoints
    kept = found.select("model", "source", "target", *RHO)
    about = bed.models.select(COLUMNS).join(kept, on="model")
    return about.sort("grid", "data_size", "run", "step")


def mean_interval(values: Any, level: float = 0.95) -> tuple[float, float, float]:
    """Mean over runs and its t interval; none (NaN) from one run or equal ones.

    >>> [round(v, 2) for v in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    """
    found = np.asarray(values, dtype=np.float64)
    n, mean = len(found), float(found.mean())
    if n < 2 or np.ptp(found) == 0:
        return mean, float("nan"), float("nan")
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * float(found.std(ddof=1)) / n**0.5
    return mean, mean - half, mean + half


def by_step(found: pl.DataFrame) -> pl.DataFrame:
    """Runs of one grid and size of data averaged at each step: accuracies, ρ with its interval."""
    rows = []
    keys = ["grid", "data_size", "step"]
    for (grid, size, step), some in found.group_by(keys, maintain_order=True):
        mean, low, high = mean_interval(some["effective"])
        rows.append(
            {
                "grid": grid,
                "data_size": size,
                "step": step,
                "source": some["source"].mean(),
                "target": some["target"].mean(),
                "effective": mean,
                "low": low,
                "high": high,
                "runs": len(some),
            }
        )
    return pl.DataFrame(rows).sort("grid", "data_size", "step")


def gained_and_lost(bed: Testbed, shift: str, found: pl.DataFrame) -> pl.DataFrame:
    """For every run outside the fit set: ρ at its start, at the step where the other runs of its
    grid have most (``peak``) and at its end; ``gained`` and ``lost`` with intervals.

    With a single run the step is its own. Intervals are of the test images and the line.
    """
    line = bed.fit(shift, bootstrap=0, on_boundary="clip")
    rows = []
    for (grid, run), own in found.filter(~pl.col("in_fit_set")).group_by(
        ["grid", "run"], maintain_order=True
    ):
        others = found.filter((pl.col("grid") == grid) & (pl.col("run") != run))
        deciding = others if len(others) else own
        best = deciding.group_by("step").agg(pl.col("effective").mean()).sort("effective", "step")
        steps = own.sort("step")
        start, end = steps.row(0, named=True), steps.row(-1, named=True)
        peak = steps.row(by_predicate=pl.col("step") == best["step"][-1], named=True)
        row = {"grid": grid, "run": run}
        for name, one in (("start", start), ("peak", peak), ("end", end)):
            row |= {f"{name}_{key}": one[key] for key in ("step", "source", *RHO)}
        for name, other in (("gained", start), ("lost", end)):
            row |= _change(bed, line, name, peak["model"], other["model"])
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _change(bed: Testbed, line: Baseline, name: str, a: str, b: str) -> dict[str, Any]:
    """ρ(a) − ρ(b), where it can be had with its interval; ``why`` it cannot."""
    if a == b:
        return {name: 0.0, f"{name}_low": None, f"{name}_high": None, f"{name}_why": "same step"}
    found = bed.difference(line, a, b)
    ends = {f"{name}_low": found.low, f"{name}_high": found.high, f"{name}_why": None}
    return {name: found.effective} | ends


def resampled(bed: Testbed, line: Baseline, draws: int = 1000) -> tuple[Pair, Pair]:
    """95 % intervals of slope and R², whole runs resampled: their checkpoints are not independent.

    Draws with fewer than two different runs are left out.
    """
    run_of = dict(zip(bed.models["model"], bed.models["run"], strict=True))
    runs = np.array([run_of[model] for model in line.models])
    piece, names, rng = line.lines[0], np.unique(runs), np.random.default_rng(0)
    x, y = piece.design[:, 1], piece.design @ piece.coefficients + piece.residuals
    found = []
    for _ in range(draws):
        drawn = rng.choice(names, len(names))
        rows = np.concatenate([np.flatnonzero(runs == name) for name in drawn])
        if len(set(drawn)) > 1:
            covariance = np.cov(x[rows], y[rows])
            slope = covariance[0, 1] / covariance[0, 0]
            found.append((slope, slope * covariance[0, 1] / covariance[1, 1]))
    if not found:
        return (float("nan"),) * 2, (float("nan"),) * 2
    low, high = np.quantile(np.array(found), [0.025, 0.975], axis=0)
    return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def show(bed: Testbed, shift: str) -> None:
    """All of it, printed."""
    named = bed.shift(shift)
    line = bed.fit(shift, bootstrap=0, on_boundary="clip")
    slope, fit = resampled(bed, line)
    found = judged(bed, shift)
    sizes = ", ".join(f"{bed.usual_size(s):,} of {s}" for s in (*named.source, named.target))
    table(
        f"\n{shift}: ρ along training",
        ["grid", "data", "step", "ID, %", "OOD, %", "ρ, points", "95 % over runs", "runs"],
        [
            (
                *(row["grid"], row["data_size"], row["step"]),
                *(percent(row["source"]), percent(row["target"])),
                points(row["effective"]),
                interval(row["low"], row["high"]),
                row["runs"],
            )
            for row in by_step(found).iter_rows(named=True)
        ],
        left=2,
        notes=[
            f"Line: {line.n} checkpoints of {_runs(bed)} runs, R² {line.r2:.2f} "
            f"[{fit[0]:.2f}, {fit[1]:.2f}], slope {line.weights[0]:.2f} [{slope[0]:.2f}, "
            f"{slope[1]:.2f}] (95 %, runs resampled). Test images: {sizes}.",
            "Runs in the fit are judged against the line without themselves.",
        ],
    )
    _ends(shift, gained_and_lost(bed, shift, found))


def _ends(shift: str, ends: pl.DataFrame) -> None:
    rows = []
    for row in ends.iter_rows(named=True):
        cells = [row["grid"], row["run"]]
        for name in ("start", "peak", "end"):
            at = f"{row[f'{name}_step']} ({percent(row[f'{name}_source'])} %)"
            cells += [at, _with(row, name, "_effective")]
        cells += [_with(row, name) for name in ("gained", "lost")]
        rows.append(cells)
    notes = []
    for (grid,), some in ends.group_by(["grid"], maintain_order=True):
        for name, column in _MEANS.items():
            mean, low, high = mean_interval(some[column])
            over = interval(low, high) or "no interval from one run"
            notes.append(f"{grid}, {name}: mean of {len(some)} runs {points(mean)} [{over}]")
    table(
        f"{shift}: ρ before, at its largest and at the end, in points",
        ["grid", "run", "first (ID)", "ρ", "step (ID)", "largest ρ", "last (ID)", "ρ",
         "gained", "lost"],
        rows,
        left=2,
        notes=[
            "[95 %: test images and line]. The largest is taken where the other runs have most.",
            *notes,
        ],
    )  # fmt: skip


_MEANS = {
    "ρ before": "start_effective",
    "largest ρ": "peak_effective",
    "ρ at the end": "end_effective",
    "gained": "gained",
    "lost": "lost",
}


def _with(row: dict[str, Any], name: str, rho: str = "") -> str:
    value, low, high = row[name + rho], row[f"{name}_low"], row[f"{name}_high"]
    if low is None:
        return f"{points(value, 1)} ({row[f'{name}_why']})"
    return f"{points(value, 1)} [{points(low, 1)}, {points(high, 1)}]"


def _runs(bed: Testbed) -> int:
    return int(bed.models.filter(pl.col("in_fit_set"))["run"].n_unique())
