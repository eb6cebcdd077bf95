"""Pruning by magnitude: when weights are masked, and what happens to those that stay.

Traditional: *magnitude* masks once and fine-tunes (Han et al., 2015); *gradual* masks a little at a
time while training (Zhu & Gupta, 2017). Rewinding tickets train, mask and train again, several
rounds: *lottery-ticket* puts weights and learning rate back to an early step (Frankle et al.,
2020), *lr-rewinding* the learning rate only (Renda et al., 2020).

A masked weight stays masked. Steps are those of the run; shares are shares of it.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from shiftbed.errors import InputError, unknown
from shiftbed.training.objective import Hook
from shiftbed.training.prune.masks import (
    SCOPES,
    Layer,
    check_sparsity,
    check_target,
    folded,
    mask_lowest,
    settle,
    sparsity_of,
    start,
)

if TYPE_CHECKING:
    from shiftbed.training.loop import Run


def prune_by_magnitude(found: Sequence[Layer], sparsity: float, scope: str) -> None:
    """Mask the smallest |w| so that ``sparsity`` is reached; what is masked already goes first."""
    kept = [torch.where(one.mask > 0, one.weights.detach().abs(), -1.0) for one in found]
    mask_lowest(found, kept, sparsity, scope)


def cubic(sparsity: float, done: float) -> float:
    """s·(1 − (1 − t)³) after a share t of the prunings (Zhu & Gupta, 2017, Equation 1).

    >>> cubic(0.8, 0.0), cubic(0.8, 0.5), cubic(0.8, 1.0)
    (0.0, 0.7000000000000001, 0.8)
    """
    return sparsity * (1.0 - (1.0 - done) ** 3)


def sparsities(sparsity: float, rounds: int | None) -> list[float]:
    """Sparsity after each round: every round masks the same share of the weights left.

    Without a number of rounds, as many as a fifth each time needs, as Frankle & Carbin (2019) do.

    >>> [round(s, 3) for s in sparsities(0.8, 3)]
    [0.415, 0.658, 0.8]
    >>> len(sparsities(0.8, None))
    8
    """
    if rounds is None:
        rounds = max(1, math.ceil(math.log(1.0 - sparsity) / math.log(0.8)))
    left = [(1.0 - sparsity) ** (i / rounds) for i in range(1, rounds)]
    return [*(1.0 - one for one in left), sparsity]


def share(value: Any, what: str) -> float:
    """A share of the run's steps, in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise InputError(f"{what} must be a share of the steps in [0, 1), got {value!r}")
    return float(value)


class _ByMagnitude(Hook):
    """Masks from the first step on (ones at first), checked at the end."""

    method = ""

    def __init__(self, *, sparsity: float, scope: str = "global", skip: Sequence[str] = ()) -> None:
        self.sparsity = check_target(sparsity)
        if scope not in SCOPES:
            raise unknown("scope", scope, SCOPES)
        self.scope, self.skip = scope, tuple(skip)
        self.layers: list[Layer] = []

    def begin(self, run: "Run") -> None:
        self.layers = start(run.network, self.skip)

    def prune(self, sparsity: float) -> None:
        prune_by_magnitude(self.layers, sparsity, self.scope)

    def before_checkpoint(self, run: "Run") -> None:
        settle(run.network)

    def finish(self, run: "Run") -> None:
        check_sparsity(run.network, self.sparsity, self.scope)

    def weights(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return folded(state)

    def facts(self) -> dict[str, Any]:
        found = [layer.module for layer in self.layers]
        there = sparsity_of(nn.ModuleList(found)).value if found else None
        return {"pruning": self.method, "scope": self.scope, "sparsity": there}


class Magnitude(_ByMagnitude):
    """Train, mask once after the share ``at`` of the steps, fine-tune for the rest.

    ``at = 0`` prunes what the run starts from.
    """

    method = "magnitude"

    def __init__(self, *, at: float = 0.5, **options: Any) -> None:
        super().__init__(**options)
        self.at = share(at, "prune.at")

    def begin(self, run: "Run") -> None:
        super().begin(run)
        self.when = round(self.at * run.steps)
        if self.when == 0:
            self.prune(self.sparsity)

    def after_step(self, run: "Run") -> None:
        if run.step == self.when:
            self.prune(self.sparsity)


class Gradual(_ByMagnitude):
    """``prunings`` times between the shares ``start`` and ``stop``, along the cubic schedule."""

    method = "gradual"

    def __init__(
        self, *, start: float = 0.0, stop: float = 0.75, prunings: int = 20, **options: Any
    ) -> None:
        super().__init__(**options)
        self.start, self.stop = share(start, "prune.start"), share(stop, "prune.stop")
        if self.stop <= self.start:
            raise InputError(f"prune.stop must lie above start, got {start:g} and {stop:g}")
        self.prunings = whole(prunings, "prune.prunings")

    def begin(self, run: "Run") -> None:
        super().begin(run)
        first, last = (max(1, round(s * run.steps)) for s in (self.start, self.stop))
        n = self.prunings
        self.at = {
            round(first + (last - first) * i / n): cubic(self.sparsity, i / n)
            for i in range(1, n + 1)
        }

    def after_step(self, run: "Run") -> None:
        if run.step in self.at:
            self.prune(self.at[run.step])


class Rewinding(_ByMagnitude):
    """Train, then several rounds of: mask, rewind, train again.

    T are the run's steps and k = ``rewind``·T. The dense network trains for T steps and every
    round from k to T once more, T + R·(T − k) steps in all. Rewinding puts the learning rate (and
    all else in the optimiser's groups) back to step k and empties the optimiser's memory; with
    ``weights`` it also puts every parameter and buffer but the masks back to step k.
    """

    def __init__(
        self,
        *,
        weights: bool,
        rewind: float | None = None,
        rounds: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.with_weights = weights
        self.method = "lottery-ticket" if weights else "lr-rewinding"
        self.rewind = share((0.05 if weights else 0.0) if rewind is None else rewind, "rewind")
        self.rounds = None if rounds is None else whole(rounds, "prune.rounds")
        self.targets = sparsities(self.sparsity, self.rounds)
        self.round = 0
        self.kept: dict[str, Any] | None = None

    def begin(self, run: "Run") -> None:
        super().begin(run)
        length, early = run.steps, round(self.rewind * run.steps)
        self.early = early
        self.ends = [length + i * (length - early) for i in range(len(self.targets))]
        run.steps = length + len(self.targets) * (length - early)
        if early == 0 and self.kept is None:
            self._keep(run)

    def after_step(self, run: "Run") -> None:
        if run.step == self.early:
            self._keep(run)
        if run.step in self.ends:
            self.round = 1 + self.ends.index(run.step)
            self.prune(self.targets[self.round - 1])
            self._rewind(run)

    def after_epoch(self, run: "Run") -> None:
        """A schedule that counts epochs has moved since ``after_step``: keep or rewind it again."""
        if run.step == self.early:
            self._keep(run)
        if run.step in self.ends:
            self._rewind(run)

    def _keep(self, run: "Run") -> None:
        state = run.network.state_dict() if self.with_weights else {}
        self.kept = {
            "weights": {n: t.clone() for n, t in state.items() if not n.endswith("weight_mask")},
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in run.optimiser.param_groups
            ],
            "schedule": copy.deepcopy(run.schedule.state_dict()),
        }

    def _rewind(self, run: "Run") -> None:
        assert self.kept is not None
        if self.with_weights:
            _load(run.network, self.kept["weights"])
        run.optimiser.state.clear()
        for group, old in zip(run.optimiser.param_groups, self.kept["groups"], strict=True):
            group.update(old)
        run.schedule.load_state_dict(copy.deepcopy(self.kept["schedule"]))

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"round": self.round, "rounds": len(self.targets)}

    def state(self) -> dict[str, Any]:
        return {"round": self.round, "kept": self.kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.round, self.kept = int(state["round"]), state["kept"]


def _load(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    own = network.state_dict()
    with torch.no_grad():
        for name, tensor in weights.items():
            own[name].copy_(tensor)


def whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{what} must be a whole number from 1, got {value!r}")
    return value
