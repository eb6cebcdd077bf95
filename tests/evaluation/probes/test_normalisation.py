"""The same function of pixels has the same probes, however it normalises them."""

import numpy as np
import pytest
import torch
from torch import nn

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes import Probe, default_probe

MEAN, STD = np.array([0.4, 0.5, 0.3]), np.array([0.2, 0.3, 0.25])


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return sb.TestSet(rng.integers(0, 256, (60, 16, 16, 3), np.uint8), np.arange(60) % 3)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(200, 3),
    )  # fmt: skip


def pair():
    """One network of plain pixels, and the same with normalised ones and another first layer."""
    plain, other = net(), net()
    first, weight = other[0], plain[0].weight.detach()
    std, mean = (torch.tensor(v, dtype=torch.float32).view(1, 3, 1, 1) for v in (STD, MEAN))
    with torch.no_grad():
        first.weight.copy_(weight * std)
        first.bias.copy_(plain[0].bias + (weight * mean).sum(dim=(1, 2, 3)))
    one = sb.model(plain.eval(), name="plain", size=16, mean=(0.0,) * 3, std=(1.0,) * 3)
    two = sb.model(other.eval(), name="other", size=16, mean=tuple(MEAN), std=tuple(STD))
    return one, two


def test_two_equivalent_normalisations_have_the_same_probes(images):
    one, two = pair()
    x = np.random.default_rng(1).random((4, 3, 16, 16), dtype=np.float32)
    np.testing.assert_allclose(one.logits(x), two.logits(x), atol=1e-5)
    asked = {"probes": "all", "pairs": 20, "backend": "torch"}
    found = sb.probe([one, two], images, **asked).frame
    values = found.pivot("model", index="metric", values="value")
    assert len(values) == 7
    np.testing.assert_allclose(values["plain"], values["other"], rtol=1e-4)
    own = sb.probe([one, two], images, normalisation="model", **asked).frame
    differ = own.pivot("model", index="metric", values="value")
    jacobian = differ.filter(metric="jacobian_norm").row(0)[1:]
    assert abs(jacobian[0] / jacobian[1] - 1) > 1  # of plain pixels, and of pixels over their std


def test_the_space_of_a_probe():
    own = Preprocessing(size=(32, 32), mean=(0.0,) * 3, std=(1.0,) * 3)
    small, large = (default_probe("amplitude", (side, side)) for side in (32, 224))
    assert small.space(own).std == (0.247, 0.243, 0.262)
    assert large.space(own).mean == (0.485, 0.456, 0.406)
    assert Probe(name="phase").space(own) == own
    grey = Preprocessing(size=(32, 32), mode="L", mean=(0.0,), std=(1.0,))
    assert small.space(grey).std == pytest.approx(((0.247 + 0.243 + 0.262) / 3,))
    turned = Preprocessing(size=(32, 32), mode="BGR", mean=(0.0,) * 3, std=(1.0,) * 3)
    assert small.space(turned).std == (0.262, 0.243, 0.247)
    assert small.describe()["normalisation"] == "cifar-10"
    with pytest.raises(InputError, match="unknown normalisation"):
        Probe(name="phase", normalisation="mnist")
