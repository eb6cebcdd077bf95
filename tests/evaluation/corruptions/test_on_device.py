"""The torch path agrees with the compiled kernels.

Noise, colour, JPEG: bit for bit. Filters sum in another order: 2e-5. Glass blur rounds down to
8 bits in between, so where a value lies on a step a pixel may come out one step (1/255) away.
"""

import numpy as np
import pytest
import torch

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import NAMES, Corruption, from_function, severities
from shiftbed.evaluation.corruptions.on_device import corrupt_on_device
from shiftbed.evaluation.image_batches import eight_bits
from tests.evaluation.corruptions.images import batch, names

EXACT = {"gaussian_noise", "impulse_noise", "jpeg_compression", "shot_noise", "speckle_noise"}
ALL = [(name, severity) for name in NAMES for severity in severities(name)]


@pytest.fixture(autouse=True)
def _one_torch_thread():
    """Images this small are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "severity"), ALL)
@pytest.mark.parametrize("shape", [(3, 40, 36, 3), (2, 24, 33, 1)])
def test_torch_path_agrees(name, severity, shape):
    x = batch(*shape)
    x[0] *= np.float32(0.997)  # values between the 256 levels
    corruption = Corruption(name=name, severity=severity, seed=2)
    ours = corruption(x, names(len(x)))
    theirs = corrupt_on_device(corruption, torch.from_numpy(x), names(len(x))).numpy()
    difference = np.abs(ours - theirs)
    if name in EXACT:
        assert np.array_equal(ours, theirs)
    elif name == "glass_blur":
        assert difference.max() <= 1.01 / 255
        assert (difference > 2e-5).mean() < 0.02
    else:
        assert difference.max() < 2e-5


def test_more_images_than_are_drawn_at_once():
    x = torch.from_numpy(batch(19, 16, 16))
    corruption = Corruption(name="speckle_noise", severity=3)
    assert torch.equal(corruption(x, names(19)), corrupt_on_device(corruption, x, names(19)))


def test_large_images_agree():
    x = batch(1, 224, 224)
    for name in ("defocus_blur", "zoom_blur", "elastic_transform", "motion_blur", "frost"):
        for severity in (1, 5):
            corruption = Corruption(name=name, severity=severity)
            theirs = corrupt_on_device(corruption, torch.from_numpy(x), ["a"]).numpy()
            assert np.abs(corruption(x, ["a"]) - theirs).max() < 5e-5


@pytest.mark.parametrize("name", ["fog", "gaussian_noise", "glass_blur"])
def test_tensors_keep_their_memory_format(name):
    x = torch.from_numpy(batch(2, 32, 32))
    assert x.is_contiguous(memory_format=torch.channels_last)
    corruption = Corruption(name=name, severity=1)
    for out in (corruption(x, ["a", "b"]), corrupt_on_device(corruption, x, ["a", "b"])):
        assert out.is_contiguous(memory_format=torch.channels_last)
        assert out.dtype == torch.float32
    plain = corruption(x.contiguous(), ["a", "b"])
    assert plain.is_contiguous()
    assert torch.equal(plain, corruption(x, ["a", "b"]))


def test_tensors_that_need_gradients_are_corrupted_as_they_are():
    x = torch.from_numpy(batch(1, 16, 16)).requires_grad_()
    out = Corruption(name="fog", severity=1)(x, ["a"])
    assert not out.requires_grad


@pytest.mark.parametrize("name", ["fog", "shot_noise", "jpeg_compression"])
def test_tensors_of_eight_bits(name):
    levels = torch.from_numpy(eight_bits(batch(2, 32, 24)))
    corruption = Corruption(name, 2)
    out = corruption(levels)
    assert out.dtype == torch.uint8
    assert np.array_equal(out.numpy(), corruption(levels.numpy()))
    there = corrupt_on_device(corruption, levels, None)
    assert there.shape == levels.shape
    assert int((there.int() - out.int()).abs().max()) <= 1
    grey = corrupt_on_device(corruption, levels[..., 0], None)
    assert torch.equal(grey, corrupt_on_device(corruption, levels[..., :1], None)[..., 0])


def test_tensors_of_other_floats():
    x = torch.from_numpy(batch(2, 32, 32))
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        assert Corruption("fog", 1)(x.to(dtype)).dtype == dtype
        assert corrupt_on_device(Corruption("fog", 1), x.to(dtype), None).dtype == dtype


def test_functions_of_ones_own_take_tensors_and_eight_bits():
    darker = from_function(lambda x, ids, severity, seed: x * np.float32(0.5), 1, name="darker")
    levels = torch.full((2, 8, 9), 200, dtype=torch.uint8)
    assert torch.equal(darker(levels), levels // 2)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3, 16, 16, dtype=torch.int64), "must be uint8, or float"),
        (torch.zeros(3, 16, 16), r"\(N, C, H, W\), got \(3, 16, 16\)"),
        (torch.zeros(16, 16, dtype=torch.uint8), r"\(N, H, W\), got \(16, 16\)"),
        (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), "channels last"),
    ],
)
def test_tensors_that_cannot_be_corrupted(x, message):
    for act in (Corruption("fog", 1), lambda x: corrupt_on_device(Corruption("fog", 1), x, None)):
        with pytest.raises(InputError, match=message):
            act(x)
