"""What cannot be corrupted, and a corruption of one's own."""

import numpy as np
import pytest
import torch

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import Corruption, from_function

GOOD = np.full((2, 3, 16, 16), 0.5, np.float32)


def spoiled(value: float) -> np.ndarray:
    x = GOOD.copy()
    x[1, 2, 3, 4] = value
    return x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (spoiled(np.nan), "must be finite, got NaN"),
        (spoiled(np.inf), "must be finite"),
        (spoiled(-0.5), r"must lie in \[0, 1\], got -0.5 to 0.5"),
        (GOOD * 255, "up to 127.5: divide 0–255 by 255"),
        ((GOOD * 255).astype(np.uint8), "1 or 3 channels, got 16; uint8 .* channels last"),
        ((GOOD[0, 0] * 255).astype(np.uint8), r"\(N, H, W, C\) or \(N, H, W\), got \(16, 16\)"),
        ((GOOD * 255).astype(np.int64), r"must be uint8, or float in \[0, 1\], got int64"),
        (GOOD[0], r"must have shape \(N, C, H, W\), got \(3, 16, 16\)"),
        (GOOD.transpose(0, 2, 3, 1), "1 or 3 channels, got 16; float .* channels second"),
        (GOOD[:, :2], "1 or 3 channels, got 2"),
        (GOOD[:, :, :7], "at least 8 pixels high and wide, got 7×16"),
        (GOOD[:, :, :0], "at least 8 pixels high and wide, got 0×16"),
    ],
)
def test_images_that_cannot_be_corrupted(x, message):
    with pytest.raises(InputError, match=message) as error:
        Corruption("gaussian_noise", 1)(x, ["a", "b"])
    assert "\n" not in str(error.value)


def test_the_same_errors_for_tensors():
    for x, message in ((spoiled(np.nan), "finite"), (GOOD * 255, "divide"), (GOOD[0], "shape")):
        with pytest.raises(InputError, match=message):
            Corruption("fog", 1)(torch.from_numpy(x), ["a", "b"])
    with pytest.raises(InputError, match="an array or a tensor, got list"):
        Corruption("fog", 1)([[1.0]], ["a"])


def test_a_rounding_error_beyond_one_is_let_through():
    out = Corruption("brightness", 1)(spoiled(1.000001), ["a", "b"])
    assert out.max() <= 1


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"], "2 images need 2 ids, got 1"),
        ("ab", "one id each"),
        ([1, 2], "must be strings"),
    ],
)
def test_ids(ids, message):
    with pytest.raises(InputError, match=message):
        Corruption("fog", 1)(GOOD, ids)


def test_names_severities_and_settings():
    with pytest.raises(InputError, match="did you mean 'motion_blur'"):
        Corruption(name="motion_blurr", severity=1)
    with pytest.raises(InputError, match="severity must be 1 to 5, got 6"):
        Corruption(name="fog", severity=6)
    with pytest.raises(InputError, match="of no use to fog"):
        Corruption(name="fog", severity=1, frost="somewhere")
    with pytest.raises(InputError, match="threads must be at least 1"):
        Corruption(name="fog", severity=1, threads=0)


def test_a_function_of_ones_own():
    def mirror(x, ids, severity, seed):
        assert ids == ["a", "b"]
        assert (severity, seed) == (2, 7)
        return x[:, :, :, ::-1].copy()

    own = from_function(mirror, 2, seed=7)
    x = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
    assert own.id == "mirror:2"
    assert np.array_equal(own(x, ["a", "b"]), x[..., ::-1])


def test_a_function_that_misbehaves():
    def louder(x, ids, severity, seed):
        return x * 3

    def smaller(x, ids, severity, seed):
        return x[:, :, ::2]

    def careless(x, ids, severity, seed):
        x += 1
        return x

    with pytest.raises(InputError, match=r"louder returned: images must lie in \[0, 1\]"):
        from_function(louder, 1)(GOOD, ["a", "b"])
    with pytest.raises(InputError, match=r"smaller must return float32 \(2, 3, 16, 16\)"):
        from_function(smaller, 1)(GOOD, ["a", "b"])
    with pytest.raises(ValueError, match="read-only"):
        from_function(careless, 1)(GOOD, ["a", "b"])
    with pytest.raises(InputError, match="'fog' exists"):
        from_function(louder, 1, name="fog")
