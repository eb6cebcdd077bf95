"""Small networks for grey digits of 16×16, quick to train on one core."""

from torch import nn

__all__ = ["cnn", "deep", "linear", "mlp", "wide"]


def linear() -> nn.Module:
    """One layer: 2,570 weights."""
    return _grey(nn.Sequential(nn.Flatten(), nn.Linear(256, 10)))


def mlp() -> nn.Module:
    """One hidden layer of 128."""
    return _grey(nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)))


def cnn() -> nn.Module:
    """Two convolutions of 8 and 16 channels."""
    return _grey(nn.Sequential(*_block(1, 8), *_block(8, 16), nn.Flatten(), nn.Linear(256, 10)))


def wide() -> nn.Module:
    """Two convolutions of 32 and 64 channels, and a hidden layer."""
    layers = [*_block(1, 32), *_block(32, 64), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU()]
    return _grey(nn.Sequential(*layers, nn.Linear(64, 10)))


def deep() -> nn.Module:
    """Six convolutions, averaged over the picture at the end."""
    layers = [*_block(1, 16, 2), *_block(16, 32, 2), *_block(32, 48, 2)]
    return _grey(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)))


def _block(inputs: int, outputs: int, depth: int = 1) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [
            nn.Conv2d(outputs if i else inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return [*layers, nn.MaxPool2d(2)]


def _grey(network: nn.Module) -> nn.Module:
    network.preprocessing = {  # type: ignore[assignment]
        "size": (16, 16), "mode": "L", "crop": "none", "mean": (0.13,), "std": (0.31,),
    }  # fmt: skip
    return network
