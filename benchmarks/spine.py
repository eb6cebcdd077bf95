"""Fit + 1,000 bootstraps + ρ with intervals, against a loop of scipy.stats.linregress.

    python -m benchmarks.spine [--quick] [--json]

Both do all shifts of imagenet-testbed-2020 that need one line (quick: some of them), side by side
in one run, alternating; and the cost's growth with models and with shifts is fitted as a power.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
from scipy.special import expit, logit
from scipy.stats import linregress, norm

import shiftbed as sb
from benchmarks.common import arguments, report
from shiftbed.records import Shift
from shiftbed.testbed import Testbed, choose


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def loop(testbed: Testbed, shifts: list[Shift], draws: int = 1000) -> list[np.ndarray]:
    """What a notebook does: a call of linregress per resample, binomial noise added."""
    rng, fit = np.random.default_rng(0), choose(testbed.models)
    out = []
    for shift in shifts:
        x, y = testbed.accuracy(shift.source[0]), testbed.accuracy(shift.target)
        rows = np.flatnonzero(fit & np.isfinite(x) & np.isfinite(y))
        line = linregress(logit(x[rows]), logit(y[rows]))
        rho = y - expit(line.slope * logit(x) + line.intercept)
        predicted = np.empty((draws, len(x)))
        for i in range(draws):
            some = rng.choice(rows, len(rows))
            drawn = linregress(logit(x[some]), logit(y[some]))
            predicted[i] = expit(drawn.slope * logit(x) + drawn.intercept)
        slope = line.slope * (y - rho) * (1 - y + rho) / (x * (1 - x))
        noise = y * (1 - y) / testbed.size(shift.target)
        noise = noise + slope**2 * x * (1 - x) / testbed.size(shift.source[0])
        half = norm.ppf(0.975) * np.sqrt(predicted.var(axis=0) + noise)
        out.append(np.stack([rho, rho - half, rho + half]))
    return out


def grown(models: int, shifts: int) -> Testbed:
    """A testbed of that size, by repeating the published one with a little noise."""
    base = sb.published("imagenet-testbed-2020")
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(base.models), models)
    frame = base.models[rows].with_columns(pl.Series("model", [f"m{i}" for i in range(models)]))
    frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias("parent"))
    value = np.clip(base.value[rows] + rng.normal(0, 0.001, (models, 1)), 0.01, 0.99)
    simple = [s for s in base.shifts if s.knee is None]
    wanted = tuple(replace(simple[i % len(simple)], name=f"s{i}") for i in range(shifts))
    return replace(base, models=frame, value=value, n=base.n[rows], shifts=wanted)


def exponent(sizes: list[int], make: Callable[[int], Testbed], rounds: int) -> float:
    """Slope of log(time) on log(size), each size timed at its best of some rounds."""
    beds = [make(size) for size in sizes]
    best = [
        min(seconds(lambda b=b: b.effective_robustness(bootstrap=1000)) for _ in range(rounds))
        for b in beds
    ]
    return float(np.polyfit(np.log(sizes), np.log(best), 1)[0])


def main() -> None:
    options = arguments(__doc__)
    testbed = sb.published("imagenet-testbed-2020")
    shifts = [s for s in testbed.shifts if s.knee is None]
    count, rounds = (10, 3) if options.quick else (len(shifts), 5)
    some = shifts[:: max(1, len(shifts) // count)]
    ours, theirs, worst = [], [], 0.0
    with np.errstate(all="ignore"):
        table = testbed.effective_robustness(some, bootstrap=1000)  # also warms up
        for _ in range(rounds):
            theirs.append(seconds(lambda: loop(testbed, some)))
            ours.append(seconds(lambda: testbed.effective_robustness(some, bootstrap=1000)))
        for shift, naive in zip(some, loop(testbed, some, draws=2), strict=True):
            part = table.filter(pl.col("shift") == shift.name)["effective"].to_numpy()
            worst = max(worst, float(np.abs(part - naive[0][np.isfinite(naive[0])]).max()))
    sizes = [200, 400, 800, 1600] if options.quick else [200, 400, 800, 1600, 3200, 6400]
    report(
        {
            "shifts": len(some),
            "models": len(testbed.models),
            "ratio": float(np.median(np.array(theirs) / np.array(ours))),
            "largest_difference_of_rho": worst,
            "loop_seconds": float(np.median(theirs)),
            "shiftbed_seconds": float(np.median(ours)),
            "exponent_models": exponent(sizes, lambda m: grown(m, 20), rounds),
            "exponent_shifts": exponent([20, 40, 80, 160], lambda s: grown(204, s), rounds),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
