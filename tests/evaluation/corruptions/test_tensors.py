"""The torch path agrees with the compiled kernels.

Noise, colour, JPEG: bit for bit. Filters sum in another order: 2e-5. Glass blur rounds down to
8 bits in between, so where a value lies on a step a pixel may come out one step (1/255) away.
"""

import numpy as np
import pytest
import torch

from shiftbed.evaluation.corruptions import NAMES, Corruption, severities
from shiftbed.evaluation.corruptions.tensors import corrupt_on_device
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
