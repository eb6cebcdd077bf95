"""ρ along runs: which runs are drawn, and what the mean says."""

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.results.trajectories import trajectories
from shiftbed.testbed import Testbed


def bed(steps: dict[str, int]) -> Testbed:
    """Ten baseline models on y = x, and runs of so many steps, 10 points above it."""
    names = [f"base-{i}" for i in range(10)]
    run: list[str | None] = [None] * 10
    step: list[int | None] = [None] * 10
    x = list(np.linspace(0.3, 0.8, 10))
    y = list(x)
    for name, count in steps.items():
        for at in range(count):
            names.append(f"{name}@{at}")
            run.append(name)
            step.append(at)
            x.append(0.4 + 0.05 * at)
            y.append(0.5 + 0.05 * at)
    models = pl.DataFrame(
        {
            "model": names,
            "kind": "standard",
            "in_fit_set": [one is None for one in run],
            "parent": pl.Series([None] * len(names), dtype=pl.String),
            "run": pl.Series(run, dtype=pl.String),
            "step": pl.Series(step, dtype=pl.Int64),
        }
    )
    return Testbed(
        name="runs", models=models, settings=("a", "b"), value=np.stack([x, y], axis=1),
        n=np.full((len(names), 2), 1000),
        shifts=(Shift(name="s", kind="natural-dataset", source=("a",), target="b"),),
    )  # fmt: skip


def _drawn(testbed):
    return trajectories(testbed, "s").chart()


def test_a_run_of_one_step_is_no_trajectory():
    drawn = _drawn(bed({"long": 4, "short": 1, "other": 2}))
    assert [curve.name for curve in drawn.curves] == ["all runs (2 runs)", "y = x"]
    np.testing.assert_allclose(drawn.curves[0].y, 10, atol=0.01)
    assert len(drawn.curves[0].x) == 2  # "long" alone goes further
    with pytest.raises(InputError, match="no run with two or more steps"):
        _drawn(bed({"short": 1}))
