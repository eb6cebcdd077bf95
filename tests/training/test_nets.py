"""The 32-px nets: published sizes, shapes, seeds, and weights from a file."""

import numpy as np
import pytest
import torch
from torch import nn

from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
from shiftbed.training import nets

PUBLISHED = {
    "conv8": 5_275_840,  # weights, as tabulated for Conv8 by work on supermasks
    "resnet18": 11_173_962,
    "vgg16": 14_728_266,
    "resnet20": 269_722,  # He et al. (2016), Table 6: 0.27M
    "resnet32": 464_154,  # 0.46M
    "resnet44": 658_586,  # 0.66M
    "resnet56": 853_018,  # 0.85M
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_parameters_is_the_published_one(name: str) -> None:
    with torch.device("meta"):
        network = nets.build(name)
    assert sum(p.numel() for p in network.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["conv8", "resnet18", "vgg16", "resnet8", "resnet14"])
def test_classes_channels_and_a_gradient_everywhere(name: str) -> None:
    network = nets.build(name, classes=7, channels=1)
    logits = network(torch.rand(2, 1, 32, 32))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    heads = [m for m in network.modules() if isinstance(m, nn.Linear)]
    assert heads[-1].out_features == 7


def test_depth_counts_layers_with_weights() -> None:
    """6n+2 layers, as the name says."""
    for depth in (8, 14, 20):
        network = nets.build(f"resnet{depth}")
        layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        assert len(layers) == depth


def test_shortcut_without_parameters_is_option_a() -> None:
    x = torch.arange(32.0).view(1, 2, 4, 4)
    y = nets.Padded(2, 3)(x)
    assert y.shape == (1, 5, 2, 2)
    assert torch.equal(y[:, :2], x[:, :, ::2, ::2])
    assert not y[:, 2:].any()


def test_a_line_names_a_net_and_its_seed_fixes_it() -> None:
    one = resolve("nets:resnet8?seed=3&num_classes=4")
    again = resolve("nets:resnet8?seed=3&num_classes=4")
    other = resolve("nets:resnet8?seed=4&num_classes=4")
    assert one.id == "nets:resnet8?num_classes=4&seed=3"
    x = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)
    assert np.array_equal(one.logits(x), again.logits(x))
    assert not np.array_equal(one.logits(x), other.logits(x))


def test_grey_images_of_another_size() -> None:
    model = resolve("nets:resnet8?size=8&mode=L")
    assert model.preprocessing.channels == 1
    assert model.logits(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 10)


def test_weights_from_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    network = nets.build("resnet8", classes=5).eval()
    file = tmp_path / "net.pt"
    torch.save(network.state_dict(), file)
    model = resolve(f"nets:resnet8?weights={file}&mean=0&std=1")
    assert model.classes == 5
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(model.logits(x.numpy()), network(x).numpy(), atol=1e-5)
    with pytest.raises(InputError, match="does not fit"):
        resolve(f"nets:resnet14?weights={file}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nets:resnet19", "did you mean"),
        ("nets:resnet8?depth=3", "depth"),
    ],
)
def test_what_is_unknown_is_said(line: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(line)
    with pytest.raises(InputError, match="at least 1"):
        nets.build("conv8", classes=0)
