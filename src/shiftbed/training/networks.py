"""Networks to train: whatever ``shiftbed.evaluation.models`` resolves to a module, with a head.

The head is what timm calls the classifier, and the last ``Linear`` of any other network. It is
replaced by a new one where it does not have as many outputs as the data has classes, and kept
where it has: a stage that goes on with the same classes goes on with its head. ``head = "new"``
replaces it in any case, ``"keep"`` refuses to; ``"mapped"`` is the objective class-map.

``nets:NAME`` are the 32-px networks of the papers, and small ones that train on two cores:

=============  =================================================================================
conv8          Conv-2/4/6 of Frankle & Carbin (2019) with a fourth pair of layers (Ramanujan et
               al., 2020): 64, 64, 128, 128, 256, 256, 512, 512 channels, each pair followed by
               max pooling, then 256, 256, classes; no biases, no normalisation
resnet18       He et al. (2016), ImageNet's four stages behind a 3×3 stem of stride 1, no max
               pooling in front
vgg16          Simonyan & Zisserman (2015), configuration D with batch normalisation, the mean
               over the last 2×2 places instead of a fifth max pooling, and one linear layer
resnet8 … 56   He et al. (2016), Section 4.2: 6n+2 layers of 16, 32, 64 channels, shortcuts
               without parameters (option A)
=============  =================================================================================

fridovich2022 trains the first three on CIFAR-10, and its released state dicts load
(``released.py``). Keys of the line: ``num_classes`` (10), ``seed``, ``weights`` (a local state
dict), ``size`` and the other fields of preprocessing; ``mode=L`` makes the stem take one channel.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.evaluation.models import Model, resolve
from shiftbed.evaluation.models.base import versions
from shiftbed.evaluation.models.checkpoints import digest, existing, fit, read_state
from shiftbed.evaluation.models.heads import last_linear
from shiftbed.evaluation.models.modules import Normalised
from shiftbed.evaluation.models.spec import stamp
from shiftbed.evaluation.models.torch_model import TorchModel, seeded, wrap
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.probe import NORMALISATIONS
from shiftbed.foreign_code import MINE, Origin
from shiftbed.training.arguments import checked_start, one_of
from shiftbed.training.released import read_released

if TYPE_CHECKING:
    from shiftbed.evaluation.models.spec import Request


PIXEL_MEAN, PIXEL_STD = NORMALISATIONS["cifar-10"]
"""Of CIFAR-10's training pixels, as the code released with fridovich2022 has them: of ``nets:``."""


class Block(nn.Module):
    """Two 3×3 convolutions around a shortcut: relu(F(x) + x) (He et al., 2016, Figure 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, projected: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if projected and (inputs, stride) != (outputs, 1):
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))
        elif (inputs, stride) != (outputs, 1):
            self.shortcut = Padded(stride, outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y)) + self.shortcut(x)
        return functional.relu(y)


class Padded(nn.Module):
    """Option A: every ``stride``-th pixel, further channels filled with zeros; no parameters."""

    def __init__(self, stride: int, more: int) -> None:
        super().__init__()
        self.stride, self.more = stride, more

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))


class Residual(nn.Module):
    """A 3×3 stem, stages of blocks, the mean over pixels, a linear head."""

    def __init__(
        self, widths: list[int], blocks: int, classes: int, channels: int, *, projected: bool
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        stages, inputs = [], widths[0]
        for i, width in enumerate(widths):
            made = []
            for j in range(blocks):
                stride = 2 if i and not j else 1
                made.append(Block(inputs, width, stride, projected=projected))
                inputs = width
            stages.append(nn.Sequential(*made))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(inputs, classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.stages(y).mean((2, 3))
        logits: Tensor = self.fc(y)
        return logits


class Plain(nn.Module):
    """Convolutions with max pooling in between, then linear layers: Conv8 and VGG."""

    def __init__(self, features: list[nn.Module], pooled: int, head: list[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(pooled)  # the mean over what is left; any size fits by it
        self.classifier = nn.Sequential(*head)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.pool(self.features(x)).flatten(1))
        return logits


def _initialise(network: nn.Module) -> None:
    """N(0, 2/fan_out) for convolutions (He et al., 2015); the rest is torch's default."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _conv8(classes: int, channels: int) -> nn.Module:
    features: list[nn.Module] = []
    for width in (64, 128, 256, 512):
        for inputs in (channels, width):
            features += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.ReLU()]
        features.append(nn.MaxPool2d(2))
        channels = width
    head: list[nn.Module] = []
    for inputs in (4 * channels, 256):
        head += [nn.Linear(inputs, 256, bias=False), nn.ReLU()]
    return Plain(features, 2, [*head, nn.Linear(256, classes, bias=False)])


def _vgg16(classes: int, channels: int) -> nn.Module:
    features: list[nn.Module] = []
    for width, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        if features:
            features.append(nn.MaxPool2d(2))
        for _ in range(layers):
            convolution = nn.Conv2d(channels, width, 3, padding=1)
            features += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
    return Plain(features, 1, [nn.Linear(channels, classes)])


NETS: dict[str, Callable[[int, int], nn.Module]] = {
    "conv8": _conv8,
    "resnet18": partial(Residual, [64, 128, 256, 512], 2, projected=True),
    "vgg16": _vgg16,
    **{
        f"resnet{depth}": partial(Residual, [16, 32, 64], (depth - 2) // 6, projected=False)
        for depth in (8, 14, 20, 32, 44, 56)
    },
}
"""Name → function of (classes, channels)."""


def build(name: str, classes: int = 10, channels: int = 3) -> nn.Module:
    """A network of normalised pixels with weights drawn from torch's generator."""
    one_of(name, "32-px net", NETS)
    for what, value in (("classes", classes), ("channels", channels)):
        if value < 1:
            raise InputError(f"{what} of {name} must be at least 1, got {value}")
    return NETS[name](classes, channels)


def load(request: "Request") -> TorchModel:
    """``nets:NAME``: weights from a file, or drawn from ``seed``."""
    request.check_keys("weights", "num_classes", "seed")
    name = request.spec.name
    native = Preprocessing(size=(32, 32), crop="none", mean=PIXEL_MEAN, std=PIXEL_STD)
    used = request.preprocess(native)
    state = None if request.weights is None else read_released(request.weights, name)
    classes = request.integer("num_classes") or request.classes or _rows(state) or 10
    with seeded(request.seed):
        network = build(name, classes, used.channels)
    query: dict[str, str | int | None] = {}
    if state is None or request.weights is None:
        query |= {"seed": request.seed, "num_classes": classes}
        weights: dict[str, Any] = {"random": True, "seed": request.seed}
    else:
        fit(network, state, request.weights)
        query["weights"] = stamp(request.weights)
        weights = {"file": request.weights.name, "sha256": digest(request.weights)}
    return wrap(
        network,
        id=request.identity(name, native, used, **query),
        preprocessing=used,
        facts={
            "spec": request.spec.text,
            "architecture": name,
            "weights": weights,
            "libraries": versions("torch"),
        },
        device=request.device,
        precision=request.precision,
    )


def _rows(state: dict[str, Tensor] | None) -> int | None:
    """The number of classes that the last matrix of a state dict has."""
    matrices = [tensor for tensor in (state or {}).values() if tensor.ndim == 2]
    return len(matrices[-1]) if matrices else None


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
    start: str
    """Where its weights come from: "random" (drawn), "pretrained" (as they came), "file", "run"."""
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
    head: str | None = None,
    device: str = "cpu",
    origin: Origin = MINE,
) -> Network:
    """A network with a head of ``classes`` outputs.

    ``start``: "pretrained" (the library's weights), "random" (drawn with ``seed``), "file:WEIGHTS"
    (relative to ``base``), or "run:ID", whose ``weights`` and ``old_classes`` are then given. All
    weights of a file must fit. What a ``python:`` function returns is its start, drawn with the
    seed if it draws, unless there is a file. ``head``: "new" draws one even where the number of
    classes is the same, "keep" refuses another number; by default it is kept where it fits.
    ``origin`` is where a line was read that the caller did not write.
    """
    checked_start(spec, start)
    kind = start.partition(":")[0]
    if kind == "file":
        weights = existing(Path(base) / start.removeprefix("file:"), "start")
        network = _resolved(spec, None, seed, weights, classes, origin)
    elif start == "pretrained":
        network = _resolved(spec, None, seed, None, classes, origin)
    else:
        network = _resolved(spec, old_classes or classes, seed, None, None, origin)
    if old_classes is not None and network.classes != old_classes:
        network = _with_head(network, old_classes, seed)
    if weights is not None and kind != "file":
        fit(network.module.network, read_state(weights), weights)
    if start != "random":
        network = replace(network, old_heads=tuple(deepcopy(head) for head in network.heads))
    if head == "keep" and network.classes != classes:
        raise InputError(
            f"head 'keep': {spec} has {network.classes} outputs, the data {classes} classes"
        )
    if network.classes != classes or head == "new":
        network = _with_head(network, classes, seed)
    if kind in ("file", "run"):
        network = replace(network, start=kind)
    module: Any = network.module.requires_grad_(True)
    module.to(device=device, memory_format=torch.channels_last)
    return network


def _resolved(
    spec: str,
    classes: int | None,
    seed: int,
    weights: Path | None,
    outputs: int | None,
    origin: Origin,
) -> Network:
    """The architecture with its weights, or drawn with ``classes`` where that can be asked.

    An image tower without class names to derive a head from gets one of ``outputs``.
    """
    prefix, given, text = spec.partition(":")[0], spec.partition("?")[2], spec
    query: list[str] = []
    if classes is not None and prefix in ("timm", "torchvision", "nets", "python", "open_clip"):
        query += ["pretrained=false"] if prefix in ("timm", "torchvision", "open_clip") else []
        query += [f"num_classes={classes}"] if prefix not in ("python", "open_clip") else []
        query.append(f"seed={seed}")
    if prefix == "open_clip" and not any(key.startswith("classes=") for key in given.split("&")):
        query.append(f"num_classes={classes or outputs}")
    query = [one for one in query if one.partition("=")[0] + "=" not in given]
    if query:
        text = spec + ("&" if given else "?") + "&".join(query)
    with seeded(seed):
        model = resolve(text, weights=weights, origin=origin)
    return _network(model, spec)


def as_network(model: Model, classes: int, seed: int = 0) -> Network:
    """A copy of an open model as a network with a head of ``classes`` outputs."""
    network = _network(deepcopy(model), model.spec or model.id)
    if network.classes != classes:
        network = _with_head(network, classes, seed)
    return network


def _network(model: Model, spec: str) -> Network:
    if not isinstance(model, TorchModel) or not isinstance(model.module, Normalised):
        raise InputError(
            f"{spec} cannot be trained: it is no torch network with weights of its own"
        )
    return Network(
        module=model.module,
        heads=_heads(model.module.network),
        preprocessing=model.preprocessing,
        classes=model.classes,
        spec=spec,
        start="random" if model.facts.get("weights", {}).get("random") else "pretrained",
    )


def _heads(network: nn.Module) -> tuple[nn.Linear, ...]:
    found = last_linear(network)
    if not found:
        raise InputError(f"{type(network).__name__} has no linear layer to be its head")
    return found


def _with_head(network: Network, classes: int, seed: int) -> Network:
    """The same with new heads, drawn with the seed."""
    inner, prefix = network.module.network, network.spec.partition(":")[0]
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
    return replace(network, heads=_heads(inner), classes=classes)


def name_of(spec: str) -> str:
    """What the store calls a network: its line."""
    return spec
