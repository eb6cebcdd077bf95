"""Confidence-based estimates: exact where their premise holds, with intervals that cover."""

import numpy as np
import pytest
from scipy.stats import entropy

from shiftbed.analysis.label_free import (
    average_confidence,
    difference_of_confidences,
    negative_entropy,
    thresholded_confidence,
)
from shiftbed.errors import InputError


def calibrated(n: int, a: float, b: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidences, and answers that are right as often as they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(a, b, n)
    return confidence, rng.random(n) < confidence


def test_negative_entropy_is_scipys():
    p = np.random.default_rng(0).dirichlet(np.ones(7), 50)
    assert negative_entropy(p) == pytest.approx(-entropy(p, axis=1))


def test_threshold_leaves_as_many_below_as_are_wrong():
    """On the ID data itself, without ties, the estimate is the ID accuracy."""
    score, right = calibrated(1000, 5, 2, 0)
    found = thresholded_confidence(score, right, score)
    assert found.value == pytest.approx(right.mean(), abs=1e-12)
    assert found.low < found.value < found.high


def test_thresholded_confidence_finds_a_deterministic_rule():
    """If a model is right exactly where its score exceeds 0.4, the estimate is exact."""
    rng = np.random.default_rng(1)
    source, target = rng.random(4000), rng.random(4000) ** 2
    found = thresholded_confidence(source, source > 0.4, target)
    assert found.value == pytest.approx((target > 0.4).mean(), abs=0.002)


def test_intervals_of_thresholded_confidence_cover():
    truth = 1 - 0.4**0.5  # P(u² > 0.4)
    covered = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        source, target = rng.random(600), rng.random(500) ** 2
        found = thresholded_confidence(source, source > 0.4, target)
        covered += found.low <= truth <= found.high
    assert 0.90 < covered / 300 < 0.99


def test_calibrated_models_are_estimated_by_their_confidence():
    source, right = calibrated(4000, 5, 2, 0)
    covered = np.zeros(2)
    for seed in range(200):
        target, _ = calibrated(800, 3, 2, seed + 1)
        for k, found in enumerate(
            (average_confidence(target), difference_of_confidences(source, right, target))
        ):
            covered[k] += found.low <= 0.6 <= found.high
    assert covered[0] / 200 > 0.91
    assert covered[1] / 200 > 0.85  # one ID sample for all, so its error is shared


def test_difference_of_confidences_takes_off_a_constant_overconfidence():
    source, right = calibrated(20_000, 5, 2, 0)
    target, truth = calibrated(20_000, 3, 2, 1)
    found = difference_of_confidences(source + 0.1, right, target + 0.1)
    assert found.value == pytest.approx(truth.mean(), abs=0.015)
    assert average_confidence(target + 0.1).value == pytest.approx(truth.mean() + 0.1, abs=0.015)


class TestEdges:
    def test_always_wrong_and_always_right(self):
        score = np.linspace(0, 1, 50)
        assert thresholded_confidence(score, np.zeros(50, bool), score).value == 0.0
        assert thresholded_confidence(score, np.ones(50, bool), score).value == 1.0

    def test_ties(self):
        found = thresholded_confidence(np.full(9, 0.5), np.arange(9) < 6, np.full(4, 0.5))
        assert found.value == 1.0

    def test_one_example_has_no_interval(self):
        right = np.array([True])
        for found in (
            thresholded_confidence([0.5], right, [0.6]),
            difference_of_confidences([0.5], right, [0.6]),
        ):
            assert np.isnan(found.low)
            assert "too few" in found.note

    def test_an_estimate_above_one_is_said_to_be(self):
        found = difference_of_confidences([0.1, 0.2], np.array([True, True]), [0.9, 0.8])
        assert found.value > 1
        assert "outside [0, 1]" in found.note

    @pytest.mark.parametrize(
        ("score", "message"),
        [([0.1, float("nan")], "example 1 is nan"), ([], "must be"), ([0.3], "1 ID")],
    )
    def test_what_is_no_score(self, score, message):
        with pytest.raises(InputError, match=message):
            thresholded_confidence(score, np.array([True, False]), [0.5])
