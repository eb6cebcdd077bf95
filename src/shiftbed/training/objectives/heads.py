"""Networks that still answer the old task while they learn a new one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from shiftbed.errors import InputError
from shiftbed.training.objective import Setup


class OldTask(nn.Module):
    """A network whose ``old`` gives the logits of the task its start was trained for."""

    @abstractmethod
    def old(self, x: Tensor) -> Tensor:
        """(B, old classes)"""


def head_inputs(network: nn.Module, heads: Sequence[nn.Module], x: Tensor) -> list[Tensor]:
    """What enters each head while ``network`` answers ``x``: (B, width) each."""
    caught: dict[int, Tensor] = {}

    def catch(number: int) -> Callable[[nn.Module, Any], None]:
        def hook(layer: nn.Module, inputs: Any) -> None:
            caught[number] = inputs[0]

        return hook

    handles = [h.register_forward_pre_hook(catch(number)) for number, h in enumerate(heads)]
    try:
        network(x)
    finally:
        for handle in handles:
            handle.remove()
    return [caught[number] for number in range(len(heads))]


def from_heads(heads: Sequence[nn.Module], inputs: Sequence[Tensor]) -> Tensor:
    """The mean over heads of their logits; mostly there is one."""
    scores = [head(one) for head, one in zip(heads, inputs, strict=True)]
    return scores[0] if len(scores) == 1 else torch.stack(scores).mean(dim=0)


@final
class TwoHeads(OldTask):
    """A network with its new head, and the old head on the same features."""

    def __init__(
        self, network: nn.Module, heads: Sequence[nn.Linear], old: Sequence[nn.Linear]
    ) -> None:
        super().__init__()
        self.network = network
        self.old_heads = nn.ModuleList(old)
        self._new_heads = tuple(heads)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(x)
        return found

    def old(self, x: Tensor) -> Tensor:
        inputs = head_inputs(self.network, self._new_heads, x)
        return from_heads(list(self.old_heads), inputs)


def become(head: nn.Linear, other: nn.Linear) -> None:
    """Give a layer the size and a copy of the weights of another; it stays the same object.

    >>> head = nn.Linear(3, 2)
    >>> become(head, nn.Linear(3, 5))
    >>> head(torch.zeros(1, 3)).shape
    torch.Size([1, 5])
    """
    if head.in_features != other.in_features:
        raise InputError(
            f"the old head takes {other.in_features} features, the network has {head.in_features}"
        )
    place = head.weight.device
    head.out_features = other.out_features
    head.weight = nn.Parameter(other.weight.detach().clone().to(place))
    bias = None if other.bias is None else nn.Parameter(other.bias.detach().clone().to(place))
    head.bias = bias


def old_heads_of(setup: Setup, what: str) -> tuple[nn.Linear, ...]:
    """The heads that the start's weights came with, or why there are none."""
    if not setup.old_heads:
        raise InputError(
            f"objective {what!r} needs the old head: start from pretrained weights, a file or a run"
        )
    return setup.old_heads
