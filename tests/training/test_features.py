"""Head-only training: features are what the head sees, and training on them is the same."""

import numpy as np
import pytest
import torch

from shiftbed.evaluation.models.heads import HeadOnly, Through
from shiftbed.training.features import backbone_digest, cached_features, features_of
from shiftbed.training.networks import make_network

SPECS = [
    "timm:resnet10t?size=32",
    "timm:vit_tiny_patch16_224?img_size=32",
    "torchvision:resnet18?size=32",
]


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize("spec", SPECS)
def test_features_through_the_head_are_the_networks_logits(spec, pixels):
    network = make_network(spec, 5)
    features = features_of(network, pixels, batch_size=4)
    assert features.shape == (6, network.heads[0].in_features)
    module = network.module.eval()
    x = network.as_model("x").tensor(pixels.transpose(0, 3, 1, 2))
    with torch.inference_mode():
        expected = module(x)
        torch.testing.assert_close(HeadOnly(network.heads)(torch.from_numpy(features)), expected)
        torch.testing.assert_close(
            Through(module, network.heads, HeadOnly(network.heads))(x), expected
        )


def test_two_heads_are_averaged(pixels):
    """Distilled transformers have two heads on two tokens (wenzel2022's DeiT)."""
    network = make_network("timm:deit_tiny_distilled_patch16_224?img_size=32", 5)
    assert len(network.heads) == 2
    features = features_of(network, pixels)
    assert features.shape == (6, 2 * 192)
    with torch.inference_mode():
        x = network.as_model("x").tensor(pixels.transpose(0, 3, 1, 2))
        found = HeadOnly(network.heads)(torch.from_numpy(features))
        torch.testing.assert_close(found, network.module.eval()(x))


def test_a_network_whose_last_layer_is_not_its_end_has_no_features(pixels, tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 5), nn.Softmax(1))\n"
        "    net.preprocessing = {'size': 32}\n"
        "    return net\n"
    )
    network = make_network(f"python:{tmp_path / 'net.py'}:build()", 5)
    assert features_of(network, pixels) is None


class TestCache:
    def test_computed_once(self, pixels, tmp_path):
        network = make_network(SPECS[0], 5)
        first = cached_features(network, "data", lambda: pixels, tmp_path)

        def never():
            raise AssertionError("computed again")

        again = cached_features(network, "data", never, tmp_path)
        assert np.array_equal(first, again)
        assert len(list(tmp_path.iterdir())) == 1

    def test_other_data_or_weights_are_other_features(self, pixels, tmp_path):
        network = make_network(SPECS[0], 5)
        cached_features(network, "data", lambda: pixels, tmp_path)
        cached_features(network, "other", lambda: pixels, tmp_path)
        other = make_network(SPECS[0], 5, seed=1)
        cached_features(other, "data", lambda: pixels, tmp_path)
        assert len(list(tmp_path.iterdir())) == 3

    def test_the_head_is_no_part_of_the_backbone(self):
        a, b = make_network(SPECS[0], 5), make_network(SPECS[0], 5)
        with torch.no_grad():
            a.heads[0].weight.add_(1)
        assert backbone_digest(a) == backbone_digest(b)
        with torch.no_grad():
            next(b.module.parameters()).add_(1)
        assert backbone_digest(a) != backbone_digest(b)
