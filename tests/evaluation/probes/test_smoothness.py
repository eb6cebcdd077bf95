"""High-frequency fraction and consistent distance, by hand and by property."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax as scipy_softmax

from shiftbed.errors import InputError
from shiftbed.evaluation.probes.paths import consistent_distance, magnitudes, softmax
from shiftbed.evaluation.probes.paths import high_frequency_fraction as fraction_of


def high_frequency_fraction(path, **options):
    return fraction_of(magnitudes(path), **options)


def flipping(k, points=100, classes=3):
    path = np.zeros((1, points, classes))
    path[:, :k, 0], path[:, k:, 1] = 1, 1
    return path


def test_a_constant_path_has_no_frequency():
    for value in (1 / 3, 0.1, 1e-7):
        path = np.full((2, 100, 3), value, np.float32)
        assert (high_frequency_fraction(path) == 0).all()
        assert (high_frequency_fraction(path, variant="released") == 0).all()
        assert (consistent_distance(path) == 100).all()


@pytest.mark.parametrize("k", [1, 2, 40, 99])
def test_a_model_that_flips_at_point_k_has_distance_k(k):
    assert consistent_distance(flipping(k)).tolist() == [k]


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 130), st.integers(1, 5)),
           elements=st.floats(-30, 30)),
    st.sampled_from(["paper", "released"]),
)  # fmt: skip
def test_the_fraction_lies_between_0_and_1(logits, variant):
    share = high_frequency_fraction(softmax(logits), variant=variant)
    assert ((share >= 0) & (share <= 1)).all()
    assert (share <= high_frequency_fraction(softmax(logits))).all()


def test_which_bins_count():
    """100 points: 51 bins; 6 to 50 over 0 to 50, and in the released variant 6 to 49."""
    for at in range(51):
        one = np.zeros((1, 51))
        one[0, at] = 1
        assert fraction_of(one)[0] == (1 if at >= 6 else 0)
        assert fraction_of(one, variant="released")[0] == (1 if 6 <= at <= 49 else 0)
    assert magnitudes(np.ones((1, 100, 2))).shape == (1, 51)


def test_against_plain_numpy():
    rng = np.random.default_rng(0)
    path = scipy_softmax(rng.normal(size=(4, 100, 10)), axis=2)
    both = [high_frequency_fraction(path, variant=v) for v in ("paper", "released")]
    for one, paper, released in zip(path, *both, strict=True):
        size = np.abs(np.fft.rfft(one, axis=0)).mean(axis=1)
        assert paper == pytest.approx(size[6:].sum() / size.sum())
        assert released == pytest.approx(size[6:-1].sum() / size.sum())


def test_a_pure_wave_is_one_bin():
    t = np.arange(100)
    wave = 0.5 + 0.5 * np.cos(2 * np.pi * 10 * t / 100)
    path = np.stack([wave, 1 - wave], axis=1)[None]
    assert high_frequency_fraction(path)[0] == pytest.approx(25 / (50 + 25))


def test_softmax_is_scipys():
    logits = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32) * 40
    assert np.allclose(softmax(logits), scipy_softmax(logits.astype(float), axis=1))


def test_what_is_refused():
    with pytest.raises(InputError, match="variant"):
        high_frequency_fraction(np.ones((1, 4, 2)), variant="printed")
    with pytest.raises(InputError, match="paths, points, classes"):
        consistent_distance(np.ones((4, 2)))
