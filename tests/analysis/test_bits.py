"""Counting by bits equals counting one by one, at every size that could go wrong."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.analysis import bits
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
