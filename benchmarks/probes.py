"""Probes: what paths cost on top of the model, against a plain loop; projected against exact.

    python -m benchmarks.probes [--quick] [--json]

*Overhead*: making amplitude and phase paths and running the model on them, over running it on the
same points made beforehand. *Loop*: every point of a path by numpy (both images transformed, their
window blended in full complex spectra, transformed back), each path through the network as people
write it (eager, contiguous, one path at a time). *Jacobian* for 1,000 classes: random projections
against one backward pass per class, each with the standard error of its mean square; projections
are measured on as many more images as make the standard errors equal. Everything is timed in turns
in one run; medians.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.common import arguments, report
from benchmarks.photographs import pictures
from shiftbed.evaluate.models import Model, TorchModel
from shiftbed.evaluate.models.torch_model import seeded, wrap
from shiftbed.evaluate.preprocessing import Preprocessing
from shiftbed.evaluate.probes.jacobian import exact_squares, projected_squares
from shiftbed.evaluate.probes.measure import along, as_pixels, path_of
from shiftbed.evaluate.probes.scoring import fastest
from shiftbed.evaluate.probes.settings import Probe, default_probe
from shiftbed.evaluate.probes.smoothness import softmax
from shiftbed.train.nets import build

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
Floats = NDArray[np.float32]
Pair = tuple[Floats, Floats]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for at in range(rounds + 1):
        for name, one in work.items():
            spent = seconds(one)
            if at:
                times[name].append(spent)
    return {name: float(np.median(each)) for name, each in times.items()}


def network(name: str, size: int, classes: int = 10) -> TorchModel:
    with seeded(0):
        module = build(name, classes)
    given = Preprocessing(size=(size, size), crop="none", mean=MEAN, std=STD)
    return wrap(module, id=f"python:{name}", preprocessing=given, facts={})


def pairs_of(count: int, size: int) -> list[Pair]:
    images = pictures(2 * count, size).transpose(0, 3, 1, 2) / np.float32(255)
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (MEAN, STD))
    x = ((images - mean) / std).astype(np.float32)
    return list(zip(x[::2], x[1::2], strict=True))


def plain_path(x0: Floats, x1: Floats, probe: Probe) -> NDArray[np.float64]:
    """Point by point, as one would write it down."""
    points = []
    for lam in np.linspace(0, 1, probe.points):
        f0, f1 = np.fft.fft2(x0), np.fft.fft2(x1)
        a, p = np.abs(f0), np.angle(f0)
        moving, target = (a, np.abs(f1)) if probe.name == "amplitude" else (p, np.angle(f1))
        moving, target = np.fft.fftshift(moving, (1, 2)), np.fft.fftshift(target, (1, 2))
        half = int(np.floor(probe.w * min(x0.shape[1:])))
        low = [slice(max(0, side // 2 - half), side // 2 + half + 1) for side in x0.shape[1:]]
        here = (slice(None), *low)
        moving[here] = (1 - lam) * moving[here] + lam * target[here]
        moving = np.fft.ifftshift(moving, (1, 2))
        spectrum = moving * np.exp(1j * p) if probe.name == "amplitude" else a * np.exp(1j * moving)
        points.append(np.fft.ifft2(spectrum).real)
    return np.stack(points)


def plain(model: TorchModel, bare: nn.Module, probe: Probe, some: list[Pair]) -> list[Any]:
    """Each path by the loop, then through the eager network."""
    found = []
    with torch.no_grad():
        for x0, x1 in some:
            path = torch.from_numpy(plain_path(x0, x1, probe)).float()
            found.append(torch.softmax(bare(path), dim=1).numpy())
    return found


def paths(name: str, size: int, count: int, rounds: int) -> dict[str, Any]:
    """Overhead and ratio to the loop for one network and image size."""
    model = network(name, size)
    with seeded(0):
        bare = build(name, 10).eval()
    some = pairs_of(count, size)
    ready = np.concatenate([as_pixels(path_of(default_probe("phase", (size, size)), *p), model.preprocessing)[None] for p in some])  # fmt: skip
    best: Model = fastest(model, ready[0], paths=10_000)
    found: dict[str, Any] = {"network": name, "pixels": size, "paths": count, "engine": best.device}
    for kind in ("amplitude", "phase"):
        probe = default_probe(kind, (size, size))
        pixels = [as_pixels(path_of(probe, *pair), model.preprocessing) for pair in some]
        times = in_turns(
            {
                "forward": lambda: [softmax(model.logits(x, within=False)) for x in pixels],
                "ours": lambda: [along(model, path_of(probe, *pair)) for pair in some],
                "ours_best": lambda: [along(best, path_of(probe, *pair)) for pair in some],
                "forward_best": lambda: [softmax(best.logits(x, within=False)) for x in pixels],
                "make": lambda: [path_of(probe, *pair) for pair in some],
                "plain_make": lambda: [plain_path(*pair, probe) for pair in some],
                "loop": lambda: plain(model, bare, probe, some),
            },
            rounds,
        )
        print(kind, {k: round(1000*v/count,2) for k,v in times.items()})
        found[kind]=times
    return found
if __name__=="__main__":
    from pathlib import Path
    paths("resnet8",32,4,5)
