"""Class maps: the new task through the old head, each new class as several old ones."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.catalogue.maps import groups
from shiftbed.errors import InputError
from shiftbed.training.arguments import one_of
from shiftbed.training.forgetting import OldTask, Replaying, become, old_heads_of
from shiftbed.training.objective import Setup, TrainingBatch

OVER = ("merged", "all")
PULLED = ("head", "all")


def merged(logits: Tensor, index: Tensor) -> Tensor:
    """(B, new) the largest logit over the old classes of each new one; index (new, k), −1 pads."""
    found = logits[:, index.clamp(min=0)]
    return found.masked_fill(index < 0, -torch.inf).amax(dim=2)


@final
class MappedHead(OldTask):
    """A network with its old head, answering the new task by the largest mapped logit."""

    index: Tensor

    def __init__(self, network: nn.Module, index: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("index", index, persistent=False)

    def old(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(x)
        return found

    def forward(self, x: Tensor) -> Tensor:
        return merged(self.old(x), self.index)


@final
class Mapped(Replaying):
    """Cross-entropy on max logits over mapped classes; perhaps a pull, perhaps old data.

    andreassen2021, Appendix C.12. ``map`` names a class map that ships with the package
    (``cifar-10``) or lists the old classes of each new one. ``over = "merged"``: softmax over the
    new classes' largest logits; ``"all"``: −log softmax over all old classes at the best mapped
    one. ``pull``·‖θ − θ₀‖² keeps the ``pulled`` weights, of the head or all, near their start.
    ``data`` and ``ratio`` replay old data through the same head.
    """

    def __init__(
        self,
        map: str | Sequence[Sequence[int]],
        over: str = "merged",
        pull: float = 0.0,
        pulled: str = "head",
        data: str | None = None,
        ratio: int = 1,
        together: bool = False,
    ) -> None:
        super().__init__(data, ratio, together, "class-map")
        one_of(over, "softmax of objective 'class-map'", OVER)
        one_of(pulled, "pulled weights of objective 'class-map'", PULLED)
        if not pull >= 0:
            raise InputError(f"objective 'class-map': pull must be 0 or more, got {pull!r}")
        self.groups = _groups(map)
        self.over, self.pull, self.pulled = over, float(pull), pulled
        self.held: list[tuple[nn.Parameter, Tensor]] = []
        self.old_classes = 0

    def begin(self, setup: Setup) -> nn.Module:
        old = old_heads_of(setup, self.what)
        self.old_classes = classes = old[0].out_features
        if len(self.groups) != setup.classes:
            raise InputError(
                f"class map has {len(self.groups)} classes, the data has {setup.classes}"
            )
        largest = max(index for own in self.groups for index in own)
        if largest >= classes:
            raise InputError(f"class map names old class {largest}, the old head has {classes}")
        for head, other in zip(setup.heads, old, strict=True):
            become(head, other)
        self.open_old(setup, classes)
        module = MappedHead(setup.network, _index(self.groups).to(setup.heads[0].weight.device))
        if self.pull:
            layers: Sequence[nn.Module] = setup.heads if self.pulled == "head" else [module]
            weights = [p for layer in layers for p in layer.parameters()]
            self.held = [(p, p.detach().clone()) for p in weights]
        return module

    def distance(self) -> Tensor:
        """‖θ − θ₀‖² over the pulled weights."""
        return torch.stack([(now - then).square().sum() for now, then in self.held]).sum()

    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        assert isinstance(network, MappedHead)
        logits = network.old(batch.pixels)
        best = merged(logits, network.index)
        if self.over == "merged":
            new = functional.cross_entropy(best, batch.labels)
        else:
            at = best.gather(1, batch.labels[:, None])[:, 0]
            new = (torch.logsumexp(logits, dim=1) - at).mean()
        found = self.with_old(network, new)
        return found + self.pull * self.distance() if self.held else found

    def evaluated(self, network: nn.Module) -> nn.Module:
        mapped = isinstance(network, MappedHead)
        return network if mapped else MappedHead(network, _index(self.groups))

    def written(self, network: nn.Module) -> nn.Module:
        return network.network if isinstance(network, MappedHead) else network

    def outputs(self, classes: int) -> int:
        return self.old_classes or classes


def _groups(map: str | Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Old classes of each new one, checked."""
    own = groups(map) if isinstance(map, str) else dict(enumerate(map))
    found = {str(name): tuple(int(i) for i in indices) for name, indices in own.items()}
    for name, indices in found.items():
        if not indices or min(indices) < 0:
            raise InputError(f"objective 'class-map': class {name} has no old classes")
    everything = [index for indices in found.values() for index in indices]
    if len(set(everything)) < len(everything):
        raise InputError("objective 'class-map': an old class belongs to two new ones")
    return tuple(found.values())


def _index(groups: Sequence[Sequence[int]]) -> Tensor:
    """(new, k) with −1 where a class has fewer than k."""
    k = max(map(len, groups))
    return torch.tensor([[*own, *[-1] * (k - len(own))] for own in groups])
