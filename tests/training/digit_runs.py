"""Real digits as training data, and whole runs on them with the package's own loop."""

from functools import lru_cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models.modules import Normalised
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.training.loop import Run, make_schedule, train
from shiftbed.training.objective import Hook, Objective, Setup
from shiftbed.training.prepare import TrainingData, whole
from shiftbed.training.stream import Stream, make_stream

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SEEN = Preprocessing(size=(8, 8), mean=(0.3,), std=(0.4,), mode="L")


torch.set_num_threads(1)  # networks this small are slower on several


@lru_cache(maxsize=1)
def images() -> tuple[np.ndarray, np.ndarray]:
    """(1797, 8, 8) uint8 and their labels, shuffled."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    pixels = np.round(x[order] / 16 * 255).astype(np.uint8).reshape(-1, 8, 8)
    return pixels, y[order].astype(np.int64)


def training_data(x: np.ndarray, y: np.ndarray, classes: int = 10, **options) -> TrainingData:
    """Images and labels as training data, their ids of one length."""
    given = {"name": "arrays", "examples": [f"{row:04d}" for row in range(len(x))]} | options
    return whole(TestSet(x, y, classes=[str(k) for k in range(classes)], **given))


def digits(rows: slice = slice(0, 1200), classes: int = 10, **options) -> TrainingData:
    """Some digits; with fewer classes, the digit modulo that number."""
    x, y = images()
    return training_data(x[rows], y[rows] % classes, classes, **options)


def network(classes: int = 10, seed: int = 0) -> tuple[Normalised, nn.Linear]:
    """A small network that normalises by itself, and its head."""
    torch.manual_seed(seed)
    head = nn.Linear(64, classes)
    inner = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        head,
    )
    return Normalised(inner, SEEN.mean, SEEN.std), head


def stream_of(data: TrainingData, **options) -> Stream:
    steps = options.pop("augmentation", [])
    return make_stream(data, SEEN, steps, batch_size=64, seed=0, **options)


def make_run(
    objective: Objective,
    *,
    data: TrainingData | None = None,
    others: dict[str, TrainingData] | None = None,
    classes: int = 10,
    old: tuple[nn.Linear, ...] = (),
    made: tuple[nn.Module, nn.Linear] | None = None,
    hooks: tuple[Hook, ...] = (),
    steps: int = 10,
    lr: float = 0.01,
    base: str = ".",
    optimiser: type[torch.optim.Optimizer] = torch.optim.AdamW,
    **options,
) -> Run:
    data = digits(classes=classes) if data is None else data
    module, head = made or network(classes)
    stream = stream_of(data, views=objective.views, clean_first=objective.clean_first, **options)
    setup = Setup(
        network=module,
        heads=(head,),
        classes=classes,
        data=data,
        seed=0,
        open=lambda name: (others or {})[name],
        stream=stream_of,
        old_heads=old,
        base=base,
    )
    whole = objective.begin(setup)
    chosen = optimiser([p for p in whole.parameters() if p.requires_grad], lr=lr)
    run = Run(
        network=whole,
        objective=objective,
        optimiser=chosen,
        schedule=make_schedule({"name": "constant"}, chosen, steps=steps, epochs=1),
        stream=stream,
        steps=steps,
        hooks=hooks,
        setup=setup,
    )
    run.begin()
    return run


def trained(run: Run, stops: tuple[int, ...] = ()) -> list[int]:
    """Train to the end; the steps after which there was a checkpoint."""
    seen: list[int] = []
    train(run, [*stops, run.steps], lambda one: seen.append(one.step))
    return seen


def accuracy(module: nn.Module, rows: slice = slice(1200, None), classes: int = 10) -> float:
    x, y = images()
    pixels = torch.from_numpy(x[rows]).float().div(255)[:, None]
    module.eval()
    with torch.inference_mode():
        answers = module(pixels).argmax(dim=1).numpy()
    return float((answers == y[rows] % classes).mean())
