"""Triplet patterns by inclusion and exclusion equal counting them; the cone holds what it says."""

import itertools

import numpy as np
import pytest

from shiftbed.analysis.bits import joint_counts, pack, triple_counts
from shiftbed.analysis.triplets import PATTERNS, pattern_counts, triplets
from shiftbed.errors import InputError


def test_patterns_equal_a_loop():
    right = np.random.default_rng(0).random((6, 130)) < 0.7
    words = pack(right)
    pair = joint_counts(words)
    seen = 0
    for first, triple in triple_counts(words):
        found = pattern_counts(np.diag(pair), pair, first, triple, 130)
        later = list(itertools.combinations(range(first + 1, 6), 2))
        for at, (j, k) in enumerate(later):
            for name, count in zip(PATTERNS, found[:, at], strict=True):
                wanted = np.array([int(c) for c in name], dtype=bool)
                assert count == (right[[first, j, k]] == wanted[:, None]).all(axis=0).sum()
            seen += 1
    assert seen == 20


def test_share_inside_equals_a_loop():
    rng = np.random.default_rng(1)
    a, b = rng.random((5, 200)) < 0.7, rng.random((5, 90)) < 0.5
    found = triplets(a, b, factor=1.7, sample=10**6)
    inside, events = 0, []
    for three in itertools.combinations(range(5), 3):
        for name in PATTERNS:
            wanted = np.array([int(c) for c in name], dtype=bool)[:, None]
            p, q = ((side[list(three)] == wanted).all(axis=0).mean() for side in (a, b))
            inside += bool(p / 1.7 <= q <= 1.7 * p)
            events.append((p, q))
    assert (found.triplets, found.events, found.inside) == (10, 80, inside)
    assert sorted(zip(found.sample_id, found.sample_ood, strict=True)) == sorted(events)
    ratios = sorted(
        max(p, q) / min(p, q) if p and q else (1 if p == q else np.inf) for p, q in events
    )
    assert found.factor_for(0.5) == pytest.approx(ratios[39], rel=0.003)


def test_no_shift_is_inside_up_to_noise():
    right = np.random.default_rng(2).random((10, 4000)) < 0.6
    found = triplets(right[:, :2000], right[:, 2000:], factor=1.05)
    assert found.inside < found.events
    assert found.clearly_outside / found.events < 0.05


def test_a_real_change_is_clearly_outside():
    rng = np.random.default_rng(3)
    found = triplets(rng.random((6, 5000)) < 0.95, rng.random((6, 5000)) < 0.3)
    assert found.clearly_outside > 0.9 * (found.events - found.inside) > 0


def test_the_sample_is_bounded():
    right = np.random.default_rng(4).random((40, 300)) < 0.6
    found = triplets(right, right, sample=500)
    assert 350 < len(found.sample_id) < 650
    assert found.share_inside == 1.0
    assert found.factor_for(0.998) == pytest.approx(1.0, abs=0.003)


def test_67_models_on_validation_and_v2(predictions):
    files = [
        np.load(predictions / f"imagenetv2_67models_{name}.npz")
        for name in ("imagenet-validation-original", "imagenetv2-b-33")
    ]
    right = [file["top1"] == file["labels"] for file in files]
    found = triplets(*right)
    assert (found.triplets, found.events) == (47_905, 383_240)
    assert found.inside == 383_239
    assert found.clearly_outside == 0
    assert found.factor_for(0.998) == pytest.approx(1.766, abs=0.005)


@pytest.mark.parametrize(
    ("models", "other", "factor", "message"),
    [
        (2, 2, 2.0, "at least three models"),
        (3, 4, 2.0, "3 models on ID but 4"),
        (3, 3, 1.0, "above 1"),
        (3, 3, float("nan"), "above 1"),
    ],
)
def test_what_cannot_be_counted(models, other, factor, message):
    with pytest.raises(InputError, match=message):
        triplets(np.ones((models, 4), bool), np.ones((other, 4), bool), factor=factor)
