"""Training: what a step costs beyond the bare torch loop, and what cached features save.

    python -m benchmarks.training [--quick] [--json]

Both sides are the same network on the same pixels in memory, on one thread, timed in turns: first
a few steps of one, then as many of the other. The ratio of a turn is ours over theirs; the figure
is the median over turns with the 95 % interval of the median (order statistics).

Head-only training: an epoch over features computed once against an epoch that passes the images
through the frozen network, both training the same head. Computing the features is one more pass,
and is printed beside it.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import nn
from torch.nn import functional

from benchmarks.common import arguments, report
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models.heads import HeadOnly
from shiftbed.training.features import features_of
from shiftbed.training.loop import Run, make_optimiser, make_schedule, train
from shiftbed.training.networks import Network, make_network
from shiftbed.training.objective import CrossEntropy
from shiftbed.training.prepare import whole
from shiftbed.training.stream import Stream

SGD = {"name": "SGD", "lr": 0.01, "momentum": 0.9}
SPEC = "nets:resnet8"
BATCH = 64


def images(n: int, size: int) -> tuple[torch.Tensor, np.ndarray]:
    """Noise (N, H, W, C) and labels: a step costs the same on any image."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (n, size, size, 3), dtype=np.uint8)
    data = whole(TestSet(pixels, generator.integers(0, 10, n), classes=list("0123456789")))
    return torch.from_numpy(pixels[data.rows]), data.labels


def ours(network: Network, held: torch.Tensor, labels: np.ndarray, steps: int) -> Run:
    module = network.module
    optimiser = make_optimiser(SGD, (p for p in module.parameters() if p.requires_grad))
    return Run(
        network=module,
        objective=CrossEntropy(),
        optimiser=optimiser,
        schedule=make_schedule({"name": "CosineAnnealingLR"}, optimiser, steps=steps, epochs=1),
        stream=Stream(labels, batch_size=BATCH, seed=0, held=held),
        steps=steps,
    )


def bare(
    module: nn.Module, held: torch.Tensor, labels: np.ndarray, steps: int
) -> Callable[[], None]:
    """As one writes it by hand."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    y = torch.from_numpy(labels)
    generator = torch.Generator().manual_seed(0)
    state: dict[str, Any] = {"order": iter(())}

    def step() -> None:
        at = next(state["order"], None)
        if at is None:
            order = torch.randperm(len(y), generator=generator).split(BATCH)
            state["order"] = iter(order)
            at = next(state["order"])
        x = held[at].permute(0, 3, 1, 2).to(torch.float32).div_(255)
        loss = functional.cross_entropy(module(x), y[at])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()

    module.train()
    return step


def median(values: list[float]) -> dict[str, float]:
    """The median with its distribution-free 95 % interval."""
    ordered = sorted(values)
    n = len(ordered)
    low = max(0, int(binom.ppf(0.025, n, 0.5)) - 1)
    high = min(n - 1, int(binom.ppf(0.975, n, 0.5)))
    return {"median": float(np.median(ordered)), "low": ordered[low], "high": ordered[high]}


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def step_overhead(turns: int, steps: int) -> dict[str, Any]:
    held, labels = images(BATCH * 8, 32)
    total = (turns + 1) * steps
    run = ours(make_network(SPEC, 10), held, labels, total)
    run.begin()
    own = bare(make_network(SPEC, 10).module, held, labels, total)

    def some_of_ours() -> None:
        run.steps = run.step + steps
        train(run, [], lambda run: None)

    def some_of_theirs() -> None:
        for _ in range(steps):
            own()

    some_of_ours(), some_of_theirs()
    ratios, seconds = [], []
    for turn in range(turns):
        pair = [some_of_ours, some_of_theirs]
        found = [timed(work) for work in (pair if turn % 2 else pair[::-1])]
        mine, theirs = found if turn % 2 else found[::-1]
        ratios.append(mine / theirs)
        seconds.append(theirs / steps)
    return {
        "step_ratio": median(ratios)["median"],
        "step_ratio_interval": [median(ratios)[end] for end in ("low", "high")],
        "turns": turns,
        "steps_per_turn": steps,
        "bare_step_seconds": float(np.median(seconds)),
    }


def head_only(turns: int, n: int, spec: str) -> dict[str, Any]:
    network = make_network(spec, 10)
    size = network.preprocessing.size[0]
    held, labels = images(n, size)
    network.freeze_all_but_heads()
    clock = time.perf_counter()
    features = features_of(network, held.numpy())
    once = time.perf_counter() - clock
    assert features is not None

    def epochs(
        module: nn.Module, data: torch.Tensor, frozen: list[nn.Module]
    ) -> Callable[[], None]:
        optimiser = make_optimiser(SGD, network.heads[0].parameters())
        stream = Stream(labels, batch_size=BATCH, seed=0, held=data)
        run = Run(
            network=module,
            objective=CrossEntropy(),
            optimiser=optimiser,
            schedule=make_schedule({"name": "constant"}, optimiser, steps=1, epochs=1),
            stream=stream,
            steps=0,
            frozen=frozen,
        )

        def one() -> None:
            run.steps = run.step + stream.steps_per_epoch
            train(run, [], lambda run: None)

        return one

    through = epochs(network.module, held, [network.module])
    cached = epochs(HeadOnly(network.heads), torch.from_numpy(features), [])
    cached()
    ratios = []
    for _ in range(turns):
        slow = timed(through)
        ratios.append(slow / min(timed(cached) for _ in range(3)))
    return {
        "head_only_speedup": median(ratios)["median"],
        "head_only_speedup_interval": [median(ratios)[end] for end in ("low", "high")],
        "head_only_images": n,
        "head_only_network": spec,
        "features_once_seconds": once,
    }


def main() -> None:
    options = arguments(__doc__)
    torch.set_num_threads(1)
    quick = options.quick
    found = step_overhead(turns=21 if quick else 200, steps=3 if quick else 4)
    found |= head_only(
        turns=3 if quick else 15, n=128 if quick else 1024, spec="timm:resnet18?size=96"
    )
    report(found, options.json)


if __name__ == "__main__":
    main()
