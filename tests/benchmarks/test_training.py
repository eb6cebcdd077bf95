"""The benchmark of training says what it promises; times are printed, never asserted."""

import pytest

from benchmarks import training
from tests.benchmarks.test_benchmarks import run


@pytest.mark.slow
def test_it_runs_and_has_intervals():
    found = run("training")
    for name in ("step_ratio", "head_only_speedup"):
        low, high = found[f"{name}_interval"]
        assert low <= found[name] <= high
    assert found["turns"] == 21


def test_the_interval_of_a_median():
    """Order statistics: of 25 values the 8th and the 18th, which cover 95.7 %."""
    found = training.median([float(v) for v in range(1, 26)])
    assert found == {"median": 13.0, "low": 8.0, "high": 18.0}


def test_both_sides_train_the_same_way():
    held, labels = training.images(128, 32)
    run_ = training.ours(training.make_network(training.SPEC, 10), held, labels, 2)
    assert len(run_.stream.order(0)) == 2
    step = training.bare(training.make_network(training.SPEC, 10).module, held, labels, 2)
    step()
