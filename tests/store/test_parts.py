import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from shiftbed.store.parts import highest, part_from_logits, part_from_top, read_part, write_part


@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 12))
@settings(max_examples=30)
def test_a_part_is_what_the_logits_say(seed, classes, top):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (17, classes)).astype(np.float32)
    labels = rng.integers(0, classes, 17)
    frame = part_from_logits(logits, labels, top=top)
    p = softmax(logits.astype(np.float64), axis=1)
    k = min(top, classes)
    order = np.argsort(-logits, axis=1, kind="stable")
    for j in range(k):
        assert frame[f"class_{j + 1}"].to_list() == order[:, j].tolist()
        assert frame[f"prob_{j + 1}"].to_numpy() == pytest.approx(p[range(17), order[:, j]], 1e-5)
    assert frame["label_prob"].to_numpy() == pytest.approx(p[range(17), labels], rel=1e-5)
    assert frame["sum_squares"].to_numpy() == pytest.approx((p**2).sum(axis=1), rel=1e-5)


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 6))
def test_the_highest_are_those_of_a_stable_sort(seed, classes, k):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, (9, classes)).astype(np.float32)
    scores[3:] = np.round(scores[3:])  # equal ones
    scores[6:][rng.random(scores[6:].shape) < 0.3] = rng.choice([-np.inf, np.nan])
    expected = np.argsort(-scores, axis=1, kind="stable")[:, : min(k, classes)]
    assert highest(scores, min(k, classes)).tolist() == expected.tolist()


def test_bytes_depend_on_the_predictions_alone():
    logits = np.random.default_rng(0).normal(size=(100, 10)).astype(np.float32)
    labels = np.zeros(100, np.int64)
    a, b = (write_part(part_from_logits(logits.copy(), labels)) for _ in range(2))
    assert a == b
    assert read_part(a).equals(part_from_logits(logits, labels))


def test_unreadable_examples_are_null_and_unlabelled_ones_have_no_label_probability():
    logits = np.ones((3, 4), np.float32)
    frame = part_from_logits(logits, np.array([0, -1, 2]), readable=np.array([True, True, False]))
    assert frame["class_1"].is_null().to_list() == [False, False, True]
    assert frame["label_prob"].is_null().to_list() == [False, True, True]


def test_logits_on_request():
    logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    frame = read_part(write_part(part_from_logits(logits, np.zeros(5, int), keep_logits=True)))
    kept = np.array(frame["logits"].cast(pl.Array(pl.Float32, 3)).to_list())
    assert kept == pytest.approx(logits, abs=2e-3)


def test_many_classes_need_wider_numbers():
    assert part_from_top(np.array([70_000])).schema["class_1"] == pl.UInt32
    assert part_from_top(np.array([60_000])).schema["class_1"] == pl.UInt16
