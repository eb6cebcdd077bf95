"""Replay: old data beside the new, so that the old task is not forgotten."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, final

from torch import Tensor, nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.training.objective import Batch, Objective, Setup
from shiftbed.training.objectives.heads import OldTask, TwoHeads, old_heads_of

if TYPE_CHECKING:
    from shiftbed.training.loop import Run
    from shiftbed.training.stream import Stream


@final
class OldBatches:
    """Batches of the old data without end, epoch after epoch; ``served`` is where it is."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self.served = 0
        self._open: Iterator[Batch] | None = None

    def next(self) -> Batch:
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

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        new = functional.cross_entropy(network(batch.pixels), batch.labels)
        return self.with_old(network, new)

    def evaluated(self, network: nn.Module) -> nn.Module:
        return network.network if isinstance(network, TwoHeads) else network
