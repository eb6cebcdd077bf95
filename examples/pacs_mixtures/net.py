"""Networks of the study: convolutions on a row's pixels, or heads on the features beside them."""

import torch
from torch import Tensor, nn

__all__ = ["convolutions", "linear", "two_layers"]

FEATURES = 1280
SEEN = {"size": (32, 48), "crop": "none", "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


class Pixels(nn.Module):
    """The picture of a row, in [−1, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x[..., :32] - 1


class Beside(nn.Module):
    """(N, 1280) what the ImageNet weights saw, of length 1."""

    def forward(self, x: Tensor) -> Tensor:
        found = x[..., 32:].permute(0, 2, 3, 1).flatten(1)[:, :FEATURES]
        return torch.nn.functional.normalize(found, dim=1) * 30


def _seen(made: nn.Module) -> nn.Module:
    made.preprocessing = SEEN  # type: ignore[assignment]
    return made


def convolutions() -> nn.Module:
    """Four convolutions from nothing, 70,000 weights."""
    layers: list[nn.Module] = [Pixels()]
    for before, after in ((3, 16), (16, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(after), nn.ReLU()]
    return _seen(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 7)))


def linear() -> nn.Module:
    """A linear head on ImageNet features."""
    return _seen(nn.Sequential(Beside(), nn.Linear(FEATURES, 7)))


def two_layers() -> nn.Module:
    """A hidden layer of 128 on ImageNet features."""
    hidden = (nn.Linear(FEATURES, 128), nn.BatchNorm1d(128), nn.ReLU())
    return _seen(nn.Sequential(Beside(), *hidden, nn.Linear(128, 7)))
