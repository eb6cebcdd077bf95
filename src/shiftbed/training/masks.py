"""Masks of ``torch.nn.utils.prune`` with an exact number of zeros, and what survives in a file.

A pruned layer computes with ``weight = weight_mask ⊙ weight_orig``, which torch's own hook makes
again before every forward pass. Both are in the state dict. Pruned are the weights of all
convolutions and linear layers, the head included; biases and normalisation are not.

Sparsity s of a scope of N weights means that exactly round(s·N) of them are masked. The scope is
the whole network (``global``) or each layer by itself (``layerwise``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils import prune as torch_prune

from shiftbed.errors import InputError
from shiftbed.training.arguments import one_of

SCOPES = ("global", "layerwise")
KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_ORIG, _MASK, _GAIN, _SCORE = "_orig", "_mask", "_gain", "_score"


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A layer whose weight can be pruned."""

    name: str
    module: nn.Module

    @property
    def weights(self) -> Tensor:
        """The unmasked weights, a parameter."""
        return cast(Tensor, self.module.weight_orig)

    @property
    def mask(self) -> Tensor:
        """1 where a weight is kept, else 0; a buffer."""
        return cast(Tensor, self.module.weight_mask)


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """How many weights are masked, of how many."""

    zeros: int
    weights: int

    @property
    def value(self) -> float:
        return self.zeros / self.weights


def layers(network: nn.Module, skip: Sequence[str] = ()) -> list[Layer]:
    """Layers that can be pruned, in the network's order; ``skip`` names some to leave dense.

    Names are the network's own, without the ``network.`` of the normalisation around it.
    The output projection of torch's own attention is left out: it is used without being called.
    """
    found = [
        Layer(name=name, module=module)
        for name, module in network.named_modules()
        if isinstance(module, KINDS) and not isinstance(module, NonDynamicallyQuantizableLinear)
    ]
    names = {layer.name.removeprefix("network."): layer for layer in found}
    for name in skip:
        one_of(name, "layer to leave dense", names)
    left = [layer for name, layer in names.items() if name not in skip]
    if not left:
        raise InputError("the network has no convolution or linear layer to prune")
    return left


def start(network: nn.Module, skip: Sequence[str] = ()) -> list[Layer]:
    """Give every layer a mask of ones: the network computes as before, under torch's names."""
    found = layers(network, skip)
    for layer in found:
        if torch_prune.is_pruned(layer.module):
            raise InputError(f"layer {layer.name!r} is pruned already")
        torch_prune.identity(layer.module, "weight")  # type: ignore[no-untyped-call]
    return found


def pruned_layers(network: nn.Module) -> list[Layer]:
    """The layers that have a mask."""
    found = network.named_modules()
    return [Layer(name=n, module=m) for n, m in found if "weight" + _MASK in m._buffers]


def zeros_of(sizes: Iterable[int], sparsity: float, scope: str) -> list[int]:
    """How many weights of each scope are to be masked: round(s·N).

    >>> zeros_of([10, 5], 0.5, "global"), zeros_of([10, 5], 0.5, "layerwise")
    ([8], [5, 2])
    """
    one_of(scope, "scope", SCOPES)
    counts = list(sizes)
    scopes = [sum(counts)] if scope == "global" else counts
    return [round(sparsity * n) for n in scopes]


def mask_lowest(
    found: Sequence[Layer], scores: Sequence[Tensor], sparsity: float, scope: str
) -> None:
    """Mask the weights with the lowest scores, exactly round(s·N) of them in each scope.

    Of equal scores those in front go first, so that nothing is left to chance.
    """
    sizes = [score.numel() for score in scores]
    wanted = zeros_of(sizes, sparsity, scope)
    flat = [score.detach().reshape(-1) for score in scores]
    if scope == "global":
        kept = tuple(torch.split_with_sizes(_keep(torch.cat(flat), wanted[0]), sizes))
    else:
        kept = tuple(_keep(one, k) for one, k in zip(flat, wanted, strict=True))
    with torch.no_grad():
        for layer, keep in zip(found, kept, strict=True):
            layer.mask.copy_(keep.view(layer.mask.shape))


def _keep(scores: Tensor, zeros: int) -> Tensor:
    """True for all but the ``zeros`` lowest scores: one selection, no sort."""
    if zeros in (0, len(scores)):
        return torch.full_like(scores, zeros == 0, dtype=torch.bool)
    threshold = torch.kthvalue(scores, zeros).values
    keep = scores > threshold
    tied = torch.nonzero(scores == threshold).squeeze(1)
    below = len(scores) - int(keep.sum()) - len(tied)
    keep[tied[zeros - below :]] = True
    return keep


def sparsity_of(network: nn.Module) -> Sparsity:
    """Masked weights of all pruned layers together."""
    found = pruned_layers(network)
    if not found:
        raise InputError("the network has no masks: nothing is pruned")
    total = sum(layer.mask.numel() for layer in found)
    kept = sum(int(layer.mask.detach().count_nonzero()) for layer in found)
    return Sparsity(zeros=total - kept, weights=total)


def check_sparsity(network: nn.Module, sparsity: float, scope: str) -> None:
    """Every scope must have exactly the zeros it should.

    Looks at the weights that the layers compute with, not at the masks alone.
    """
    found = pruned_layers(network)
    settle(network)
    masks = [layer.mask.detach() for layer in found]
    for layer, mask in zip(found, masks, strict=True):
        used = cast(Tensor, layer.module.weight)
        if ((mask != 0) & (mask != 1)).any():
            raise ValueError(f"the mask of {layer.name!r} holds more than zeros and ones")
        if used[mask == 0].any():
            raise ValueError(f"{layer.name!r} computes with weights that are masked")
    zeros = [mask.numel() - int(mask.count_nonzero()) for mask in masks]
    wanted = zeros_of([mask.numel() for mask in masks], sparsity, scope)
    got = [sum(zeros)] if scope == "global" else zeros
    if got != wanted:
        raise ValueError(f"{scope} sparsity {sparsity:g} needs {wanted} zeros, there are {got}")


def settle(network: nn.Module) -> None:
    """Compute ``weight`` from mask and weights now, without a graph: the network can be copied."""
    with torch.no_grad():
        for layer in pruned_layers(network):
            for hook in layer.module._forward_pre_hooks.values():
                if isinstance(hook, torch_prune.BasePruningMethod):
                    hook(layer.module, ())


def folded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A pruned network's state dict as an ordinary one: each weight with its zeros.

    ``X_orig`` and ``X_mask`` become X = X_mask ⊙ X_orig; with ``X_gain``, as biprop leaves it,
    X = gain · X_mask ⊙ sign(X_orig). Scores are dropped. What is not pruned is passed on.
    """
    found: dict[str, Tensor] = {}
    pruned = {n.removesuffix(_MASK) for n in state if n.endswith(_MASK)}
    pruned = {name for name in pruned if name + _ORIG in state}
    gone = {name + end for name in pruned for end in (_MASK, _GAIN, _SCORE)}
    for name, tensor in state.items():
        base = name.removesuffix(_ORIG)
        if name.endswith(_ORIG) and base in pruned:
            mask = state[base + _MASK]
            gain = state.get(base + _GAIN)
            found[base] = mask * tensor if gain is None else gain * (mask * signs(tensor))
        elif name not in gone:
            found[name] = tensor
    return found


def signs(weights: Tensor) -> Tensor:
    """−1 or 1; zero counts as positive."""
    return torch.where(weights < 0, -1.0, 1.0).to(weights.dtype)
