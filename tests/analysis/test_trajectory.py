"""Averaging runs as scipy bins them, and the maximum with both error conventions."""

import numpy as np
import pytest
from scipy.stats import binned_statistic

from shiftbed.analysis.trajectory import average_runs, held_out_peak, peak
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


@pytest.mark.parametrize("across", ["runs", "images"])
def test_a_peak_that_is_not_there(across: str) -> None:
    """50 steps without robustness: the maximum says some, the held-out peak and interval do not."""
    rng = np.random.default_rng(1)
    rows = 5 if across == "runs" else 2
    found = []
    for _ in range(400):
        rho = rng.normal(0, 0.01, (rows, 50))
        errors = np.full(rho.shape, 0.01) if across == "images" else None
        found.append(held_out_peak(rho, across=across, errors=errors))
    assert np.mean([one.largest for one in found]) > 0.008
    assert abs(np.mean([one.peak.value for one in found])) < 0.001
    covered = np.mean([one.peak.low <= 0 <= one.peak.high for one in found])
    assert 0.92 <= covered <= 0.98
    lost = np.mean([one.lost.low <= 0 <= one.lost.high for one in found])
    assert 0.92 <= lost <= 0.985


def test_a_peak_that_is_there() -> None:
    """A bump of 5 points at step 20 of 50: found where it is, lost by the end."""
    rng = np.random.default_rng(2)
    steps = np.arange(50) * 10
    truth = 0.05 * np.exp(-(((np.arange(50) - 20) / 8) ** 2))
    found = held_out_peak(truth + rng.normal(0, 0.005, (6, 50)), steps=steps)
    assert found.step == pytest.approx(200, abs=40)
    assert found.peak.low < 0.05 < found.peak.high + 0.005
    assert found.lost.low > 0
    assert found.start.low < truth[0] < found.start.high
    assert found.rule == "step chosen on the other half of the runs"


def test_peaks_that_cannot_be_held_out() -> None:
    with pytest.raises(InputError, match="two or more"):
        held_out_peak([[0.1, 0.2]])
    with pytest.raises(InputError, match="two halves"):
        held_out_peak([[0.1, 0.2], [0.1, 0.3]], across="images")
    with pytest.raises(InputError, match="unknown rule"):
        held_out_peak([[0.1, 0.2], [0.1, 0.3]], across="models")
    with pytest.raises(InputError, match="steps must have 2"):
        held_out_peak([[0.1, 0.2], [0.1, 0.3]], steps=[1])


def test_runs_that_are_all_equal_give_no_interval():
    """A peak at the last step loses exactly nothing in every run, which is no certainty."""
    found = held_out_peak([[0.0, 0.1], [0.0, 0.3], [0.0, 0.2], [0.0, 0.4]])
    for one in (found.start, found.lost):
        assert one.value == 0.0
        assert np.isnan([one.low, one.high]).all()
    assert found.peak.low < found.peak.value < found.peak.high
