"""A network as a backbone and a head: features of an image, and what the head makes of them.

Linear probes and networks with a replaced head differ in one matrix. What enters the head, the
features, is the same for all that share a backbone: it is computed once, and every head answers
from it. ``with_head`` makes such models; ``split`` finds the two parts of any network that ends in
linear layers.
"""

import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from shiftbed.errors import InputError
from shiftbed.evaluation.models.base import Floats, Pixels
from shiftbed.evaluation.models.modules import Normalised
from shiftbed.evaluation.models.torch_model import TorchModel, network_digest, torch_threads

_PLAIN = (bool, int, float, str, type(None), tuple, list, torch.dtype)
"""Settings of a module that are told apart by what they print."""


class HeadOnly(nn.Module):
    """Logits from features: the mean over heads of W_k f_k + b_k; mostly there is one head.

    Features of several heads lie side by side, (N, Σ width_k).
    """

    def __init__(self, heads: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.widths = [head.in_features for head in heads]

    def forward(self, features: Tensor) -> Tensor:
        return mean_of_heads(self.heads, torch.split(features, self.widths, dim=1))


class Through(nn.Module):
    """Pixels to logits by way of features: a network up to its ``own`` heads, then ``head``."""

    def __init__(
        self, network: nn.Module, own: Sequence[nn.Module], head: nn.Module, backbone: str = ""
    ) -> None:
        super().__init__()
        self.network = network
        self.own = tuple(own)
        self.head = head
        self.backbone = backbone
        """Digest of the network without its own heads, where it is known."""

    def forward(self, pixels: Tensor) -> Tensor:
        with caught(self.own) as inputs:
            self.network(pixels)
        found: Tensor = self.head(torch.cat(inputs, dim=1))
        return found


@contextmanager
def caught(heads: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """What enters each head while the network runs inside: (B, width) each."""
    found: list[Any] = [None] * len(heads)

    def catch(number: int) -> Callable[[nn.Module, Any], None]:
        def hook(layer: nn.Module, inputs: Any) -> None:
            found[number] = inputs[0].flatten(1)

        return hook

    handles = [head.register_forward_pre_hook(catch(k)) for k, head in enumerate(heads)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def mean_of_heads(heads: Iterable[nn.Module], inputs: Sequence[Tensor]) -> Tensor:
    """The mean over heads of W_k f_k + b_k; mostly there is one head."""
    scores = [head(one) for head, one in zip(heads, inputs, strict=True)]
    return scores[0] if len(scores) == 1 else torch.stack(scores).mean(dim=0)


def last_linear(network: nn.Module) -> tuple[nn.Linear, ...]:
    """The layers that make the logits: a timm network's classifier, else the last linear layer."""
    classifier = getattr(network, "get_classifier", None)
    if callable(classifier):
        found = classifier()
        layers = found if isinstance(found, tuple) else (found,)
        if layers and all(isinstance(layer, nn.Linear) for layer in layers):
            return layers
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return tuple(linear[-1:])


def backbone_digest(network: nn.Module, heads: Sequence[nn.Module]) -> str:
    """SHA-256 of a network without its heads: its parts, their settings, and all tensors."""
    without = {id(head) for head in heads}
    whole = hashlib.sha256()
    for name, part in network.named_modules():
        plain = {
            key: value
            for key, value in vars(part).items()
            if isinstance(value, _PLAIN) and not key.startswith("_") and key != "training"
        }
        settings = re.sub(r" at 0x[0-9a-f]+", "", f"{part.extra_repr()} {sorted(plain.items())}")
        text = "" if id(part) in without else settings
        whole.update(f"{name} {type(part).__qualname__} {text}\n".encode())
    out = {id(tensor) for head in heads for tensor in head.parameters()}
    own: dict[str, Tensor] = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    for name in sorted(own):
        if id(own[name]) not in out:
            tensor = own[name].detach().cpu().contiguous()
            whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            whole.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """A network as a backbone and a head on its features."""

    model: TorchModel
    network: nn.Module
    """From pixels in [0, 1], by way of ``own``."""
    own: tuple[nn.Module, ...]
    """The layers whose inputs are the features."""
    head: nn.Module
    """(N, width) features to (N, classes) logits."""
    backbone: str
    """Digest of the network without its own heads: equal for networks that share it."""

    def features(self, pixels: Pixels) -> tuple[Tensor, Tensor] | None:
        """(N, width) features and the network's own output; None if a head is never called."""
        with torch.inference_mode(), caught(self.own) as inputs:
            made = self.network(self.model.tensor(pixels))
            if not all(map(torch.is_tensor, inputs)):
                return None
            return torch.cat(inputs, dim=1), made

    def checked(self, pixels: Pixels) -> Floats | None:
        """(N, width) features; None if the network's own heads do not make its output of them."""
        found = self.features(pixels)
        linear = [layer for layer in self.own if isinstance(layer, nn.Linear)]
        if found is None or len(linear) < len(self.own):
            return None
        features, made = found
        if features.shape[1] != sum(layer.in_features for layer in linear):
            return None
        with torch.inference_mode():
            if not torch.equal(HeadOnly(linear)(features), made):
                return None
        values: Floats = features.cpu().numpy()
        return values

    def answer(self, features: Tensor, threads: int | None = None) -> Floats:
        """(N, classes) logits of features: one multiplication, as the whole network does it."""
        with torch_threads(threads or torch.get_num_threads()), torch.inference_mode():
            found: Floats = self.head(features).cpu().numpy()
        return found


def features_module(parts: Split) -> nn.Module | None:
    """The backbone as a network of its own, pixels to (N, width) features, for exporting it.

    None where the network does anything with its head's output but return it.
    """
    if len(parts.own) != 1 or not isinstance(parts.own[0], nn.Linear):
        return None
    memo: dict[int, Any] = {id(parts.own[0]): nn.Identity()}
    made: nn.Module = copy.deepcopy(parts.network, memo)
    p = parts.model.preprocessing
    noise = torch.rand(2, p.channels, *p.size, generator=torch.Generator().manual_seed(0))
    with torch_threads(1), torch.inference_mode():
        found = parts.features(noise.numpy())
        if found is None:
            return None
        seen = made(parts.model.tensor(noise.numpy()))
        same = torch.equal(seen, found[0]) and torch.equal(parts.own[0](seen), found[1])
    return made if same else None


def split(model: TorchModel) -> Split | None:
    """The two parts of a model in float32 that ends in linear layers; None for any other.

    Whether its logits are what the head makes of the features is for who runs it to see.
    """
    if model.precision != "float32":
        return None
    module = model.module
    if isinstance(module, Through):
        known = module.backbone or backbone_digest(module.network, module.own)
        return Split(
            model=model, network=module.network, own=module.own, head=module.head, backbone=known
        )
    heads = last_linear(module.network) if isinstance(module, Normalised) else ()
    if not heads or module is heads[0]:
        return None
    return Split(
        model=model,
        network=module,
        own=heads,
        head=HeadOnly(heads),
        backbone=backbone_digest(module, heads),
    )


def with_head(model: TorchModel, head: nn.Module, *, name: str) -> TorchModel:
    """The same backbone with another head; models made so share it, in memory and in evaluation.

    ``head`` goes from (N, width) features to (N, classes) logits: an ``nn.Linear`` of the width of
    the model's own, mostly.

    >>> from shiftbed.evaluation.models import resolve
    >>> network = resolve("timm:resnet10t?pretrained=false&size=32")
    >>> probe = with_head(network, nn.Linear(512, 7), name="probe")
    >>> probe.id, probe.classes
    ('probe', 7)
    """
    parts = model.parts
    if parts is None:
        raise InputError(f"{model.id} has no head to replace: it does not end in a linear layer")
    own = head.eval().requires_grad_(False).to(model.device)
    module = Through(parts.network, parts.own, own, parts.backbone)
    digest = hashlib.sha256(f"{parts.backbone} {network_digest(own)}".encode()).hexdigest()
    width = sum(int(getattr(layer, "in_features", 0)) for layer in parts.own)
    try:
        with torch.inference_mode():
            found = own(torch.zeros(1, width, device=model.device))
    except RuntimeError as error:
        raise InputError(f"{name}: the head does not take {width} features: {error}") from None
    return replace(
        model,
        id=name,
        classes=found.shape[1],
        module=module,
        content=digest,
        facts={},
        class_names=(),
    )


def light(model: TorchModel, parts: Split, other: Split) -> TorchModel | None:
    """A model on the backbone of another one, so that its own copy can go.

    None unless it answers an empty image as it did: the digests are equal, the code may differ.
    """
    if parts.network is other.network:
        return model
    own = parts.head
    module = Through(other.network, other.own, own, other.backbone)
    content = model.content or network_digest(model.module)
    made = replace(model, module=module, content=content)
    shape = (1, model.preprocessing.channels, *model.preprocessing.size)
    empty = torch.zeros(shape).numpy()
    before, after = model.logits(empty), made.logits(empty)
    scale = float(abs(before).max()) or 1.0
    same = before.shape == after.shape and float(abs(after - before).max()) <= 1e-4 * scale
    return made if same else None
