"""The old task while a new one is learned: replayed, and watched at every checkpoint."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError
from shiftbed.training.networks import caught, mean_of_heads
from shiftbed.training.objective import Hook, Objective, Setup, TrainingBatch

if TYPE_CHECKING:
    from shiftbed.training.loop import Run
    from shiftbed.training.stream import Stream


class OldTask(nn.Module):
    """A network whose ``old`` gives the logits of the task its start was trained for."""

    @abstractmethod
    def old(self, x: Tensor) -> Tensor:
        """(B, old classes)"""


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
        with caught(self._new_heads) as inputs:
            self.network(x)
        return mean_of_heads(self.old_heads, inputs)


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


@final
class OldBatches:
    """Batches of the old data without end, epoch after epoch; ``served`` is where it is."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self.served = 0
        self._open: Iterator[TrainingBatch] | None = None

    def next(self) -> TrainingBatch:
        """The next batch."""
        per_epoch = self.stream.steps_per_epoch
        if self._open is None or self.served % per_epoch == 0:
            self._open = iter(self.stream.epoch(self.served // per_epoch, self.served % per_epoch))
        self.served += 1
        return next(self._open)

    def go_on(self, served: int) -> None:
        """Continue after so many batches."""
        self.served, self._open = served, None


class Replaying(Objective):
    """What replay with two heads and replay through one shared head have in common.

    ``ratio`` batches of the old data are trained on per new batch (andreassen2021, Appendix C.11:
    1, 10 or 100). By default each is a step of the optimiser of its own, after the new batch's;
    ``together`` makes one step on the mean loss of all 1 + ``ratio`` batches, which holds all of
    them in memory at once. Old images are not augmented.
    """

    on_features = True

    def __init__(self, data: str | None, ratio: int, together: bool, what: str) -> None:
        if isinstance(ratio, bool) or not isinstance(ratio, int) or ratio < 1:
            raise InputError(f"objective {what!r}: ratio must be a whole number ≥ 1, got {ratio!r}")
        self.data, self.ratio, self.together, self.what = data, ratio, together, what
        self.batches: OldBatches | None = None

    def open_old(self, setup: Setup, classes: int) -> None:
        """Open the old data, whose labels must be those of the old head."""
        if self.data is None:
            return
        old = setup.open(self.data)
        if old.classes != classes:
            raise InputError(
                f"objective {self.what!r}: {self.data} has {old.classes} classes, the old head "
                f"{classes}"
            )
        self.batches = OldBatches(setup.stream(old))

    def old_loss(self, network: nn.Module) -> Tensor:
        """Cross-entropy of the next old batch, through the old head."""
        assert self.batches is not None
        assert isinstance(network, OldTask)
        batch = self.batches.next()
        return functional.cross_entropy(network.old(batch.pixels), batch.labels)

    def with_old(self, network: nn.Module, new: Tensor) -> Tensor:
        """The new batch's loss, and the old ones' if they share its step."""
        if self.batches is None or not self.together:
            return new
        for _ in range(self.ratio):
            new = new + self.old_loss(network)
        return new / (1 + self.ratio)

    def after_step(self, run: "Run") -> None:
        if self.batches is None or self.together:
            return
        for _ in range(self.ratio):
            run.optimiser.zero_grad(set_to_none=True)
            self.old_loss(run.network).backward()  # type: ignore[no-untyped-call]
            run.optimiser.step()

    def state(self) -> dict[str, Any]:
        return {} if self.batches is None else {"served": self.batches.served}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if self.batches is not None:
            self.batches.go_on(int(state["served"]))


@final
class Replay(Replaying):
    """Cross-entropy on the new data through a new head, and on the old data through the old one.

    ``data`` is a data set of the recipe whose classes are the old head's.
    """

    def __init__(self, data: str, ratio: int = 1, together: bool = False) -> None:
        super().__init__(data, ratio, together, "replay")

    def begin(self, setup: Setup) -> nn.Module:
        old = old_heads_of(setup, self.what)
        self.open_old(setup, old[0].out_features)
        place = setup.heads[0].weight.device
        kept = [deepcopy(head).to(place).requires_grad_(True) for head in old]
        return TwoHeads(setup.network, setup.heads, kept)

    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        new = functional.cross_entropy(network(batch.pixels), batch.labels)
        return self.with_old(network, new)

    def evaluated(self, network: nn.Module) -> nn.Module:
        return network.network if isinstance(network, TwoHeads) else network


@final
class Watch(Hook):
    """Accuracy on ``data`` through the old head, on at most ``limit`` examples.

    andreassen2021, Appendix C.11. The old head is the one that is trained along (replay, class
    maps), else the start's head as it was. ``data`` is a data set of the recipe with the old task's
    labels; name its test set.
    """

    def __init__(self, data: str, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise InputError(f"watch: limit must be 1 or more, got {limit!r}")
        self.data, self.limit = data, limit
        self.log: list[dict[str, Any]] = []
        """Per checkpoint: step, accuracy, its 95 % interval (Clopper–Pearson) and n."""

    def begin(self, run: "Run") -> None:
        setup = run.setup
        if setup is None:
            raise InputError("watch needs the recipe's data")
        if not setup.old_heads:
            raise InputError("watch: a random start has no old task; start from trained weights")
        self.old = [deepcopy(head).to(setup.heads[0].weight.device) for head in setup.old_heads]
        self.stream = self._opened(setup)
        self.heads = setup.heads

    def _opened(self, setup: Setup) -> "Stream":
        found = setup.open(self.data)
        classes = setup.old_heads[0].out_features
        if found.classes != classes:
            raise InputError(
                f"watch: {self.data} has {found.classes} classes, the old head {classes}"
            )
        stream = setup.stream(found)
        if self.limit is not None:
            stream.keep(np.arange(min(self.limit, len(found))))
        return stream

    def _logits(self, network: nn.Module, x: Tensor) -> Tensor:
        if isinstance(network, OldTask):
            return network.old(x)
        with caught(self.heads) as inputs:
            network(x)
        return mean_of_heads(self.old, inputs)

    def before_checkpoint(self, run: "Run") -> None:
        run.network.eval()
        right = count = 0
        with torch.inference_mode():
            for batch in self.stream.epoch(0):
                answers = self._logits(run.network, batch.pixels).argmax(dim=1)
                right += int((answers == batch.labels).sum())
                count += len(batch.labels)
        share = right / count
        low, high = clopper_pearson(np.array([share]), np.array([count]), 0.95)
        found = {"accuracy": share, "low": float(low[0]), "high": float(high[0]), "n": count}
        self.log = [one for one in self.log if one["step"] < run.step]
        self.log.append({"step": run.step, **found})

    def facts(self) -> dict[str, Any]:
        if not self.log:
            return {}
        last = {f"old_{key}": value for key, value in self.log[-1].items() if key != "step"}
        return {"old_data": self.data, **last}

    def state(self) -> dict[str, Any]:
        return {"log": self.log}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.log = [dict(one) for one in state["log"]]
