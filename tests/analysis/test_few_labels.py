"""Prediction-powered estimates: unbiased whatever the guess, narrow where it is good."""

import numpy as np
import pytest

from shiftbed.analysis.few_labels import (
    agreeing_share,
    guesses,
    labels_alone,
    prediction_powered,
)
from shiftbed.errors import InputError


def test_a_useless_guess_leaves_the_labels():
    rng = np.random.default_rng(0)
    right = rng.random(200) < 0.7
    found = prediction_powered(right, np.full(200, 0.3), np.full(4000, 0.3))
    assert found.value == pytest.approx(right.mean())
    half = (found.high - found.low) / 2
    assert half == pytest.approx(1.972 * np.sqrt(right.var() / 198), rel=1e-3)


def test_a_perfect_guess_is_as_good_as_all_labels():
    rng = np.random.default_rng(1)
    right = rng.random(10_000) < 0.7
    found = prediction_powered(right[:100], right[:100], right[100:])
    assert found.value == pytest.approx(right.mean(), abs=0.003)
    assert found.high - found.low < 0.03


@pytest.mark.parametrize("n", [40, 300])
def test_intervals_cover_with_a_biased_guess(n):
    """The guess says 30 points too little and goes with being right; 600 draws of labels."""
    rng = np.random.default_rng(2)
    chance = rng.beta(2, 1, 5000)
    right, guess = rng.random(5000) < chance, 0.6 * chance
    inside, width, alone = 0, [], []
    for _ in range(600):
        order = rng.permutation(5000)
        some, rest = order[:n], order[n:]
        found = prediction_powered(right[some], guess[some], guess[rest])
        inside += found.low <= right.mean() <= found.high
        width.append(found.high - found.low)
        only = labels_alone(right[some])
        alone.append(only.high - only.low)
    assert 0.93 <= inside / 600 <= 0.98
    assert np.mean(width) < 0.93 * np.mean(alone)


def test_real_answers_with_300_labels(predictions):
    """67 ImageNet models on ImageNetV2: 95 % covered, 7.8 points wide against 11.0."""
    names = ("imagenet-validation-original", "imagenetv2-b-33")
    files = [np.load(predictions / f"imagenetv2_67models_{name}.npz") for name in names]
    classes = [file["top1"] for file in files]
    right = [a == file["labels"] for a, file in zip(classes, files, strict=True)]
    rng = np.random.default_rng(0)
    inside, width = [], []
    for i in range(0, 67, 6):
        shares = [agreeing_share(side, i) for side in classes]
        f = guesses(right[0][i], shares[:1], shares[1:])
        for _ in range(60):
            order = rng.permutation(10_000)
            some, rest = order[:300], order[300:]
            found = prediction_powered(right[1][i][some], f[some], f[rest])
            inside.append(found.low <= right[1][i].mean() <= found.high)
            width.append(found.high - found.low)
    assert np.mean(inside) > 0.925
    assert np.mean(width) == pytest.approx(0.077, abs=0.004)


def test_few_errors_are_flagged_and_nonsense_is_refused():
    right = np.ones(50, dtype=bool)
    right[:3] = False
    assert "only 3 labelled answers are wrong" in prediction_powered(right, right, right).note
    with pytest.raises(InputError, match="at least 4"):
        prediction_powered(right[:3], right[:3], right)
    with pytest.raises(InputError, match="finite"):
        prediction_powered(right, np.full(50, np.nan), right)
    with pytest.raises(InputError, match="shape"):
        prediction_powered(right, right[:9], right)
    with pytest.raises(InputError, match="feature"):
        guesses(right, [], [])
