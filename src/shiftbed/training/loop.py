"""The training loop: forward, loss, backward, step; and what must be kept to go on after a kill."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler

from shiftbed.errors import InputError, unknown
from shiftbed.training.arguments import one_of
from shiftbed.training.objective import Hook, Objective, Setup
from shiftbed.training.stream import Stream

_TOTALS = {
    "CosineAnnealingLR": "T_max",
    "LinearLR": "total_iters",
    "PolynomialLR": "total_iters",
    "OneCycleLR": "total_steps",
}
"""Schedules that need to know how long training is, and what they call it."""


def make_optimiser(table: Mapping[str, Any], parameters: Iterable[nn.Parameter]) -> Optimizer:
    """An optimiser of ``torch.optim`` from ``{name = "SGD", lr = 0.1, …}``."""
    name, known = str(table["name"]), _known(torch.optim, Optimizer, {"Optimizer"})
    one_of(name, "optimiser", known)
    options = {key: _pair(value) for key, value in table.items() if key != "name"}
    try:
        made: Optimizer = known[name](list(parameters), **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimiser {name!r}: {error}") from None
    return made


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Schedule:
    """A schedule of torch, stepped once a step or once an epoch; or none."""

    scheduler: Any | None
    per: str

    def after(self, what: str) -> None:
        if self.scheduler is not None and self.per == what:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return {} if self.scheduler is None else dict(self.scheduler.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.scheduler is not None:
            self.scheduler.load_state_dict(dict(state))


def make_schedule(
    table: Mapping[str, Any], optimiser: Optimizer, *, steps: int, epochs: int
) -> Schedule:
    """A schedule of ``torch.optim.lr_scheduler`` from ``{name = "StepLR", step_size = 30, …}``.

    ``per`` is what it counts, "step" (default) or "epoch". ``warmup`` steps or epochs of linear
    rise come before it. Cosine, linear, polynomial and one-cycle schedules get the length of the
    run where none is given. "constant" is no schedule.
    """
    name, per = str(table["name"]), str(table.get("per", "step"))
    one_of(per, "per of schedule", ("step", "epoch"))
    warmup = table.get("warmup", 0)
    options = {k: _pair(v) for k, v in table.items() if k not in ("name", "per", "warmup")}
    length = (steps if per == "step" else epochs) - warmup
    leave = {"LRScheduler", "_LRScheduler", "SequentialLR", "ChainedScheduler", "LambdaLR"}
    leave |= {"MultiplicativeLR", "ReduceLROnPlateau"}  # they need more than numbers
    known = _known(lr_scheduler, lr_scheduler.LRScheduler, leave)
    if name != "constant" and name not in known:
        raise unknown("schedule", name, ("constant", *known))
    if name == "constant" and options:
        raise unknown("key of schedule 'constant'", next(iter(options)), ("per", "warmup"))
    if name in _TOTALS:
        options.setdefault(_TOTALS[name], max(1, length))
    try:
        main = None if name == "constant" else known[name](optimiser, **options)
        if not warmup:
            return Schedule(main, per)
        rise = lr_scheduler.LinearLR(optimiser, start_factor=1 / (warmup + 1), total_iters=warmup)
        if main is None:
            return Schedule(rise, per)
        return Schedule(lr_scheduler.SequentialLR(optimiser, [rise, main], [warmup]), per)
    except (TypeError, ValueError) as error:
        raise InputError(f"schedule {name!r}: {error}") from None


def _known(module: Any, base: type, leave: Collection[str]) -> dict[str, Any]:
    """The classes of a module of torch that can be named."""
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and key not in leave
    }


def checkpoint_steps(plan: Mapping[str, Any], steps: int, steps_per_epoch: int) -> list[int]:
    """After which steps there is a checkpoint; always after the last.

    >>> checkpoint_steps({"unit": "epoch", "every": 2, "at": [0]}, 30, 10)
    [0, 20, 30]
    """
    size = steps_per_epoch if plan.get("unit", "epoch") == "epoch" else 1
    found = {size * at for at in plan.get("at", [])}
    if "every" in plan:
        found |= set(range(size * plan["every"], steps + 1, size * plan["every"]))
    return sorted({at for at in found if at <= steps} | {steps})


@dataclass(kw_only=True, eq=False)
class Run:
    """A run while it is trained; hooks may change what it holds."""

    network: nn.Module
    objective: Objective
    optimiser: Optimizer
    schedule: Schedule
    stream: Stream
    steps: int
    hooks: Sequence[Hook] = ()
    frozen: Sequence[nn.Module] = ()
    """Modules that stay in evaluation mode: a backbone under a head that is trained alone."""
    setup: Setup | None = None
    """What the objective began with."""
    step: int = 0
    epoch: int = 0
    position: int = 0
    """Batches of the epoch that are done."""
    loss_sum: Tensor = field(default_factory=lambda: torch.zeros(()))
    loss_count: int = 0

    def known(self) -> Setup:
        """What the objective began with, for hooks that need its data or open other data."""
        if self.setup is None:
            raise InputError("this hook needs the recipe's data")
        return self.setup

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
        if state is not None:
            self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
            self.objective.load_state(state["objective"])
            for hook, own in zip(self.hooks, state["hooks"], strict=True):
                hook.load_state(own)
        for hook in self.hooks:
            hook.begin(self)
        if state is None:
            return
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
                run.schedule.after("epoch")
                for hook in run.hooks:
                    hook.after_epoch(run)
                run.epoch, run.position = run.epoch + 1, 0
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
    run.schedule.after("step")
    run.step += 1
    run.position += 1
    run.loss_sum = run.loss_sum + loss.detach()
    run.loss_count += 1
    run.objective.after_step(run)
    for hook in run.hooks:
        hook.after_step(run)
