"""Counting by bits equals counting one by one, of pairs and of triplets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.analysis import joint_counts as bits
from shiftbed.analysis.joint_counts import (
    PATTERNS,
    joint_counts,
    pack,
    pattern_counts,
    triple_counts,
    triplets,
)
from shiftbed.errors import InputError


def drawn(m: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((m, n)) < 0.6


@given(m=st.integers(1, 9), n=st.integers(1, 300), seed=st.integers(0, 99))
def test_pairs_and_triples_equal_a_loop(m, n, seed):
    right = drawn(m, n, seed)
    words = bits.pack(right)
    assert bits.ones(words).tolist() == right.sum(axis=1).tolist()
    both = bits.joint_counts(words)
    for i, j in itertools.product(range(m), repeat=2):
        assert both[i, j] == (right[i] & right[j]).sum()
    for i, counts in bits.triple_counts(words):
        for j, k in itertools.product(range(m - i - 1), repeat=2):
            assert counts[j, k] == (right[i] & right[i + 1 + j] & right[i + 1 + k]).sum()


@given(
    m=st.integers(1, 6),
    n=st.integers(1, 300),
    seed=st.integers(0, 99),
    kind=st.sampled_from([np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64]),
)
def test_equal_classes_equal_a_loop(m, n, seed, kind):
    classes = np.random.default_rng(seed).integers(0, 4, (m, n)).astype(kind)
    same = bits.same_counts(classes)
    for i, j in itertools.product(range(m), repeat=2):
        assert same[i, j] == (classes[i] == classes[j]).sum()


@pytest.mark.parametrize("classes", [[[-1, 2], [-1, 3]], [[70_000, 2], [70_000, 3]]])
def test_classes_that_need_wide_numbers(classes):
    assert bits.same_counts(np.array(classes)).tolist() == [[2, 1], [1, 2]]


def test_classes_that_differ_by_a_power_of_two_are_not_the_same():
    assert bits.same_counts(np.array([[1, 2], [257, 65_538]]))[0, 1] == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_several_tiles_and_blocks(threads, monkeypatch):
    monkeypatch.setattr(bits, "TILE", 64)
    monkeypatch.setattr(bits, "LONGEST", 8)
    right = drawn(41, 64 * 21 + 5)
    wide = right.astype(np.int64)
    assert np.array_equal(bits.joint_counts(bits.pack(right), threads=threads), wide @ wide.T)
    classes = np.random.default_rng(1).integers(0, 300, (130, 17_001)).astype(np.int16)
    found = bits.same_counts(classes, threads=threads)
    for i, j in [(0, 1), (0, 129), (127, 128), (3, 77)]:
        assert found[i, j] == found[j, i] == (classes[i] == classes[j]).sum()


def test_full_lanes_do_not_overflow():
    alike = np.zeros((3, 8 * 255 * 9 + 7), dtype=np.uint8)
    assert (bits.same_counts(alike) == alike.shape[1]).all()
    assert (bits.joint_counts(bits.pack(alike == 0)) == alike.shape[1]).all()


def test_wrong_shapes():
    with pytest.raises(InputError, match=r"\(models, examples\)"):
        bits.pack(np.ones(3, dtype=bool))
    with pytest.raises(InputError, match=r"\(models, examples\)"):
        bits.same_counts(np.ones(3, dtype=int))


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
