"""EfficientNet-Lite with ImageNet weights or without, and small networks for the line."""

from typing import Any

import torch
from torch import nn

from examples.cifar10.net import PIXELS, plain, residual
from examples.pacs.weights import lite
from shiftbed.training.networks import build

__all__ = ["deep", "lite0", "lite0_random", "lite1", "lite2", "plain", "residual", "wide"]

SIZE = 64
MOMENTUM = 0.1
"""Of batch norm's running statistics. The package has 0.01, by which they would still be half those
of 224 px pictures after a hundred steps."""


def wide() -> nn.Module:
    """``plain`` with twice the channels."""
    return plain((32, 64, 128, 128))


def deep() -> nn.Module:
    """ResNet-14 (``nets:resnet14``), normalised as the others: the line ends with it."""
    made = build("resnet14")
    made.preprocessing = PIXELS  # type: ignore[assignment]
    return made


def lite0() -> nn.Module:
    """ImageNet weights, pictures scaled to 64 px a side."""
    return _pretrained(0)


def lite1() -> nn.Module:
    return _pretrained(1)


def lite2() -> nn.Module:
    return _pretrained(2)


def lite0_random() -> nn.Module:
    """The same without weights."""
    return _made(0)


def _pretrained(number: int) -> nn.Module:
    net: nn.Module = _made(number)
    net.load_state_dict(torch.load(lite(number), map_location="cpu", weights_only=True))
    return net


def _made(number: int) -> Any:
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name(f"efficientnet-lite{number}")
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = MOMENTUM
    net.preprocessing = {  # (x − 127)/128 on 0 to 255, as the package says
        "size": (SIZE, SIZE), "crop": "none", "interpolation": "bicubic",
        "mean": [127 / 255] * 3, "std": [128 / 255] * 3,
    }  # fmt: skip
    return net
