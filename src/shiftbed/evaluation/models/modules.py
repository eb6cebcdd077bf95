"""The few torch modules that turn other people's networks into pixels → logits → scores."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from shiftbed.labels import LabelPolicy
from shiftbed.labels.steps import ClassMap


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


class ImageTower(nn.Module):
    """The image half of a contrastive model with a linear head: W·normalised features + b.

    With W the text features times the learned scale it is the zero-shot classifier (radford2021,
    Section 3.1), and as a network like any other it can be probed, fine-tuned from there, and mixed
    with what it became (Wortsman et al., 2021).
    """

    def __init__(self, encoder: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @classmethod
    def of_text(
        cls, encoder: nn.Module, text: Tensor, scale: float, bias: float = 0.0
    ) -> "ImageTower":
        """``text`` is (classes, width) with rows of length 1; ``scale`` is exp(temperature)."""
        head = nn.Linear(text.shape[1], len(text))
        with torch.no_grad():
            head.weight.copy_(scale * text)
            head.bias.fill_(bias)
        return cls(encoder, head.requires_grad_(False))

    def forward(self, x: Tensor) -> Tensor:
        found = self.encoder(x)
        pooled = found[0] if isinstance(found, tuple) else found  # captioners also return tokens
        scores: Tensor = self.head(normalize(pooled, dim=-1))
        return scores


_NEVER = -1e9
"""The score of a target without classes: never predicted, and finite for the sake of gradients."""


class UnderPolicy(nn.Module):
    """Scores over the policy's classes, as ``LabelPolicy.apply`` gives them, with gradients.

    >>> from shiftbed.labels import subset
    >>> under = UnderPolicy(nn.Identity(), subset([2, 0]))
    >>> under(torch.tensor([[1.0, 5.0, 3.0]])).tolist()
    [[3.0, 1.0]]
    """

    def __init__(self, module: nn.Module, policy: LabelPolicy) -> None:
        super().__init__()
        self.module = module
        self.policy = policy

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.module(pixels)
        for step in self.policy.steps:
            if isinstance(step, ClassMap):
                scores = _combined(scores, step)
            else:
                scores = scores[:, list(step.indices)]
        return scores


def _combined(logits: torch.Tensor, step: ClassMap) -> torch.Tensor:
    """Classes mapped to targets: by the largest logit, or by their softmax."""
    sizes = [len(group) for group in step.groups]
    picked = logits[:, [one for group in step.groups for one in group]]
    to = torch.from_numpy(np.repeat(np.arange(step.width), sizes)).to(logits.device)
    index = to.expand(len(logits), -1)
    never = logits.new_full((len(logits), step.width), _NEVER)
    best = never.scatter_reduce(1, index, picked, "amax")
    if step.how in ("max", "max-logit"):
        scores = best
    else:
        base = best.detach()
        total = torch.zeros_like(never).scatter_add(1, index, (picked - base[:, to]).exp())
        scores = torch.where(total > 0, total.clamp_min(1e-30).log() + base, never)
        if step.how == "mean":
            scores = scores - logits.new_tensor([max(size, 1) for size in sizes]).log()
    if step.how != "max-logit":
        scores = scores - logits.logsumexp(dim=1, keepdim=True)
    return scores
