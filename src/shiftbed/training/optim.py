"""Optimisers and schedules of torch by their own names."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler

from shiftbed.errors import InputError, unknown

_TOTALS = {
    "CosineAnnealingLR": "T_max",
    "LinearLR": "total_iters",
    "PolynomialLR": "total_iters",
    "OneCycleLR": "total_steps",
}
"""Schedules that need to know how long training is, and what they call it."""


def make_optimiser(table: Mapping[str, Any], parameters: Iterable[nn.Parameter]) -> Optimizer:
    """An optimiser of ``torch.optim`` from ``{name = "SGD", lr = 0.1, …}``.

    >>> make_optimiser({"name": "SGD", "lr": 0.1}, [nn.Parameter(torch.zeros(1))]).defaults["lr"]
    0.1
    """
    name = str(table["name"])
    known = {
        key: value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    if name not in known:
        raise unknown("optimiser", name, known)
    options = {key: _pair(value) for key, value in table.items() if key != "name"}
    try:
        made: Optimizer = known[name](list(parameters), **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimiser {name!r}: {error}") from None
    return made


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Schedule:
    """A schedule of torch, stepped once a step or once an epoch; or none."""

    def __init__(self, scheduler: Any | None, per: str) -> None:
        self.scheduler = scheduler
        self.per = per

    def after_step(self) -> None:
        if self.scheduler is not None and self.per == "step":
            self.scheduler.step()

    def after_epoch(self) -> None:
        if self.scheduler is not None and self.per == "epoch":
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
    if per not in ("step", "epoch"):
        raise unknown("per of schedule", per, ("step", "epoch"))
    warmup = table.get("warmup", 0)
    options = {k: _pair(v) for k, v in table.items() if k not in ("name", "per", "warmup")}
    length = (steps if per == "step" else epochs) - warmup
    known = _known()
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


def _known() -> dict[str, Any]:
    """Schedules that need nothing but numbers."""
    leave = {"LRScheduler", "_LRScheduler", "SequentialLR", "ChainedScheduler", "LambdaLR"}
    leave |= {"MultiplicativeLR", "ReduceLROnPlateau"}
    base = lr_scheduler.LRScheduler
    return {
        key: value
        for key, value in vars(lr_scheduler).items()
        if isinstance(value, type) and issubclass(value, base) and key not in leave
    }
