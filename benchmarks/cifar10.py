"""A small CIFAR-10 model trained clean and with AugMix, under all corruptions.

    python -m benchmarks.cifar10 [--quick] [--json] [--cache DIR]

Shows the known order: noise hurts the clean model most, the AugMix one less; and the severity
profile of each corruption, beside that of the 78 standard models of taori2020 in memory. ResNet-8,
one cycle of SGD; AugMix is torchvision's, as augmentation only (without its consistency loss).
Weights are kept beside the images and used again. ``--quick`` trains on few images and looks at
severities 1, 3 and 5 of nine corruptions: it shows that everything runs, not the order, which
needs a good model (at 51 % on clean images noise hurts less than blur, at 78 % more).
Every accuracy has its n and its 95 % Clopper–Pearson interval.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.cifar_data import Arrays, cached, cifar10
from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.atomic import write_atomically
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.corruptions import NAMES, severities
from shiftbed.evaluation.models.torch_model import TorchModel, wrap
from shiftbed.evaluation.perturbations import parse_perturbation
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.preprocessing import Preprocessing

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "spatter", "brightness"),
    "digital": ("contrast", "saturate", "pixelate", "jpeg_compression", "elastic_transform"),
    "greyscale": ("greyscale",),
}
QUICK = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "gaussian_blur", "defocus_blur"),
    *("fog", "brightness", "pixelate", "jpeg_compression"),
)
RECIPE = "v1"
"""Changes with anything about the training, so that old weights are not taken for new ones."""
AT_ONCE = 8
"""Images that share AugMix's choice of operations."""


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside) for _ in range(2)])
        same = inside == outside and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet8(width: int = 16) -> nn.Module:
    """He et al. 2016, Section 4.2, with one block per stage."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )


def augmix(images: Tensor) -> Tensor:
    """AugMix of uint8 images, a few at a time."""
    ensure_torchvision()
    from torchvision.transforms import v2

    mix = v2.AugMix(all_ops=False)
    return torch.cat([mix(some) for some in images.split(AT_ONCE)])


def train(data: Arrays, *, epochs: int, mixed: bool, seed: int = 0, batch: int = 128) -> TorchModel:
    """One cycle of SGD; crops and mirror images for both models."""
    torch.manual_seed(seed)
    pixels = torch.from_numpy(data[0]).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(data[1])
    network = resnet8().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    steps = epochs * (len(pixels) // batch)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=5e-4, nesterov=True)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps, pct_start=0.25)
    network.train()
    order = torch.cat(
        [torch.randperm(len(pixels))[: steps // epochs * batch] for _ in range(epochs)]
    )
    for rows in order.split(batch):
        x = _cropped(pixels[rows])
        x = (augmix(x) if mixed else x).float().div(255)
        x = ((x - mean) / std).contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(network(x), labels[rows], label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        cycle.step()
    return _wrapped(network, mixed)


def _wrapped(network: nn.Module, mixed: bool) -> TorchModel:
    name = "augmix" if mixed else "clean"
    preprocessing = Preprocessing(size=(32, 32), crop="none", mean=MEAN, std=STD)
    return wrap(network, id=f"python:resnet8-{name}", preprocessing=preprocessing, facts={})


def trained(data: Arrays, *, epochs: int, mixed: bool, folder: Path) -> tuple[TorchModel, float]:
    """The model and the seconds its training took; 0 if its weights were there."""
    kind = "augmix" if mixed else "clean"
    path = folder / f"cifar10-resnet8-{kind}-{len(data[0])}x{epochs}-{RECIPE}.pt"
    if path.exists():
        model = _wrapped(resnet8(), mixed)
        model.module.load_state_dict(torch.load(path, weights_only=True))
        return model, 0.0
    start = time.perf_counter()
    model = train(data, epochs=epochs, mixed=mixed)
    spent = time.perf_counter() - start
    with write_atomically(path) as file:
        torch.save(model.module.state_dict(), file)
    return model, spent


def _cropped(images: Tensor) -> Tensor:
    """Each batch moved by up to four pixels, half of it mirrored."""
    padded = F.pad(images, (4, 4, 4, 4))
    top, left = torch.randint(0, 9, (2,)).tolist()
    cut = padded[:, :, top : top + 32, left : left + 32]
    turn = torch.rand(len(cut)) < 0.5
    return torch.where(turn[:, None, None, None], cut.flip(3), cut)


def accuracy(model: TorchModel, data: Arrays, perturbation: str | None) -> dict[str, Any]:
    """Top-1 accuracy with its interval."""
    images, labels = data
    perturb = parse_perturbation(perturbation).on(model) if perturbation else None
    right = 0
    for at in range(0, len(images), 256):
        x: NDArray[np.float32] = pixels_to_float(images[at : at + 256])
        y = labels[at : at + 256]
        if perturb is not None:
            x = perturb(x, y, [str(i) for i in range(at, at + len(y))])
        right += int((model.logits(x).argmax(axis=1) == y).sum())
    low, high = clopper_pearson(right / len(labels), len(labels))
    return {"value": right / len(labels), "low": float(low), "high": float(high), "n": len(labels)}


def published_profile(name: str) -> list[float] | None:
    """Mean accuracy of taori2020's 78 standard models at severities 1 to 5, in memory."""
    from shiftbed.testbed import published

    bed = published("imagenet-testbed-2020")
    where = "on-disk" if name == "glass_blur" else "in-memory"
    settings = [f"imagenet-c.{name}.{severity}_{where}" for severity in range(1, 6)]
    if not set(settings) <= set(bed.settings):
        return None
    fitted = bed.models["in_fit_set"].to_numpy().astype(bool)
    return [float(np.mean(bed.accuracy(setting)[fitted])) for setting in settings]


def profiles(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Per corruption: accuracies by severity, the published ones, and their rank correlation."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(key.partition(":")[0] for key in cells):
        levels = [s for s in severities(name) if f"{name}:{s}" in cells]
        own = [cells[f"{name}:{s}"]["value"] for s in levels]
        theirs = published_profile(name)
        if theirs is None:
            continue
        there = [theirs[s - 1] for s in levels]
        found[name] = {"severities": levels, "own": own, "published": there}
        if len(set(own)) > 1:
            found[name]["spearman"] = float(spearmanr(own, there).statistic)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    data = cifar10(options.cache)
    rng = np.random.default_rng(0)
    count, epochs, test = (5000, 2, 400) if options.quick else (50_000, 6, 1000)
    count, epochs = options.training or count, options.epochs or epochs
    rows = np.sort(rng.permutation(50_000)[:count])
    kept = np.sort(rng.permutation(10_000)[:test])
    training = data["train"][0][rows], data["train"][1][rows]
    testing = data["test"][0][kept], data["test"][1][kept]
    names = QUICK if options.quick else NAMES
    result: dict[str, Any] = {"training_images": count, "epochs": epochs, "test_images": test}
    for mixed in (False, True):
        model, spent = trained(
            training, epochs=epochs, mixed=mixed, folder=cached(options.cache).parent
        )
        cells = {
            f"{name}:{level}": accuracy(model, testing, f"{name}:{level}")
            for name in names
            for level in severities(name)
            if not options.quick or level in (1, 3, 5)
        }
        result["augmix" if mixed else "clean"] = {
            "training_seconds": spent,
            "clean_images": accuracy(model, testing, None),
            "groups": groups(cells),
            "profiles": profiles(cells),
            "cells": cells,
        }
    return result


def groups(cells: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Mean accuracy by group of corruptions: over severities first, then over corruptions."""
    by_name: dict[str, list[float]] = {}
    for key, cell in cells.items():
        by_name.setdefault(key.partition(":")[0], []).append(cell["value"])
    means = {name: float(np.mean(values)) for name, values in by_name.items()}
    return {
        group: float(np.mean([means[name] for name in names if name in means]))
        for group, names in GROUPS.items()
        if any(name in means for name in names)
    }


def show(result: dict[str, Any]) -> None:
    """Tables of accuracies in per cent."""
    for name in ("clean", "augmix"):
        found = result[name]
        cell = found["clean_images"]
        print(
            f"trained {name}: {_percent(cell['value'])} % on clean images "
            f"({_percent(cell['low'])} … {_percent(cell['high'])}, n = {cell['n']:,}); "
            f"trained in {found['training_seconds']:.0f} s (0: its weights were kept)"
        )
        print("  " + ", ".join(f"{g} {_percent(v)}" for g, v in found["groups"].items()))
    print(f"\n{'accuracy (95 % interval)':26}{'trained clean':>24}{'with AugMix':>24}")
    for key, cell in result["clean"]["cells"].items():
        other = result["augmix"]["cells"][key]
        print(f"{key:26}{_cell(cell):>24}{_cell(other):>24}")
    print(
        f"\nseverity profiles, trained clean (n = {result['test_images']:,}) | 78 models, ImageNet"
    )
    for name, one in result["clean"]["profiles"].items():
        own, theirs = (" ".join(_percent(v) for v in one[k]) for k in ("own", "published"))
        rank = f"{one['spearman']:.2f}" if "spearman" in one else "no spread"
        print(f"{name:20}{own} | {theirs} | rank correlation {rank}")


def _cell(cell: dict[str, Any]) -> str:
    return f"{_percent(cell['value'])} ({_percent(cell['low'])} … {_percent(cell['high'])})"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer images and corruptions")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--training", type=int, help="images to train on")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--cache", type=Path, help="where CIFAR-10 is kept ($SHIFTBED_CACHE)")
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
