"""Initialization tickets: masks are learned, weights never are (edge-popup and biprop).

Every weight has a score. The lowest |scores| are masked; the gradient passes through the choice as
if it were the identity (Ramanujan et al., 2020, Section 3.2):

    ∂L/∂|s| = ∂L/∂w · w₀       w₀ the weight at initialization, w the one computed with

It is exactly the gradient with respect to the mask, so torch's mask is given a gradient of its own
and the scores take it over.

Biprop (Diffenderfer & Kailkhura, 2021) computes with α·m ⊙ sign(w₀), α = ‖m ⊙ w₀‖₁ / ‖m‖₁ per
layer, and the same gradient of the scores.
"""

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

from shiftbed.errors import unknown
from shiftbed.training.objective import Hook
from shiftbed.training.prune.masks import (
    SCOPES,
    Layer,
    check_sparsity,
    check_target,
    folded,
    layers,
    mask_lowest,
    settle,
    signs,
    sparsity_of,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbed.training.loop import Run


INITS = ("signed-constant", "kaiming-normal", "keep")


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
    torch_hooks = [
        key
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, torch_prune.BasePruningMethod)
    ]
    for key in torch_hooks:
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


class Popup(Hook):
    """Edge-popup, or biprop with ``binary``: train scores, leave every weight as it is.

    All parameters are frozen, biases and normalisation among them; the optimiser gets the scores
    instead. Before that, ``init`` sets the weights of pruned layers. With σ = √(2/(fan_in·(1−s))),
    Kaiming's standard deviation for the share that is left: ``signed-constant`` (the default of
    edge-popup) makes each weight ±σ with its old sign, ``kaiming-normal`` (the default of biprop,
    whose gain would have nothing to measure otherwise) draws from N(0, σ²) with ``seed``, ``keep``
    takes them as they come.
    """

    def __init__(
        self,
        *,
        sparsity: float,
        scope: str = "global",
        binary: bool = False,
        init: str | None = None,
        seed: int = 0,
        skip: "Sequence[str]" = (),
    ) -> None:
        self.sparsity = check_target(sparsity)
        if scope not in SCOPES:
            raise unknown("scope", scope, SCOPES)
        self.scope, self.binary, self.seed, self.skip = scope, binary, seed, tuple(skip)
        self.init = init or ("kaiming-normal" if binary else "signed-constant")
        if self.init not in INITS:
            raise unknown("init of weights", self.init, INITS)
        self.layers: list[Layer] = []

    def begin(self, run: "Run") -> None:
        """Freeze the weights, draw the scores, and give them to the optimiser."""
        self.prepare(run.network)
        for i, group in enumerate(run.optimiser.param_groups):
            group["params"] = [] if i else self.scores

    def prepare(self, network: nn.Module) -> None:
        """Masks and scores; what ``begin`` does to the network."""
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

    def before_checkpoint(self, run: "Run") -> None:
        settle(run.network)

    def finish(self, run: "Run") -> None:
        self._choose()
        check_sparsity(run.network, self.sparsity, self.scope)

    def weights(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return folded(state)

    def facts(self) -> dict[str, Any]:
        found = [layer.module for layer in self.layers]
        there = sparsity_of(nn.ModuleList(found)) if found else None
        return {
            "pruning": "biprop" if self.binary else "edge-popup",
            "scope": self.scope,
            "sparsity": None if there is None else there.value,
        }


def _fan_in(weights: Tensor) -> int:
    return weights[0].numel()
