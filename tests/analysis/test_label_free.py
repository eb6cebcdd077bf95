"""Accuracies without labels: exact where the premise holds, honest where it does not."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import entropy, linregress

from shiftbed.analysis import label_free
from shiftbed.analysis.label_free import (
    agreement_on_the_line,
    average_confidence,
    difference_of_confidences,
    image_groups,
    negative_entropy,
    shift_bias,
    thresholded_confidence,
    widened,
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


def simulated(m: int, n: int, shift: float, seed: int = 0, classes: int = 1000) -> tuple:
    """Classes and labels of models that find hard images hard; shifted data is harder."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    hard = rng.standard_normal(n) + shift
    ability = np.linspace(0.2, 1.5, m)[:, None]
    right = ability - hard + 0.6 * rng.standard_normal((m, n)) > 0
    wrong = (labels + 1 + rng.integers(0, classes - 1, (m, n))) % classes
    return np.where(right, labels, wrong), labels


def accuracies_on(points: np.ndarray, slope: float, bias: float) -> np.ndarray:
    return ndtr(slope * ndtri(points) + bias)


def counts(shares: np.ndarray, n: int) -> np.ndarray:
    return np.round(shares * n).astype(np.int64)


def test_exact_on_data_that_lie_on_one_line():
    """Agreements and accuracies on one line: both methods return that line's accuracies."""
    rng = np.random.default_rng(0)
    n = 10**9
    accuracy = np.linspace(0.5, 0.9, 8)
    agreement = rng.uniform(0.5, 0.95, (8, 8))
    agreement = (agreement + agreement.T) / 2
    np.fill_diagonal(agreement, 1.0)
    after = accuracies_on(agreement, 0.9, -0.3)
    fit = label_free._fit(counts(accuracy, n), counts(agreement, n), counts(after, n), n, n)
    assert (fit.slope, fit.bias) == (pytest.approx(0.9, abs=1e-6), pytest.approx(-0.3, abs=1e-6))
    assert fit.r2 == pytest.approx(1.0, abs=1e-9)
    expected = accuracies_on(accuracy, 0.9, -0.3)
    assert ndtr(fit.simple) == pytest.approx(expected, abs=1e-6)
    assert ndtr(fit.direct) == pytest.approx(expected, abs=1e-6)


def test_line_and_system_equal_scipy_and_a_dense_least_squares():
    top_id, labels = simulated(6, 3000, 0.0)
    top_ood, _ = simulated(6, 2000, 0.6, seed=1)
    found = agreement_on_the_line(top_id == labels, top_id, top_ood)
    i, j = np.triu_indices(6, 1)
    x = ndtri((top_id[i] == top_id[j]).mean(axis=1))
    y = ndtri((top_ood[i] == top_ood[j]).mean(axis=1))
    line = linregress(x, y)
    assert found.slope == pytest.approx(line.slope, rel=1e-9)
    assert found.bias == pytest.approx(line.intercept, rel=1e-9)
    assert found.r2 == pytest.approx(line.rvalue**2, rel=1e-9)
    z = ndtri((top_id == labels).mean(axis=1))
    assert found.simple == pytest.approx(ndtr(line.slope * z + line.intercept), rel=1e-9)
    rows = np.zeros((len(i), 6))
    rows[np.arange(len(i)), i] = rows[np.arange(len(i)), j] = 0.5
    target = y + line.slope * ((z[i] + z[j]) / 2 - x)
    dense = np.linalg.lstsq(rows, target, rcond=None)[0]
    assert found.direct == pytest.approx(ndtr(dense), rel=1e-7)


def test_image_noise_is_as_wide_as_the_spread_over_fresh_data():
    """The jackknife's error of the slope against its spread over new images, models kept."""
    slopes, errors = [], []
    for seed in range(40):
        top_id, labels = simulated(12, 1500, 0.0, seed=2 * seed)
        top_ood, _ = simulated(12, 1500, 0.6, seed=2 * seed + 1)
        found = agreement_on_the_line(top_id == labels, top_id, top_ood)
        slopes.append(found.slope)
        errors.append(found.slope_error)
    assert 0.8 < np.mean(errors) / np.std(slopes) < 2.0


def test_estimates_of_v2_accuracy(predictions):
    """V2 without its labels: mean absolute error of 2.0 points, against 11.8 for ID accuracy."""
    val = np.load(predictions / "imagenetv2_67models_imagenet-validation-original.npz")
    v2 = np.load(predictions / "imagenetv2_67models_imagenetv2-b-33.npz")
    right = val["top1"] == val["labels"]
    truth = (v2["top1"] == v2["labels"]).mean(axis=1)
    found = agreement_on_the_line(right, val["top1"], v2["top1"])
    assert found.pairs == 2211
    assert found.r2 == pytest.approx(0.9973, abs=5e-5)
    assert found.holds
    assert np.abs(found.simple - truth).mean() == pytest.approx(0.0201, abs=5e-5)
    assert np.abs(found.direct - truth).mean() == pytest.approx(0.0201, abs=5e-5)
    assert np.abs(right.mean(axis=1) - truth).mean() > 0.118
    assert (found.simple_low < found.simple).all()
    assert (found.direct < found.direct_high).all()
    assert int(found.extrapolated.sum()) == 1


@pytest.mark.parametrize(("setting", "mae"), [("v4", 0.0115), ("v6", 0.0114)])
def test_estimates_of_cifar_10_1_accuracy(predictions, setting, mae):
    file = np.load(predictions / "cifar10_predictions_30models.npz")
    truth = (file[setting] == file[f"labels_{setting}"]).mean(axis=1)
    right = file["original"] == file["labels_original"]
    found = agreement_on_the_line(right, file["original"], file[setting])
    assert np.abs(found.simple - truth).mean() == pytest.approx(mae, abs=1e-4)


def test_agreements_that_are_on_no_line_are_not_trusted():
    rng = np.random.default_rng(0)
    top_id, labels = simulated(8, 2000, 0.0)
    top_ood = np.where(rng.random((8, 2000)) < rng.random((8, 1)), 0, rng.integers(0, 9, (8, 2000)))
    found = agreement_on_the_line(top_id == labels, top_id, top_ood)
    assert not found.holds
    assert any("R²" in reason for reason in found.reasons)


def test_pairs_that_always_agree_are_dropped_and_counted():
    top_id, labels = simulated(5, 800, 0.0)
    top_ood, _ = simulated(5, 800, 0.5, seed=1)
    twin_id, twin_ood = np.vstack([top_id, top_id[:1]]), np.vstack([top_ood, top_ood[:1]])
    found = agreement_on_the_line(twin_id == labels, twin_id, twin_ood)
    assert (found.pairs, found.dropped) == (14, 1)
    assert found.simple[0] == found.simple[5]
    assert found.direct[0] == pytest.approx(found.direct[5])


def test_a_perfect_id_accuracy_is_moved_off_the_boundary():
    top_id, labels = simulated(5, 800, 0.0)
    top_ood, _ = simulated(5, 800, 0.5, seed=1)
    top_id[4] = labels
    found = agreement_on_the_line(top_id == labels, top_id, top_ood)
    assert np.isfinite(found.simple).all()


def test_groups_are_a_partition():
    parts = image_groups(103)
    assert sorted(np.concatenate(parts).tolist()) == list(range(103))
    assert {len(part) for part in parts} == {5, 6}


@pytest.mark.parametrize(
    ("m", "n", "message"),
    [(2, 50, "three models"), (1, 50, "three models"), (4, 1, "needs images")],
)
def test_too_little(m, n, message):
    top = np.random.default_rng(0).integers(0, 3, (m, n))
    with pytest.raises(InputError, match=message):
        agreement_on_the_line(top == 0, top, top)


def test_identical_models():
    top = np.tile(np.arange(30) % 3, (4, 1))
    with pytest.raises(InputError, match="all others are alike"):
        agreement_on_the_line(top == 0, top, top)


def test_models_that_differ_in_number():
    top = np.zeros((4, 9), int)
    with pytest.raises(InputError, match="4 models on ID but 3"):
        agreement_on_the_line(top == 0, top, top[:3])


def test_the_bias_of_a_shift_is_part_of_the_interval():
    """Shifts off by N(0, 0.1) probits: learnt on four others, intervals cover 95 %."""
    rng = np.random.default_rng(0)
    truth = ndtr(rng.normal(0.5, 0.3, 30))
    inside = 0
    for _ in range(500):
        off = rng.normal(0, 0.1, 5)
        some = [ndtr(ndtri(truth) + one) for one in off]
        bias = shift_bias(some[1:], [truth] * 4)
        low, high = widened(some[0][0], some[0][0], some[0][0], bias, 4)
        inside += low <= truth[0] <= high
    assert 0.92 <= inside / 500 <= 0.98
    with pytest.raises(InputError, match="two shifts"):
        shift_bias([truth], [truth])
