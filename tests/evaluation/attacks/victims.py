"""Small models to attack, trained in the test."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shiftbed.evaluation.models import TorchModel
from shiftbed.evaluation.models.torch_model import seeded, wrap
from shiftbed.evaluation.preprocessing import Preprocessing


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    model: TorchModel
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    ids: list[str]


def cnn(channels: int, size: int, width: int = 16) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(2 * width * (size // 2) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def trained(
    x: NDArray[np.float32], y: NDArray[np.int64], tests: int, epochs: int, width: int = 16
) -> Trained:
    """A network trained on all images but the first ``tests``, which are to be attacked."""
    channels, size = x.shape[1], x.shape[2]
    with seeded(0):
        network = cnn(channels, size, width)
        optimizer = torch.optim.Adam(network.parameters(), 2e-3)
        pixels, labels = torch.from_numpy(x[tests:]), torch.from_numpy(y[tests:])
        for _ in range(epochs):
            for rows in torch.randperm(len(pixels)).split(64):
                optimizer.zero_grad()
                out = network((pixels[rows] - 0.5) / 0.25)
                nn.functional.cross_entropy(out, labels[rows]).backward()
                optimizer.step()
    preprocessing = Preprocessing(
        size=(size, size), mean=(0.5,) * channels, std=(0.25,) * channels,
        mode="L" if channels == 1 else "RGB",
    )  # fmt: skip
    model = wrap(
        network, id="torch:small", preprocessing=preprocessing, facts={}, channels_last=False
    )
    ids = [f"{i}.png" for i in range(tests)]
    return Trained(model=model, x=x[:tests], y=y[:tests], ids=ids)


@cache
def digits() -> Trained:
    """scikit-learn's digits: 8 × 8 pixels, grey."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x = (images[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    return trained(x, labels[order].astype(np.int64), tests=400, epochs=12)


@cache
def coloured() -> Trained:
    """CIFAR-10's shape: digits enlarged to 32 × 32, in two random colours, on noise."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(1)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    grey = (images[order].reshape(-1, 1, 8, 8) / 16).repeat(4, axis=2).repeat(4, axis=3)
    ink, paper = rng.random((2, len(grey), 3, 1, 1))
    x = grey * ink + (1 - grey) * paper + 0.1 * rng.standard_normal((len(grey), 3, 32, 32))
    x = x.clip(0, 1).astype(np.float32)
    return trained(x, labels[order].astype(np.int64), tests=300, epochs=14)


class Linear:
    """Binary: logits (+w·x, −w·x)/2 + (b, 0), whose margin w·x + b falls by at most ε‖w‖_dual."""

    def __init__(self, w: torch.Tensor, b: float = 0.0) -> None:
        self.w, self.b = w, b

    def margin(self, x: torch.Tensor) -> torch.Tensor:
        return (x.double() * self.w.double()).flatten(1).sum(1) + self.b

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        margin = (x * self.w).flatten(1).sum(1) + self.b
        return torch.stack([margin / 2, -margin / 2], 1)


def coloured_cnn() -> nn.Sequential:
    """Untrained, for 8 × 8 pixels in colour; its parameters require gradients."""
    with seeded(0):
        return cnn(3, 8)
