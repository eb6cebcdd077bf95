"""The few torch modules that turn other people's networks into pixels → logits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Normalised(nn.Module):
    """network((x − mean) / std) for pixels x in [0, 1], (N, C, H, W).

    Normalisation is computed in float32 whatever the network's precision, and logits are float32.

    >>> module = Normalised(nn.Flatten(), mean=[0.5], std=[0.25])
    >>> module(torch.ones(1, 1, 1, 1)).tolist()
    [[2.0]]
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.network = network.to(dtype)
        self.dtype = dtype
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(((x - self.mean) / self.std).to(self.dtype))
        return y.to(torch.float32)


class Named(nn.Module):
    """The logits of a network that returns several things under names, as transformers' do."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(pixel_values=x, return_dict=True).logits
        return found


class Unregistered(nn.Module):
    """A module that cannot be switched to evaluation mode, as exported programs are in already."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.kept = (network,)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.kept[0](x)
        return found


class ZeroShot(nn.Module):
    """Zero-shot head: scale · cos(image features, text features) + bias (radford2021, Section 3.1).

    ``text`` is (classes, width) with rows of length 1; ``scale`` is the learned exp(temperature).
    """

    text: Tensor

    def __init__(self, encoder: nn.Module, text: Tensor, scale: float, bias: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.scale = scale
        self.bias = bias
        self.register_buffer("text", text)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, bias={self.bias}"

    def forward(self, x: Tensor) -> Tensor:
        found = self.encoder(x)
        pooled = found[0] if isinstance(found, tuple) else found  # captioners also return tokens
        features = normalize(pooled, dim=-1)
        return self.scale * features @ self.text.T + self.bias
