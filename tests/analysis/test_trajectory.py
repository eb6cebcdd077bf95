"""Averaging runs as scipy bins them, and the maximum with both error conventions."""

import numpy as np
import pytest
from scipy.stats import binned_statistic

from shiftbed.analysis.trajectory import average_runs, peak
from shiftbed.errors import InputError


def test_bins_are_scipys() -> None:
    rng = np.random.default_rng(0)
    x, rho = rng.random(900), rng.normal(size=900)
    found = average_runs(x, rho, rng.integers(0, 5, 900))
    for name, statistic in (("mean", "mean"), ("std", "std"), ("n", "count")):
        theirs = binned_statistic(x, rho, statistic, bins=100).statistic
        theirs = theirs[binned_statistic(x, rho, "count", bins=100).statistic > 0]
        np.testing.assert_allclose(getattr(found, name), theirs, atol=1e-12)


def test_the_peak_has_both_errors() -> None:
    x = [0.1, 0.1, 0.5, 0.5, 0.9, 0.9]
    rho = [0.0, 0.4, 0.3, 0.5, 0.1, 0.1]
    best = peak(average_runs(x, rho, ["a", "b"] * 3, bins=3))
    assert best.value == pytest.approx(0.4)
    assert best.std_there == pytest.approx(0.1)
    assert best.std_largest == pytest.approx(0.2)
    assert best.n == 2


def test_one_checkpoint_and_missing_ones() -> None:
    found = average_runs([0.5, np.nan], [0.1, 0.2], ["a", "a"])
    assert found.mean.tolist() == [0.1]
    with pytest.raises(InputError, match="no checkpoint"):
        average_runs([np.nan], [0.1], ["a"])
