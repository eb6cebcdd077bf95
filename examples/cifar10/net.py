"""Two small networks for 32×32 pictures, of about the same size and cost: with and without
shortcuts."""

from collections.abc import Sequence

from torch import nn

from shiftbed.training.networks import build

__all__ = ["plain", "residual"]

PIXELS = {
    "size": (32, 32), "crop": "none",
    "mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010),
}  # fmt: skip
"""As andreassen2021 (Appendix B.3) normalises CIFAR-10."""


def residual() -> nn.Module:
    """ResNet-8 of 16, 32 and 64 channels (``nets:resnet8``) with a stem of stride 2.

    A quarter of its multiplications, 75,000 weights.
    """
    made = build("resnet8")
    made.conv1 = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
    nn.init.kaiming_normal_(made.conv1.weight, mode="fan_out", nonlinearity="relu")
    made.preprocessing = PIXELS  # type: ignore[assignment]
    return made


def plain(widths: Sequence[int] = (16, 32, 64, 64)) -> nn.Module:
    """Four convolutions of 16, 32, 64 and 64 channels with pooling, and a linear head.

    61,000 weights; other ``widths``, other channels.
    """
    layers: list[nn.Module] = []
    inputs = 3
    for width in widths:
        layers += [
            nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(), nn.MaxPool2d(2),
        ]  # fmt: skip
        inputs = width
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))
    made.preprocessing = PIXELS  # type: ignore[assignment]
    return made
