"""Two small networks, three augmentations, four sparsities: 24 models that train on two cores.

A dense model is trained once per network and augmentation; each sparse one is that model with its
smallest weights removed (global magnitude, torch's own pruning) and trained a little more, masks
kept ("traditional" pruning in fridovich2022, Section 4.1). Models are kept as exported programs,
so what is there is used again.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from benchmarks.cifar10 import augmix, resnet8
from benchmarks.cifar_data import Arrays

__all__ = ["AUGMENTATIONS", "MEAN", "NETS", "SPARSITIES", "STD", "Made", "Recipe", "made"]

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NETS = ("resnet8", "plain6")
AUGMENTATIONS = ("clean", "augmix", "gaussian")
SPARSITIES = (0.0, 0.5, 0.8, 0.95)
NOISE = 0.1
"""Largest standard deviation of Gaussian noise, in [0, 1] pixels; drawn per image."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long models are trained."""

    epochs: int = 4
    """Of a dense model."""
    more: int = 1
    """Of a pruned one."""
    batch: int = 128
    rate: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Made:
    """A trained model in a file."""

    name: str
    net: str
    augmentation: str
    sparsity: float
    path: Path
    anew: bool
    """Whether it had to be trained."""


def plain6(width: int = 16) -> nn.Sequential:
    """Six convolutions with batch normalisation, no shortcuts."""
    layers: list[nn.Module] = []
    inside = 3
    for outside, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
        layers += [
            nn.Conv2d(inside, outside * width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside * width),
            nn.ReLU(),
        ]
        inside = outside * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))


def made(data: Arrays, folder: Path, recipe: Recipe) -> Iterator[Made]:
    """All 24 models, in order; those whose file is there are not trained again."""
    folder.mkdir(parents=True, exist_ok=True)
    for net in NETS:
        for augmentation in AUGMENTATIONS:
            dense: nn.Module | None = None
            for sparsity in SPARSITIES:
                name = f"{net}-{augmentation}-{sparsity:g}"
                path = folder / f"{name}.pt2"
                anew = not path.exists()
                if anew:
                    dense = dense or _dense(data, folder, net, augmentation, recipe)
                    _export(_pruned(dense, data, augmentation, sparsity, recipe), path)
                yield Made(
                    name=name,
                    net=net,
                    augmentation=augmentation,
                    sparsity=sparsity,
                    path=path,
                    anew=anew,
                )


def _dense(data: Arrays, folder: Path, net: str, augmentation: str, recipe: Recipe) -> nn.Module:
    """The trained dense network; its weights are kept, so that pruning can go on from them."""
    torch.manual_seed(0)
    network = resnet8() if net == "resnet8" else plain6()
    network = network.to(memory_format=torch.channels_last)
    kept = folder / f"{net}-{augmentation}.weights"
    if kept.exists():
        network.load_state_dict(torch.load(kept, weights_only=True))
        return network
    _train(network, data, augmentation, recipe.epochs, recipe.rate, recipe.batch)
    part = kept.with_name(f".{kept.name}")
    torch.save(network.state_dict(), part)
    part.rename(kept)
    return network


def _pruned(
    dense: nn.Module, data: Arrays, augmentation: str, sparsity: float, recipe: Recipe
) -> nn.Module:
    network = copy.deepcopy(dense).to(memory_format=torch.contiguous_format)  # prune takes views
    if not sparsity:
        return network
    torch.manual_seed(round(1000 * sparsity))
    layers = [(m, "weight") for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    prune.global_unstructured(layers, prune.L1Unstructured, amount=sparsity)
    _train(network, data, augmentation, recipe.more, recipe.rate / 10, recipe.batch)
    for module, name in layers:
        prune.remove(module, name)
    zeros = sum(int((m.weight == 0).sum()) for m, _ in layers)
    assert abs(zeros / sum(m.weight.numel() for m, _ in layers) - sparsity) < 1e-3
    return network


def _train(
    network: nn.Module, data: Arrays, augmentation: str, epochs: int, rate: float, batch: int
) -> None:
    """One cycle of SGD with crops and mirror images."""
    pixels = torch.from_numpy(data[0]).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(data[1])
    each = max(1, len(pixels) // batch)
    optimizer = torch.optim.SGD(network.parameters(), rate, 0.9, weight_decay=5e-4, nesterov=True)
    steps = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=epochs * each, pct_start=0.25
    )
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(pixels))[: each * batch].split(batch):
            x = _augmented(_cropped(pixels[rows]), augmentation)
            loss = functional.cross_entropy(network(x), labels[rows], label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps.step()
    network.eval()


def _cropped(images: Tensor) -> Tensor:
    """A batch moved by up to four pixels, half of it mirrored."""
    padded = functional.pad(images, (4, 4, 4, 4))
    top, left = torch.randint(0, 9, (2,)).tolist()
    cut = padded[:, :, top : top + 32, left : left + 32]
    turned = (torch.rand(len(cut)) < 0.5)[:, None, None, None]
    return torch.where(turned, cut.flip(3), cut)


def _augmented(images: Tensor, augmentation: str) -> Tensor:
    """Normalised float images."""
    x = (augmix(images) if augmentation == "augmix" else images).float().div(255)
    if augmentation == "gaussian":
        spread = NOISE * torch.rand(len(x), 1, 1, 1)
        x = (x + spread * torch.randn_like(x)).clamp(0, 1)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return ((x - mean) / std).contiguous(memory_format=torch.channels_last)


def _export(network: nn.Module, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=4096)
    example = torch.from_numpy(np.zeros((2, 3, 32, 32), np.float32))
    program = torch.export.export(network.eval(), (example,), dynamic_shapes=({0: batch},))
    part = path.with_name(f".{path.name}")
    torch.export.save(program, part)
    part.rename(path)
