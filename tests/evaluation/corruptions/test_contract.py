"""What holds for each of the twenty."""

import numpy as np
import pytest

from shiftbed.evaluation.corruptions import NAMES, Corruption, severities
from shiftbed.evaluation.image_batches import eight_bits
from tests.evaluation.corruptions.images import batch, names

SIZES = [(8, 8), (8, 300), (33, 20), (32, 32), (97, 64)]
ALL = [(name, severity) for name in NAMES for severity in severities(name)]


@pytest.mark.parametrize(("name", "severity"), ALL)
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_type_and_range(name, severity, channels):
    for height, width in SIZES:
        x = batch(2, height, width, channels)
        before = x.copy()
        out = Corruption(name, severity)(x, names(2))
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
        Corruption(name, 1)(x, names(3)) for x in (last, first, sliced)
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
            out = Corruption(name, severity)(x, ["a"])
            assert np.isfinite(out).all()
            assert out.min() >= 0
            assert out.max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_severities_and_seeds_matter_where_they_should(name):
    x = batch(2, 64, 64)
    made = [Corruption(name, severity)(x, names(2)) for severity in severities(name)]
    for i, one in enumerate(made):
        for other in made[:i]:
            assert not np.array_equal(one, other)
    drawn = not np.array_equal(made[0], Corruption(name, 1, seed=1)(x, names(2)))
    still = {"greyscale", "gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "contrast"}
    still |= {"saturate", "pixelate", "jpeg_compression"}
    assert drawn is (name not in still)


def test_empty_batch_and_read_only_input():
    empty = np.empty((0, 3, 32, 32), np.float32)
    assert Corruption("fog", 1)(empty, []).shape == empty.shape
    x = batch(1, 32, 32)
    x.flags.writeable = False
    assert np.array_equal(
        Corruption("brightness", 1)(x, ["a"]), Corruption("brightness", 1)(x.copy(), ["a"])
    )


@pytest.mark.parametrize("name", NAMES)
def test_eight_bits_are_the_fractions_cut_to_levels(name):
    levels = eight_bits(batch(3, 33, 40))
    corruption = Corruption(name, 1)
    out = corruption(levels, names(3))
    assert (out.dtype, out.shape) == (np.uint8, levels.shape)
    fractions = (levels / 255).astype(np.float32).transpose(0, 3, 1, 2)
    made = corruption(fractions, names(3)).transpose(0, 2, 3, 1)
    assert np.array_equal(out, np.floor(255 * made + 1e-3).clip(0, 255))
    grey = corruption(levels[..., 0], names(3))
    assert np.array_equal(grey, corruption(levels[..., :1], names(3))[..., 0])


def test_what_does_not_change_keeps_its_levels():
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert np.array_equal(Corruption("greyscale", 1)(every), every)


@pytest.mark.parametrize("name", ["fog", "shot_noise", "elastic_transform"])
def test_without_ids_the_position_is_the_id(name):
    x = batch(3, 32, 32)
    corruption = Corruption(name, 2, seed=5)
    assert np.array_equal(corruption(x), corruption(x, ["0", "1", "2"]))
    assert not np.array_equal(corruption(x[:1]), corruption(x[:1], ["1"]))


def test_other_floats_are_computed_in_float32_and_keep_their_type():
    x = batch(2, 32, 32)
    fog = Corruption("fog", 3)
    assert fog(x.astype(np.float64)).dtype == np.float64
    assert np.array_equal(fog(x.astype(np.float64)), fog(x))
    assert fog(x.astype(np.float16)).dtype == np.float16


def test_position_and_keywords():
    assert Corruption("gaussian_noise", 3) == Corruption(name="gaussian_noise", severity=3)
    assert Corruption("gaussian_noise", 3).id == "gaussian_noise:3"
    with pytest.raises(TypeError, match="positional"):
        Corruption("fog", 3, 1)
