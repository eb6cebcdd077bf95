"""The training loop: forward, loss, backward, step; and what must be kept to go on after a kill."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shiftbed.errors import InputError
from shiftbed.training.objective import Hook, Objective, Setup
from shiftbed.training.optim import Schedule
from shiftbed.training.stream import Stream


def checkpoint_steps(plan: Mapping[str, Any], steps: int, steps_per_epoch: int) -> list[int]:
    """After which steps there is a checkpoint; always after the last.

    >>> checkpoint_steps({"unit": "epoch", "every": 2, "at": [0]}, 30, 10)
    [0, 20, 30]
    >>> checkpoint_steps({"unit": "step", "at": [1, 5, 500]}, 30, 10)
    [1, 5, 30]
    """
    size = steps_per_epoch if plan.get("unit", "epoch") == "epoch" else 1
    found = {size * at for at in plan.get("at", [])}
    if "every" in plan:
        found |= set(range(size * plan["every"], steps + 1, size * plan["every"]))
    return sorted({at for at in found if at <= steps} | {steps})


class Run:
    """A run while it is trained; hooks may change what it holds."""

    def __init__(
        self,
        *,
        network: nn.Module,
        objective: Objective,
        optimiser: Optimizer,
        schedule: Schedule,
        stream: Stream,
        steps: int,
        hooks: Sequence[Hook] = (),
        frozen: Iterable[nn.Module] = (),
        setup: Setup | None = None,
    ) -> None:
        self.network = network
        self.objective = objective
        self.optimiser = optimiser
        self.schedule = schedule
        self.stream = stream
        self.steps = steps
        self.hooks = tuple(hooks)
        self.frozen = tuple(frozen)
        """Modules that stay in evaluation mode: a backbone under a head that is trained alone."""
        self.setup = setup
        """What the objective began with: for hooks that open other data."""
        self.step = 0
        self.epoch = 0
        self.position = 0
        """Batches of the epoch that are done."""
        self.loss_sum = torch.zeros(())
        self.loss_count = 0

    def train_mode(self) -> None:
        """The network in training mode, its frozen parts not."""
        self.network.train()
        for module in self.frozen:
            module.eval()

    def mean_loss(self) -> float | None:
        """Mean loss of the steps since it was last asked, None if there were none."""
        if not self.loss_count:
            return None
        found = float(self.loss_sum) / self.loss_count
        self.loss_sum = torch.zeros((), device=self.loss_sum.device)
        self.loss_count = 0
        if not math.isfinite(found):
            raise InputError(
                f"the loss is not finite up to step {self.step}: try a smaller learning rate"
            )
        return found

    def state(self) -> dict[str, Any]:
        """Everything that the steps to come depend on; tensors, numbers, texts, lists and dicts."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "objective": self.objective.state(),
            "hooks": [hook.state() for hook in self.hooks],
            "kept": torch.from_numpy(self.stream.kept),
            "random": torch.get_rng_state(),
        }

    def begin(self, state: Mapping[str, Any] | None = None) -> None:
        """Start, or go on from what ``state`` gave."""
        if state is None:
            for hook in self.hooks:
                hook.begin(self)
            return
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        self.objective.load_state(state["objective"])
        for hook, own in zip(self.hooks, state["hooks"], strict=True):
            hook.load_state(own)
        for hook in self.hooks:
            hook.begin(self)
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        self.stream.keep(np.asarray(state["kept"]))
        torch.set_rng_state(state["random"])


def train(
    run: Run,
    stops: Sequence[int],
    checkpoint: Callable[[Run], None],
    seen: Callable[[int], None] = lambda examples: None,
) -> None:
    """Train until ``run.steps``; ``checkpoint`` is called after each of the steps ``stops``.

    ``seen`` hears how many examples each step took.
    """
    due = set(stops)
    if run.step == 0 and 0 in due:
        _checkpoint(run, checkpoint)
    run.train_mode()
    while run.step < run.steps:
        if run.position == 0:
            for hook in run.hooks:
                hook.before_epoch(run)
        for batch in run.stream.epoch(run.epoch, run.position):
            _step(run, run.objective.loss(run.network, batch))
            seen(len(batch.rows))
            if run.position == run.stream.steps_per_epoch:
                _end_of_epoch(run)
            if run.step == run.steps:
                for hook in run.hooks:
                    hook.finish(run)
            if run.step in due:
                _checkpoint(run, checkpoint)
            if run.position == 0 or run.step == run.steps:
                break


def _checkpoint(run: Run, checkpoint: Callable[[Run], None]) -> None:
    for hook in run.hooks:
        hook.before_checkpoint(run)
    checkpoint(run)
    run.train_mode()


def _step(run: Run, loss: Tensor) -> None:
    run.optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    for hook in run.hooks:
        hook.after_backward(run)
    run.optimiser.step()
    run.schedule.after_step()
    run.step += 1
    run.position += 1
    run.loss_sum = run.loss_sum + loss.detach()
    run.loss_count += 1
    run.objective.after_step(run)
    for hook in run.hooks:
        hook.after_step(run)


def _end_of_epoch(run: Run) -> None:
    run.schedule.after_epoch()
    for hook in run.hooks:
        hook.after_epoch(run)
    run.epoch += 1
    run.position = 0
