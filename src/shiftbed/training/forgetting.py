"""The old task while a new one is learned: replayed, and watched at every checkpoint."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError
from shiftbed.evaluation.models.heads import caught, mean_of_heads
from shiftbed.training.arguments import whole_number
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
    """Give a layer the size and a copy of the weights of another; it stays the same object."""
    if head.in_features != other.in_features:
        raise InputError(
            f"the old head takes {other.in_features} features, the network has {head.in_features}"
        )
    place = head.weight.device
    head.out_features = other.out_features
    head.weight = nn.Parameter(other.weight.detach().clone().to(place))
    bias = None if other.bias is None else nn.Parameter(other.bias.detach().clone().to(place))
    head.bias = bias


def opened(setup: Setup, name: str, classes: int, what: str) -> "Stream":
    """Batches of a data set whose labels must be those of the old head."""
    found = setup.open(name)
    if found.classes != classes:
        raise InputError(f"{what}: {name} has {found.classes} classes, the old head {classes}")
    return setup.stream(found)


def old_heads_of(setup: Setup, what: str) -> tuple[nn.Linear, ...]:
    """The heads that the start's weights came with, or why there are none."""
    if not setup.old_heads:
        raise InputError(
            f"objective {what!r} needs the old head: start from pretrained weights, a file or a run"
        )
    return setup.old_heads


class Replaying(Objective):
    """What replay with two heads and replay through one shared head have in common.

    ``ratio`` batches of the old data are trained on per new batch (andreassen2021, Appendix C.11:
    1, 10 or 100). By default each is a step of the optimiser of its own, after the new batch's;
    ``together`` makes one step on the mean loss of all 1 + ``ratio`` batches, which holds all of
    them in memory at once. Old images are not augmented.
    """

    on_features = True
    remembered = ("served",)

    def __init__(self, data: str | None, ratio: int, together: bool, what: str) -> None:
        self.data, self.together, self.what = data, together, what
        self.ratio = whole_number(ratio, f"objective {what!r}: ratio")
        self.stream: Stream | None = None
        self.served = 0
        """Old batches so far."""
        self._open: Iterator[TrainingBatch] | None = None

    def open_old(self, setup: Setup, classes: int) -> None:
        """Open the old data, whose labels must be those of the old head."""
        if self.data is not None:
            self.stream = opened(setup, self.data, classes, f"objective {self.what!r}")

    def next_old(self) -> TrainingBatch:
        """The next old batch: epoch after epoch, without end."""
        assert self.stream is not None
        epoch, position = divmod(self.served, self.stream.steps_per_epoch)
        if self._open is None or position == 0:
            self._open = iter(self.stream.epoch(epoch, position))
        self.served += 1
        return next(self._open)

    def old_loss(self, network: nn.Module) -> Tensor:
        """Cross-entropy of the next old batch, through the old head."""
        assert isinstance(network, OldTask)
        batch = self.next_old()
        return functional.cross_entropy(network.old(batch.pixels), batch.labels)

    def with_old(self, network: nn.Module, new: Tensor) -> Tensor:
        """The new batch's loss, and the old ones' if they share its step."""
        if self.stream is None or not self.together:
            return new
        for _ in range(self.ratio):
            new = new + self.old_loss(network)
        return new / (1 + self.ratio)

    def after_step(self, run: "Run") -> None:
        if self.stream is None or self.together:
            return
        for _ in range(self.ratio):
            run.optimiser.zero_grad(set_to_none=True)
            self.old_loss(run.network).backward()  # type: ignore[no-untyped-call]
            run.optimiser.step()


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

    remembered = ("log",)

    def __init__(self, data: str, limit: int | None = None) -> None:
        self.data = data
        self.limit = None if limit is None else whole_number(limit, "watch: limit")
        self.log: list[dict[str, Any]] = []
        """Per checkpoint: step, accuracy, its 95 % interval (Clopper–Pearson) and n."""

    def begin(self, run: "Run") -> None:
        setup = run.known()
        if not setup.old_heads:
            raise InputError("watch: a random start has no old task; start from trained weights")
        self.old = [deepcopy(head).to(setup.heads[0].weight.device) for head in setup.old_heads]
        self.heads = setup.heads
        self.stream = opened(setup, self.data, setup.old_heads[0].out_features, "watch")
        if self.limit is not None:
            self.stream.keep(self.stream.kept[: self.limit])

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
        low, high = map(float, clopper_pearson(right / count, count, 0.95))
        found = {"accuracy": right / count, "low": low, "high": high, "n": count}
        earlier = [one for one in self.log if one["step"] < run.step]
        self.log = [*earlier, {"step": run.step, **found}]

    def facts(self) -> dict[str, Any]:
        if not self.log:
            return {}
        last = {f"old_{key}": value for key, value in self.log[-1].items() if key != "step"}
        return {"old_data": self.data, **last}
