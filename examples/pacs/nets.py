"""The networks of the study: real ImageNet weights, at a size that two cores can afford.

``python:examples.pacs.nets:lite0()`` and its like are what the recipes name. Sizes come from the
environment variable ``PACS_SIZE`` (pixels a side), so that a miniature can be run.
"""

import os
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.pacs import weights

__all__ = ["KerasResNet50", "lite0", "lite1", "lite2", "resnet50", "tiny"]


def lite0() -> nn.Module:
    return _lite(0)


def lite1() -> nn.Module:
    return _lite(1)


def lite2() -> nn.Module:
    return _lite(2)


def _lite(number: int) -> nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    net: Any = EfficientNet.from_name(f"efficientnet-lite{number}")
    state = torch.load(weights.lite(number), map_location="cpu", weights_only=True)
    net.load_state_dict(state)
    net.preprocessing = _seen([127 / 255] * 3, [128 / 255] * 3)  # as the package says
    return net  # type: ignore[no-any-return]


def resnet50() -> nn.Module:
    """ImageNet weights of Keras; (x − mean) on 0 to 255."""
    net = KerasResNet50()
    net.load_state_dict(
        torch.load(weights.resnet50(), map_location="cpu", weights_only=True), strict=False
    )
    mean = [123.68 / 255, 116.779 / 255, 103.939 / 255]
    net.preprocessing = _seen(mean, [1 / 255] * 3)
    return net


def tiny() -> nn.Module:
    """A small network of random weights, for a miniature of the study."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(32, 7),
    )  # fmt: skip
    net.preprocessing = _seen([0.5] * 3, [0.25] * 3)
    return net


def _seen(mean: list[float], std: list[float]) -> Any:
    size = int(os.environ.get("PACS_SIZE", "96"))
    own: dict[str, Any] = {"size": (size, size), "crop": "none", "interpolation": "bilinear"}
    return own | {"mean": mean, "std": std}


class KerasResNet50(nn.Module):
    """He et al. (2016) as Keras has it: strides in the first 1×1 convolution, biases, ε = 0.001.

    Layers have Keras' names: ``res2a_branch2a``, ``bn2a_branch2a``, ….
    """

    preprocessing: Any
    BLOCKS: ClassVar = {2: "abc", 3: "abcd", 4: "abcdef", 5: "abc"}

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.bn_conv1 = nn.BatchNorm2d(64, eps=1e-3)
        inputs = 64
        for stage, letters in self.BLOCKS.items():
            width = 64 * 2 ** (stage - 2)
            for letter in letters:
                stride = 2 if letter == "a" and stage > 2 else 1
                sizes = [(inputs, width, 1, stride), (width, width, 3, 1), (width, 4 * width, 1, 1)]
                for branch, one in zip(("2a", "2b", "2c"), sizes, strict=True):
                    self._add(f"{stage}{letter}_branch{branch}", *one)
                if letter == "a":
                    self._add(f"{stage}{letter}_branch1", inputs, 4 * width, 1, stride)
                inputs = 4 * width
        self.fc1000 = nn.Linear(inputs, 1000)

    def _add(self, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2)
        self.add_module(f"res{name}", layer)
        self.add_module(f"bn{name}", nn.BatchNorm2d(outputs, eps=1e-3))

    def _branch(self, name: str, x: Tensor) -> Tensor:
        y: Tensor = getattr(self, f"bn{name}")(getattr(self, f"res{name}")(x))
        return y

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn_conv1(self.conv1(x)))
        x = functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, stride=2)
        for stage, letters in self.BLOCKS.items():
            for letter in letters:
                at = f"{stage}{letter}_branch"
                y = functional.relu(self._branch(f"{at}2a", x))
                y = functional.relu(self._branch(f"{at}2b", y))
                y = self._branch(f"{at}2c", y)
                x = functional.relu(y + (self._branch(f"{at}1", x) if letter == "a" else x))
        logits: Tensor = self.fc1000(x.mean((2, 3)))
        return logits
