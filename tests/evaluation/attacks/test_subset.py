"""Class-balanced subsets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.evaluation.attacks import balanced_subset


def test_ten_per_cent_of_imagenet():
    labels = np.repeat(np.arange(1000), 50)
    ids = [f"{i}.JPEG" for i in range(50_000)]
    rows = balanced_subset(labels, 0.1, seed=0, ids=ids)
    assert len(rows) == 5000
    assert (np.bincount(labels[rows]) == 5).all()
    places = rows % 50
    assert abs(places.mean() - 24.5) < 1  # no part of a class is preferred; sd of the mean 0.2
    other = balanced_subset(labels, 0.1, seed=1, ids=ids)
    assert 350 < len(np.intersect1d(rows, other)) < 650  # 500 expected by chance


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0.01, 1), st.randoms())
def test_order_of_rows_does_not_matter(labels, share, random):
    ids = [f"image {i}" for i in range(len(labels))]
    chosen = {ids[i] for i in balanced_subset(labels, share, 7, ids)}
    order = list(range(len(labels)))
    random.shuffle(order)
    shuffled = balanced_subset([labels[i] for i in order], share, 7, [ids[i] for i in order])
    assert {ids[order[i]] for i in shuffled} == chosen
    counts, taken = np.bincount(labels), np.bincount([labels[int(i.split()[1])] for i in chosen])
    for n, k in zip(counts[counts > 0], taken[counts[: len(taken)] > 0], strict=True):
        assert k == max(1, int(share * n + 0.5))
    assert {ids[i] for i in balanced_subset(labels, share / 2, 7, ids)} <= chosen


def test_what_makes_no_subset():
    with pytest.raises(InputError, match="share"):
        balanced_subset([0, 1], 0.0, 0, ["a", "b"])
    with pytest.raises(InputError, match="share"):
        balanced_subset([0, 1], float("nan"), 0, ["a", "b"])
    with pytest.raises(InputError, match="different"):
        balanced_subset([0, 1], 0.5, 0, ["a", "a"])
    with pytest.raises(InputError, match="do not go with"):
        balanced_subset([0, 1], 0.5, 0, ["a"])
    with pytest.raises(InputError, match="whole numbers"):
        balanced_subset([0.5, 1], 0.5, 0, ["a", "b"])
