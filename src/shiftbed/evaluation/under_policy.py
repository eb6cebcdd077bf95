"""A label policy as the last layer of a network, so that attacks see what is judged."""

import numpy as np
import torch
from torch import nn

from shiftbed.labels import LabelPolicy
from shiftbed.labels.steps import ClassMap

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
