"""Pairs are seeded, without replacement, and the first ones do not depend on how many there are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.evaluation.probes.probe import any_pairs, between_pairs, some_rows, within_pairs

CIFAR = np.repeat(np.arange(10), 1000)


def test_cifar_has_the_papers_numbers():
    assert any_pairs(10_000, 5000).shape == (5000, 2)
    assert sorted(any_pairs(10_000, 5000).ravel().tolist()) == list(range(10_000))
    within, between = within_pairs(CIFAR), between_pairs(CIFAR)
    assert np.bincount(CIFAR[within[:, 0]]).tolist() == [200] * 10
    assert (CIFAR[within[:, 0]] == CIFAR[within[:, 1]]).all()
    assert len(np.unique(within)) == 4000  # no image is in two paths
    classes, count = np.unique(CIFAR[between], axis=0, return_counts=True)
    assert len(classes) == 45
    assert (count == 200).all()
    assert (classes[:, 0] < classes[:, 1]).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 60), st.integers(0, 5), st.data())
def test_fewer_pairs_are_the_first_of_more(images, seed, data):
    labels = np.arange(images) % 3
    for make in (lambda k: any_pairs(images, k, seed), lambda k: within_pairs(labels, k, seed)):
        try:
            most = len(make(None))
        except InputError:
            continue
        few = data.draw(st.integers(1, most))
        whole = make(most)
        assert (make(few) == whole[:few]).all()
        assert (whole[:, 0] != whole[:, 1]).all()


def test_another_seed_is_another_choice():
    assert (any_pairs(100, 50, 0) != any_pairs(100, 50, 1)).any()
    assert (within_pairs(CIFAR, 50, 0) != within_pairs(CIFAR, 50, 1)).any()
    assert (some_rows(100, 10, 0) == some_rows(100, 20, 0)[:10]).all()


def test_many_classes_are_spread_evenly():
    labels = np.repeat(np.arange(300), 4)
    within, between = within_pairs(labels, 300), between_pairs(labels, 500)
    assert len(set(labels[within[:, 0]])) == 300
    assert len(np.unique(labels[between], axis=0)) == 500
    assert len(between_pairs(labels)) == 10_000


def test_images_without_a_label_are_in_no_pixel_path():
    labels = np.array([-1, 0, 0, -1, 1, 1, 1])
    assert set(within_pairs(labels).ravel()) <= {1, 2, 4, 5, 6}
    assert set(between_pairs(labels).ravel()) <= {1, 2, 4, 5, 6}


def test_what_cannot_be_drawn():
    with pytest.raises(InputError, match="without replacement"):
        any_pairs(9, 5)
    with pytest.raises(InputError, match="need labels"):
        within_pairs(np.full(5, -1))
    with pytest.raises(InputError, match="two classes"):
        between_pairs(np.zeros(5, int))
    with pytest.raises(InputError, match="between 1 and 2"):
        within_pairs(np.zeros(5, int), 3)
