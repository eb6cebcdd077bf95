"""A small network for 28×28 digits, about 58,000 weights in four layers that can be pruned."""

from torch import nn

__all__ = ["net"]


def net() -> nn.Module:
    """Two convolutions and two linear layers, normalised in between."""
    made = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(288, 180, bias=False), nn.BatchNorm1d(180), nn.ReLU(),
        nn.Linear(180, 10),
    )  # fmt: skip
    made.preprocessing = {  # type: ignore[assignment]
        "size": (28, 28), "mode": "L", "crop": "none", "mean": (0.1307,), "std": (0.3081,),
    }  # fmt: skip
    return made
