"""Pruning with torch's own masks: six methods, global or layerwise, exact to the weight.

=================  ===============================================================  ===============
method             what happens                                                     fridovich2022
=================  ===============================================================  ===============
magnitude          mask once, fine-tune (``at``)                                    traditional
gradual            mask a little at a time (``start``, ``stop``, ``prunings``)      traditional
lottery-ticket     mask, rewind weights and learning rate (``rewind``, ``rounds``)  rewinding
lr-rewinding       mask, rewind the learning rate (``rewind``, ``rounds``)          rewinding
edge-popup         learn masks, never weights (``init``, ``seed``)                  initialization
biprop             the same with binary weights (``init``, ``seed``)                initialization
=================  ===============================================================  ===============

All take ``sparsity``, ``scope`` (``global`` or ``layerwise``) and ``skip``, names of layers to
leave dense. In their order: Han et al. (2015), Zhu & Gupta (2017), Frankle et al. (2020), Renda et
al. (2020). A masked weight stays masked. Steps are those of the run; shares are shares of it.

Initialization tickets: masks are learned, weights never are. Every weight has a score. The lowest
|scores| are masked; the gradient passes through the choice as if it were the identity (Ramanujan et
al., 2020, Section 3.2):

    ∂L/∂|s| = ∂L/∂w · w₀       w₀ the weight at initialization, w the one computed with

It is exactly the gradient with respect to the mask, so torch's mask is given a gradient of its own
and the scores take it over. Biprop (Diffenderfer & Kailkhura, 2021) computes with α·m ⊙ sign(w₀),
α = ‖m ⊙ w₀‖₁ / ‖m‖₁ per layer, and the same gradient of the scores.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

from shiftbed.errors import InputError
from shiftbed.training.arguments import one_of, share, whole_number
from shiftbed.training.masks import (
    SCOPES,
    Layer,
    check_sparsity,
    folded,
    layers,
    mask_lowest,
    settle,
    signs,
    sparsity_of,
    start,
)
from shiftbed.training.objective import Hook

if TYPE_CHECKING:
    from shiftbed.training.loop import Run

INITS = ("signed-constant", "kaiming-normal", "keep")


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
    """
    if rounds is None:
        rounds = max(1, math.ceil(math.log(1.0 - sparsity) / math.log(0.8)))
    left = [(1.0 - sparsity) ** (i / rounds) for i in range(1, rounds)]
    return [*(1.0 - one for one in left), sparsity]


class _Pruning(Hook):
    """Masks from the first step on (ones at first), checked at the end."""

    method = ""

    def __init__(self, *, sparsity: float, scope: str = "global", skip: Sequence[str] = ()) -> None:
        self.sparsity = share(sparsity, "sparsity", "[0, 1)")
        one_of(scope, "scope", SCOPES)
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


class Magnitude(_Pruning):
    """Train, mask once after the share ``at`` of the steps, fine-tune for the rest.

    ``at = 0`` prunes what the run starts from.
    """

    method = "magnitude"

    def __init__(self, *, at: float = 0.5, **options: Any) -> None:
        super().__init__(**options)
        self.at = share(at, "prune.at", "[0, 1)")

    def begin(self, run: "Run") -> None:
        super().begin(run)
        self.when = round(self.at * run.steps)
        if self.when == 0:
            self.prune(self.sparsity)

    def after_step(self, run: "Run") -> None:
        if run.step == self.when:
            self.prune(self.sparsity)


class Gradual(_Pruning):
    """``prunings`` times between the shares ``start`` and ``stop``, along the cubic schedule."""

    method = "gradual"

    def __init__(
        self, *, start: float = 0.0, stop: float = 0.75, prunings: int = 20, **options: Any
    ) -> None:
        super().__init__(**options)
        self.start = share(start, "prune.start", "[0, 1)")
        self.stop = share(stop, "prune.stop", "[0, 1)")
        if self.stop <= self.start:
            raise InputError(f"prune.stop must lie above start, got {start:g} and {stop:g}")
        self.prunings = whole_number(prunings, "prune.prunings")

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


class Rewinding(_Pruning):
    """Train, then several rounds of: mask, rewind, train again.

    T are the run's steps and k = ``rewind``·T. The dense network trains for T steps and every
    round from k to T once more, T + R·(T − k) steps in all. Rewinding puts the learning rate (and
    all else in the optimiser's groups) back to step k and empties the optimiser's memory; with
    ``weights`` it also puts every parameter and buffer but the masks back to step k.
    """

    remembered = ("round", "kept")

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
        early = (0.05 if weights else 0.0) if rewind is None else rewind
        self.rewind = share(early, "rewind", "[0, 1)")
        count = None if rounds is None else whole_number(rounds, "prune.rounds")
        self.targets = sparsities(self.sparsity, count)
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
        own = run.network.state_dict()
        with torch.no_grad():
            for name, tensor in self.kept["weights"].items():
                own[name].copy_(tensor)
        run.optimiser.state.clear()
        for group, old in zip(run.optimiser.param_groups, self.kept["groups"], strict=True):
            group.update(old)
        run.schedule.load_state_dict(copy.deepcopy(self.kept["schedule"]))

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"round": self.round, "rounds": len(self.targets)}


class Binarised(torch_prune.CustomFromMask):
    """torch's mask with α·m ⊙ sign(w₀) for a weight; backward as for m ⊙ w₀."""

    def apply_mask(self, module: nn.Module) -> Tensor:
        mask, weights = cast(Tensor, module.weight_mask), cast(Tensor, module.weight_orig)
        gain = cast(Tensor, module.weight_gain)
        real = mask * weights
        binary = gain * (mask * signs(weights))
        if not real.requires_grad:
            return binary
        return binary.detach() + (real - real.detach())


def binarise(layer: Layer) -> None:
    """Have a masked layer compute with binary weights; its gain is a buffer."""
    module = layer.module
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, torch_prune.BasePruningMethod):
            del module._forward_pre_hooks[key]
    method = Binarised(layer.mask)
    method._tensor_name = "weight"
    module.register_buffer("weight_gain", torch.ones((), dtype=layer.weights.dtype))
    module.register_forward_pre_hook(method)
    update_gain(layer)


def update_gain(layer: Layer) -> None:
    """α = ‖m ⊙ w₀‖₁ / ‖m‖₁, 0 if the layer has nothing left."""
    with torch.no_grad():
        total, kept = (layer.mask * layer.weights).abs().sum(), layer.mask.sum().clamp(min=1)
        cast(Tensor, layer.module.weight_gain).copy_(total / kept)


class Popup(_Pruning):
    """Edge-popup, or biprop with ``binary``: train scores, leave every weight as it is.

    All parameters are frozen, biases and normalisation among them; the optimiser gets the scores
    instead. Before that, ``init`` sets the weights of pruned layers. With σ = √(2/(fan_in·(1−s))),
    Kaiming's standard deviation for the share that is left: ``signed-constant`` (the default of
    edge-popup) makes each weight ±σ with its old sign, ``kaiming-normal`` (the default of biprop,
    whose gain would have nothing to measure otherwise) draws from N(0, σ²) with ``seed``, ``keep``
    takes them as they come.
    """

    def __init__(
        self, *, binary: bool = False, init: str | None = None, seed: int = 0, **options: Any
    ) -> None:
        super().__init__(**options)
        self.binary, self.seed = binary, seed
        self.method = "biprop" if binary else "edge-popup"
        self.init = init or ("kaiming-normal" if binary else "signed-constant")
        one_of(self.init, "init of weights", INITS)

    def begin(self, run: "Run") -> None:
        """Freeze the weights, draw the scores, and give them to the optimiser."""
        network = run.network
        network.requires_grad_(False)
        generator = torch.Generator().manual_seed(self.seed)
        for layer in layers(network, self.skip):
            self._initialise(cast(Tensor, layer.module.weight), generator)
        self.layers = start(network, self.skip)
        for layer in self.layers:
            weights = layer.weights
            bound = _fan_in(weights) ** -0.5  # Kaiming uniform with a = √5, as torch's layers
            drawn = torch.empty(weights.shape).uniform_(-bound, bound, generator=generator)
            score = drawn.to(device=weights.device, dtype=weights.dtype)
            layer.module.register_parameter("weight_score", nn.Parameter(score))
            if self.binary:
                binarise(layer)
        self._choose()
        settle(network)
        for i, group in enumerate(run.optimiser.param_groups):
            group["params"] = [] if i else self.scores

    def _initialise(self, weights: Tensor, generator: torch.Generator) -> None:
        if self.init == "keep":
            return
        sigma = (2.0 / (_fan_in(weights) * (1.0 - self.sparsity))) ** 0.5
        with torch.no_grad():
            if self.init == "signed-constant":
                weights.copy_(sigma * signs(weights))
            else:
                weights.copy_(torch.empty(weights.shape).normal_(0.0, sigma, generator=generator))

    @property
    def scores(self) -> list[nn.Parameter]:
        return [cast(nn.Parameter, layer.module.weight_score) for layer in self.layers]

    def _choose(self) -> None:
        """Masks, and gains, from the scores as they are now."""
        mask_lowest(self.layers, [score.abs() for score in self.scores], self.sparsity, self.scope)
        for layer in self.layers:
            if self.binary:
                update_gain(layer)
            layer.mask.requires_grad_(True)
            layer.mask.grad = None

    def after_backward(self, run: "Run") -> None:
        """∂L/∂s = ∂L/∂m · sign(s): the straight-through gradient."""
        for layer, score in zip(self.layers, self.scores, strict=True):
            slope = layer.mask.grad
            score.grad = torch.zeros_like(score) if slope is None else slope * score.sign()

    def after_step(self, run: "Run") -> None:
        self._choose()

    def finish(self, run: "Run") -> None:
        self._choose()
        super().finish(run)


def _fan_in(weights: Tensor) -> int:
    return weights[0].numel()


METHODS: dict[str, tuple[Callable[..., Hook], dict[str, Any], tuple[str, ...]]] = {
    "magnitude": (Magnitude, {}, ("at",)),
    "gradual": (Gradual, {}, ("start", "stop", "prunings")),
    "lottery-ticket": (Rewinding, {"weights": True}, ("rewind", "rounds")),
    "lr-rewinding": (Rewinding, {"weights": False}, ("rewind", "rounds")),
    "edge-popup": (Popup, {"binary": False}, ("init", "seed")),
    "biprop": (Popup, {"binary": True}, ("init", "seed")),
}
"""Method → its hook, what the name fixes, and its own options."""


def make(*, method: str, sparsity: float, scope: str = "global", **options: Any) -> Hook:
    """A pruning hook from a recipe's table.

    >>> make(method="gradual", sparsity=0.8, prunings=10).facts()["pruning"]
    'gradual'
    """
    one_of(method, "pruning method", METHODS)
    hook, fixed, own = METHODS[method]
    for key, value in options.items():
        one_of(key, f"option of {method}", (*own, "skip"))
        names = value if isinstance(value, list | tuple) else [None]
        if key == "skip" and not all(isinstance(one, str) for one in names):
            raise InputError(f"prune.skip must be a list of layer names, got {value!r}")
    return hook(sparsity=sparsity, scope=scope, **fixed, **options)
