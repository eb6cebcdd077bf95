"""Metrics and reliability diagrams against scikit-learn, torchmetrics and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

from shiftbed.analysis.metrics import (
    brier,
    calibration_error,
    demographic_disparity,
    environments,
    group_accuracy,
    negative_log_likelihood,
    reliability,
)
from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision

seeds = st.integers(0, 10_000)


def predictions(seed, n=400, classes=7):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))
    labels = np.where(rng.random(n) < 0.5, logits.argmax(axis=1), rng.integers(0, classes, n))
    return logits, softmax(logits, axis=1), labels


@given(seeds)
@settings(max_examples=20)
def test_nll_equals_scikit_learn(seed):
    _, p, y = predictions(seed)
    found = negative_log_likelihood(p[np.arange(len(y)), y])
    assert found == pytest.approx(log_loss(y, p, labels=range(7)), abs=1e-6)


@given(seeds)
@settings(max_examples=20)
def test_brier_equals_its_definition(seed):
    _, p, y = predictions(seed)
    direct = ((p - np.eye(7)[y]) ** 2).sum(axis=1).mean()
    found = brier(p[np.arange(len(y)), y], (p**2).sum(axis=1))
    assert found == pytest.approx(direct, abs=1e-6)


@given(seeds)
@settings(max_examples=20)
def test_ece_equals_torchmetrics_off_the_edges(seed):
    ensure_torchvision()  # torchmetrics imports it
    from torchmetrics.functional.classification import multiclass_calibration_error

    _, p, y = predictions(seed)
    reference = multiclass_calibration_error(
        torch.tensor(p), torch.tensor(y), num_classes=7, n_bins=10, norm="l1"
    )
    found = calibration_error(p.max(axis=1), p.argmax(axis=1) == y)
    assert found == pytest.approx(float(reference), abs=1e-6)


def test_ece_bins_are_closed_on_the_left_and_the_last_on_both_sides():
    # 0.5 belongs to [0.5, 0.6): alone there, it does not average with 0.45.
    assert calibration_error([0.5, 0.45], [True, False]) == pytest.approx((0.5 + 0.45) / 2)
    assert calibration_error([1.0, 0.95], [True, True]) == pytest.approx(0.025)
    assert calibration_error([0.0], [False]) == 0.0


@given(seeds)
@settings(max_examples=10)
def test_the_scale_gradient_is_a_derivative(seed):
    logits, p, y = predictions(seed, n=20)
    rows = np.arange(20)
    closed = (p * logits).sum(axis=1) - logits[rows, y]
    h = 1e-5
    up, down = (-log_softmax(logits * (1 + s), axis=1)[rows, y] for s in (h, -h))
    assert closed == pytest.approx((up - down) / (2 * h), abs=1e-6)


def environments_by_descent(g, steps, rate):
    """The same by gradient ascent with Adam on soft assignments, as the reference code does.

    Maximises ½[(mean_i q_i g_i)² + (mean_i (1−q_i) g_i)²], q = sigmoid(w), from random w.
    """
    w = np.random.default_rng(0).standard_normal(len(g))
    first, second = np.zeros_like(w), np.zeros_like(w)
    for step in range(1, steps + 1):
        q = 1.0 / (1.0 + np.exp(-w))
        inside, outside = float((q * g).mean()), float(((1.0 - q) * g).mean())
        slope = -(inside - outside) * g * q * (1.0 - q)  # of the loss; 1/n is Adam's to undo
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        move = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        w -= rate * move
    return w > 0.0


def test_environments_by_descent_find_the_closed_form():
    rng = np.random.default_rng(0)
    g = rng.normal(0.3, 1, 200)
    g = g[np.abs(g) > 0.05]
    soft = environments_by_descent(g, steps=10_000, rate=0.01)
    hard = environments(g)
    agreement = (soft == hard).mean()
    assert max(agreement, 1 - agreement) == 1.0  # the two environments have no order


def test_disparity():
    assert demographic_disparity([0, 1, 0, 1], [0, 0, 1, 1]) == 0.0
    assert demographic_disparity([0, 0, 1, 1], [0, 0, 1, 1]) == pytest.approx(0.5)
    assert demographic_disparity([1, 1], [True, True]) == 0.0


def test_groups():
    assert group_accuracy([1, 0, 1, 1], [2, 2, 5, 5]) == {2: (0.5, 2), 5: (1.0, 2)}


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
