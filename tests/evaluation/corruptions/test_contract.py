"""What holds for each of the twenty."""

import numpy as np
import pytest

from shiftbed.evaluation.corruptions import NAMES, Corruption, corrupt, severities
from tests.evaluation.corruptions.images import batch, names

SIZES = [(8, 8), (8, 300), (33, 20), (32, 32), (97, 64)]
ALL = [(name, severity) for name in NAMES for severity in severities(name)]


@pytest.mark.parametrize(("name", "severity"), ALL)
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_type_and_range(name, severity, channels):
    for height, width in SIZES:
        x = batch(2, height, width, channels)
        before = x.copy()
        out = corrupt(x, names(2), name, severity)
        assert out.shape == x.shape
        assert out.dtype == np.float32
        assert np.isfinite(out).all()
        assert out.min() >= 0
        assert out.max() <= 1
        assert np.array_equal(x, before)
        assert not np.shares_memory(out, x)


@pytest.mark.parametrize("name", NAMES)
def test_memory_format_is_kept_and_does_not_matter(name):
    last = batch(3, 40, 36)
    first = np.ascontiguousarray(last)
    sliced = np.repeat(last, 2, axis=3)[:, :, :, ::2]
    given_last, given_first, given_sliced = (
        corrupt(x, names(3), name, 1) for x in (last, first, sliced)
    )
    assert given_last.strides == last.strides
    assert given_first.flags.c_contiguous
    assert np.array_equal(given_last, given_first)
    assert np.array_equal(given_last, given_sliced)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_black_and_white_images(name, value):
    for channels in (1, 3):
        x = np.full((1, channels, 32, 32), value, np.float32)
        for severity in severities(name):
            out = corrupt(x, ["a"], name, severity)
            assert np.isfinite(out).all()
            assert out.min() >= 0
            assert out.max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_severities_and_seeds_matter_where_they_should(name):
    x = batch(2, 64, 64)
    made = [corrupt(x, names(2), name, severity) for severity in severities(name)]
    for i, one in enumerate(made):
        for other in made[:i]:
            assert not np.array_equal(one, other)
    drawn = not np.array_equal(made[0], corrupt(x, names(2), name, 1, seed=1))
    still = {"greyscale", "gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "contrast"}
    still |= {"saturate", "pixelate", "jpeg_compression"}
    assert drawn is (name not in still)


def test_empty_batch_and_read_only_input():
    empty = np.empty((0, 3, 32, 32), np.float32)
    assert corrupt(empty, [], "fog", 1).shape == empty.shape
    x = batch(1, 32, 32)
    x.flags.writeable = False
    assert np.array_equal(
        corrupt(x, ["a"], "brightness", 1), corrupt(x.copy(), ["a"], "brightness", 1)
    )


def test_id():
    assert Corruption(name="gaussian_noise", severity=3).id == "gaussian_noise:3"
