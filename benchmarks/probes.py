"""Probes: what paths cost on top of the model, against a plain loop; projected against exact.

    python -m benchmarks.probes [--quick] [--json]

*overhead*: making paths and running the model on them, over running it on the same points made
beforehand (at most 1.15 wanted). *loop*: every point of a path by numpy, both images transformed
each time and blended in full complex spectra, then each path through the eager network; over
``--backend auto`` of ``shiftbed probe`` (at least 5 wanted). *point by point*: the same with one
forward pass per point. *jacobian*, 1,000 classes: one backward pass per class over random
projections (at least 5 wanted), on as many images as give both the same standard error. All are
timed in turns in one run. Weights are random: speed does not depend on them. ``--quick`` does 32 px
only, the full run also EfficientNet-Lite0 at 224 px.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.common import arguments, report
from benchmarks.photographs import pictures
from shiftbed.evaluation.backends import choose_backend
from shiftbed.evaluation.models import TorchModel
from shiftbed.evaluation.models.torch_model import seeded, wrap
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.jacobian import exact_squares, projected_squares
from shiftbed.evaluation.probes.measure import along, as_pixels, path_of
from shiftbed.evaluation.probes.probe import Probe, default_probe

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
Floats = NDArray[np.float32]
Pair = tuple[Floats, Floats]


def in_turns(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for at in range(rounds + 1):
        for name, one in work.items():
            start = time.perf_counter()
            one()
            if at:
                times[name].append(time.perf_counter() - start)
    return {name: float(np.median(each)) for name, each in times.items()}


def wrapped(module: nn.Module, size: int, name: str) -> TorchModel:
    given = Preprocessing(size=(size, size), crop="none", mean=MEAN, std=STD)
    return wrap(module, id=f"python:{name}", preprocessing=given, facts={})


def small(classes: int = 10) -> nn.Module:
    from benchmarks.cifar10 import resnet8

    net = resnet8()
    return (
        net if classes == 10 else nn.Sequential(*list(net.children())[:-1], nn.Linear(64, classes))
    )


def mobile() -> nn.Module:
    from shiftbed.evaluation.compat import ensure_torchvision

    ensure_torchvision()
    import timm

    return timm.create_model("efficientnet_lite0", pretrained=False)


def pairs_of(count: int, size: int) -> list[Pair]:
    images = pictures(2 * count, size).transpose(0, 3, 1, 2) / 255
    mean, std = (np.array(v)[:, None, None] for v in (MEAN, STD))
    x: Floats = ((images - mean) / std).astype(np.float32)
    return list(zip(x[::2], x[1::2], strict=True))


def plain_path(x0: Floats, x1: Floats, probe: Probe) -> NDArray[np.float64]:
    """Point by point, as one would write it down."""
    height, width = x0.shape[1:]
    half = int(np.floor(probe.w * min(height, width)))
    rows = slice(max(0, height // 2 - half), height // 2 + half + 1)
    columns = slice(max(0, width // 2 - half), width // 2 + half + 1)
    points = []
    for lam in np.linspace(0, 1, probe.points):
        f0, f1 = np.fft.fft2(x0), np.fft.fft2(x1)
        amplitude, phase = np.abs(f0), np.angle(f0)
        other = np.abs(f1) if probe.name == "amplitude" else np.angle(f1)
        moving = np.fft.fftshift(amplitude if probe.name == "amplitude" else phase, (1, 2))
        other = np.fft.fftshift(other, (1, 2))
        moving[:, rows, columns] *= 1 - lam
        moving[:, rows, columns] += lam * other[:, rows, columns]
        moving = np.fft.ifftshift(moving, (1, 2))
        if probe.name == "amplitude":
            spectrum = moving * np.exp(1j * phase)
        else:
            spectrum = amplitude * np.exp(1j * moving)
        points.append(np.fft.ifft2(spectrum).real)
    return np.stack(points)


def plain(bare: nn.Module, probe: Probe, some: list[Pair], batch: int) -> list[Any]:
    """Each path by the loop, then through the eager network."""
    found = []
    with torch.no_grad():
        for x0, x1 in some:
            path = torch.from_numpy(plain_path(x0, x1, probe)).float()
            found.append(torch.cat([torch.softmax(bare(x), dim=1) for x in path.split(batch)]))
    return found


def paths(
    make: Callable[[], nn.Module], size: int, count: int, rounds: int, *, by_point: bool
) -> dict[str, Any]:
    """Overhead and ratio to the loop for one network and image size."""
    with seeded(0):
        bare = make().eval()
    with seeded(0):
        model = wrapped(make(), size, "network")
    some = pairs_of(count, size)
    first = as_pixels(path_of(default_probe("phase", (size, size)), *some[0]), model.preprocessing)
    engine = choose_backend(model, [first], images=10**6, within=False)
    found: dict[str, Any] = {"pixels": size, "paths_timed": count, "backend": engine.name}
    for kind in ("amplitude", "phase"):
        probe = default_probe(kind, (size, size))
        ready = [as_pixels(path_of(probe, *pair), model.preprocessing) for pair in some]

        def ours(score: Any, probe: Probe = probe) -> None:
            for pair in some:
                along(score, [as_pixels(path_of(probe, *pair), model.preprocessing)])

        def forward(score: Any, ready: list[Floats] = ready) -> None:
            for pixels in ready:
                along(score, [pixels])

        own = partial(model.logits, within=False)
        work: dict[str, Callable[[], object]] = {
            "forward": partial(forward, own),
            "ours": partial(ours, own),
            "fastest_forward": partial(forward, engine.run),
            "fastest": partial(ours, engine.run),
            "loop": partial(plain, bare, probe, some, 100),
        }
        if by_point:
            work["point_by_point"] = partial(plain, bare, probe, some, 1)
        times = in_turns(work, rounds)
        x0, x1 = some[0]
        away = np.abs(plain_path(x0, x1, probe) - path_of(probe, x0, x1)).max()
        found[kind] = {
            "overhead_torch": times["ours"] / times["forward"],
            "overhead_fastest_backend": times["fastest"] / times["fastest_forward"],
            "loop_over_torch": times["loop"] / times["ours"],
            "loop_over_fastest_backend": times["loop"] / times["fastest"],
            **(
                {"point_by_point_over_fastest": times["point_by_point"] / times["fastest"]}
                if by_point
                else {}
            ),
            "largest_difference_of_a_pixel": float(away),
            "milliseconds_per_path": {k: 1000 * v / count for k, v in times.items()},
        }
    return found


def jacobian(images: int, classes: int, size: int, rounds: int) -> dict[str, Any]:
    """One backward pass per class against projections, at equal standard errors."""
    with seeded(0):
        model = wrapped(small(classes), size, "classes")
    pixels: Floats = np.ascontiguousarray(pictures(images, size).transpose(0, 3, 1, 2), np.float32)
    pixels /= 255
    exact = exact_squares(model, pixels)
    spread = exact.std(ddof=1)
    noise = projected_squares(model, pixels, projections=1) - exact
    # With p projections per image an estimate's variance is that between images plus noise²/p.
    projections = 10
    more = 1 + float((noise**2).mean()) / projections / spread**2
    count = int(np.ceil(images * more))
    many = np.tile(pixels, (-(-count // images), 1, 1, 1))[:count]
    times = in_turns(
        {
            "exact": partial(exact_squares, model, pixels),
            "projected": partial(projected_squares, model, many, projections=projections),
        },
        rounds,
    )
    estimate = projected_squares(model, many, projections=projections)
    return {
        "classes": classes,
        "projections": projections,
        "exact_images": images,
        "projected_images": count,
        "exact_norm": float(np.sqrt(exact.mean())),
        "projected_norm": float(np.sqrt(estimate.mean())),
        "exact_standard_error_of_mean_square": float(spread / np.sqrt(images)),
        "projected_standard_error_of_mean_square": float(estimate.std(ddof=1) / np.sqrt(count)),
        "exact_over_projected": times["exact"] / times["projected"],
        "seconds": times,
    }


def flat(nested: dict[str, Any], before: str = "") -> dict[str, Any]:
    """One level: inner keys after their outer ones."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{before}{key} ") if inner else {f"{before}{key}": value}
    return found


def main() -> None:
    options = arguments(__doc__)
    rounds = 3 if options.quick else 9
    result: dict[str, Any] = {
        "resnet8_32px": paths(small, 32, 3 if options.quick else 10, rounds, by_point=True),
    }
    if not options.quick:
        result["efficientnet_lite0_224px"] = paths(mobile, 224, 1, 3, by_point=False)
    given = (8, 1000, 16, 1) if options.quick else (32, 1000, 32, 3)
    result["jacobian"] = jacobian(*given)
    if options.json:
        report(result, True)
        return
    for key, value in result.items():
        print(f"\n{key}")
        report(flat(value), False)


if __name__ == "__main__":
    main()
