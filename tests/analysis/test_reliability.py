"""Reliability diagrams agree with scikit-learn's curve and with our calibration error."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from shiftbed.analysis.metrics import calibration_error
from shiftbed.analysis.reliability import reliability
from shiftbed.errors import InputError


def test_the_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(5000)
    right = rng.random(5000) < p**1.3
    found = reliability(p, right)
    share, mean = calibration_curve(right, p, n_bins=10)
    np.testing.assert_allclose(found.accuracy, share)
    np.testing.assert_allclose(found.confidence, mean)
    assert found.error == pytest.approx(calibration_error(p, right))


def test_intervals_cover_a_calibrated_model() -> None:
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(200):
        p = rng.random(400)
        found = reliability(p, rng.random(400) < p)
        hits.append((found.low <= found.confidence) & (found.confidence <= found.high))
    assert np.mean(hits) > 0.94


def test_empty_bins_are_missing_and_one_is_in_the_last() -> None:
    found = reliability([1.0, 0.0], [True, False])
    assert found.n.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert np.isnan(found.accuracy[1:9]).all()


@pytest.mark.parametrize(
    ("p", "right"), [([], []), ([1.5], [True]), ([np.nan], [True]), ([0.5], [True, False])]
)
def test_bad_input(p: list[float], right: list[bool]) -> None:
    with pytest.raises(InputError):
        reliability(p, right)
