"""``watch``: accuracy on the old task, at every checkpoint of a fine-tuning run."""

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError
from shiftbed.training.objective import Hook, Setup
from shiftbed.training.objectives.heads import OldTask, from_heads, head_inputs

if TYPE_CHECKING:
    from shiftbed.training.loop import Run
    from shiftbed.training.stream import Stream


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
        return from_heads(self.old, head_inputs(network, self.heads, x))

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
