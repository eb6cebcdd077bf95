"""A training loop of a few lines, for tests of what is called around it; real digits."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The nets are too small for two; used where it is imported."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@lru_cache(maxsize=1)
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """1,200 training and 597 test images of 8×8, shuffled, in [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.from_numpy(images[order] / 16).float().view(-1, 1, 8, 8)
    y = torch.from_numpy(labels[order]).long()
    return x[:1200], y[:1200], x[1200:], y[1200:]


def small_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 13, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(13 * 16, 10),
    )


@dataclass
class Loop:
    """What a hook may look at and change."""

    network: nn.Module
    optimiser: Any
    schedule: Any
    steps: int
    step: int = 0
    seen_rates: list[float] = field(default_factory=list)


def loop(network: nn.Module, steps: int = 30, lr: float = 0.1, momentum: float = 0.9) -> Loop:
    optimiser = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    return Loop(network=network, optimiser=optimiser, schedule=schedule, steps=steps)


def train(run: Loop, hook: Any, until: int | None = None, batch: int = 32) -> Loop:
    """From ``run.step`` to the last step (or ``until``); ``begin`` is the caller's for a resume."""
    x, y, _, _ = digits()
    last = run.steps if until is None else until
    run.network.train()
    while run.step < last:
        rows = torch.arange(run.step * batch, (run.step + 1) * batch) % len(x)
        run.optimiser.zero_grad(set_to_none=True)
        functional.cross_entropy(run.network(x[rows]), y[rows]).backward()
        hook.after_backward(run)
        run.seen_rates.append(run.optimiser.param_groups[0]["lr"])
        run.optimiser.step()
        run.schedule.step()
        run.step += 1
        hook.after_step(run)
    if run.step == run.steps:
        hook.finish(run)
    return run


def accuracy(network: nn.Module) -> float:
    _, _, x, y = digits()
    network.eval()
    with torch.inference_mode():
        return float((network(x).argmax(1) == y).double().mean())
