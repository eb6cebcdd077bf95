"""Networks to train: whatever ``shiftbed.evaluation.models`` resolves to a module,
with a head.

The head is what timm calls the classifier, and the last ``Linear`` of any other network. It is
replaced by a new one where it does not have as many outputs as the data has classes, and kept
where it has: a stage that goes on with the same classes goes on with its head.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models import TorchModel, resolve
from shiftbed.evaluation.models.checkpoints import existing, fit, read_state
from shiftbed.evaluation.models.modules import Normalised
from shiftbed.evaluation.models.torch_model import seeded
from shiftbed.evaluation.preprocessing import Preprocessing

PREFIXES = ("timm", "torchvision", "python", "torch", "nets")


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A network in training: pixels in [0, 1] to logits."""

    module: Normalised
    """Normalises, then calls ``module.network``, whose state dict is what checkpoints hold."""
    heads: tuple[nn.Linear, ...]
    preprocessing: Preprocessing
    classes: int
    spec: str
    """How the architecture is resolved."""
    old_heads: tuple[nn.Linear, ...] = ()
    """Copies of the heads that the start's weights came with."""

    def freeze_all_but_heads(self) -> None:
        self.module.requires_grad_(False)
        for head in self.heads:
            head.requires_grad_(True)

    def as_model(self, name: str, module: nn.Module | None = None) -> TorchModel:
        """For evaluation; the module must be in evaluation mode."""
        return TorchModel(
            id=name,
            classes=self.classes,
            preprocessing=self.preprocessing,
            module=self.module if module is None else module,
            device=str(next(self.module.parameters()).device),
        )


def make_network(
    spec: str,
    classes: int,
    start: str = "random",
    *,
    seed: int = 0,
    base: str | Path = ".",
    weights: Path | None = None,
    old_classes: int | None = None,
    device: str = "cpu",
) -> Network:
    """A network with a head of ``classes`` outputs.

    ``start``: "pretrained" (the library's weights), "random" (drawn with ``seed``), "file:WEIGHTS"
    (relative to ``base``), or "run:ID", whose ``weights`` and ``old_classes`` are then given.

    >>> make_network("timm:resnet10t?size=32", 7).heads[0].out_features
    7
    """
    prefix = spec.partition(":")[0]
    if prefix not in PREFIXES:
        raise unknown("kind of model to train", prefix, PREFIXES)
    if start.startswith("file:"):
        weights = existing(Path(base) / start.removeprefix("file:"), "start")
        network = _resolved(spec, prefix, None, seed, weights)
    elif start == "pretrained":
        network = _resolved(spec, prefix, None, seed, None, pretrained=True)
    else:
        network = _resolved(spec, prefix, old_classes or classes, seed, None)
    if old_classes is not None and network.classes != old_classes:
        network = _with_head(network, prefix, old_classes, seed)
    if weights is not None and not start.startswith("file:"):
        fit(network.module.network, read_state(weights), weights)
    if start != "random":
        network = replace(network, old_heads=tuple(deepcopy(head) for head in network.heads))
    if network.classes != classes:
        network = _with_head(network, prefix, classes, seed)
    module: Any = network.module.requires_grad_(True)
    module.to(device=device, memory_format=torch.channels_last)
    return network


def _resolved(
    spec: str,
    prefix: str,
    classes: int | None,
    seed: int,
    weights: Path | None,
    pretrained: bool = False,
) -> Network:
    """The architecture with its own number of classes, or ``classes`` where that can be asked."""
    text = spec
    if not pretrained and weights is None and prefix in ("timm", "torchvision", "nets"):
        query = [] if prefix == "nets" else ["pretrained=false"]
        query += [f"num_classes={classes}"] if classes is not None else []
        query += [] if "seed=" in spec else [f"seed={seed}"]
        given = spec.partition("?")[2]
        query = [one for one in query if one.partition("=")[0] + "=" not in given]
        text = spec + ("&" if given else "?") + "&".join(query)
    with seeded(seed):
        model = resolve(text, weights=weights)
    if not isinstance(model, TorchModel) or not isinstance(model.module, Normalised):
        raise InputError(
            f"{spec} cannot be trained: it is no torch network with weights of its own"
        )
    return Network(
        module=model.module,
        heads=_heads(model.module.network, prefix),
        preprocessing=model.preprocessing,
        classes=model.classes,
        spec=spec,
    )


def _heads(network: nn.Module, prefix: str) -> tuple[nn.Linear, ...]:
    if prefix == "timm":
        timms: Any = network
        found = timms.get_classifier()
        layers = found if isinstance(found, tuple) else (found,)
        if all(isinstance(layer, nn.Linear) for layer in layers):
            return tuple(layers)
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise InputError(f"{type(network).__name__} has no linear layer to be its head")
    return (linear[-1],)


def _with_head(network: Network, prefix: str, classes: int, seed: int) -> Network:
    """The same with new heads, drawn with the seed."""
    inner = network.module.network
    with seeded(seed):
        if prefix == "timm":
            timms: Any = inner
            timms.reset_classifier(classes)
        else:
            old = network.heads[-1]
            new = nn.Linear(old.in_features, classes, bias=old.bias is not None)
            for parent in inner.modules():
                for name, child in parent.named_children():
                    if child is old:
                        setattr(parent, name, new)
            if inner is old:
                raise InputError(f"{network.spec} is a single layer and has no head to replace")
    return replace(network, heads=_heads(inner, prefix), classes=classes)
