"""Heads on one backbone: 100 evaluated together against one pass of the backbone.

    python -m benchmarks.heads [--quick] [--json]

A ResNet-50 with random weights, 100 linear heads on its features, one setting. ``ratio`` is the
time of evaluating all heads over that of evaluating one, both from opened models to predictions in
memory, in turns, the best of each; ``one_by_one`` is what the same heads would take alone. The
predictions of the first head are compared with those of that head alone, bit for bit.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.common import arguments, report
from shiftbed.engine import shared_backbone
from shiftbed.engine.evaluate import Evaluated, evaluate
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models import TorchModel, resolve
from shiftbed.evaluation.models.heads import with_head

HEADS, CLASSES, SIZE = 100, 7, 224


def models(count: int) -> list[TorchModel]:
    network = resolve(f"timm:resnet50?pretrained=false&size={SIZE}")
    assert isinstance(network, TorchModel)
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        found.append(with_head(network, torch.nn.Linear(2048, CLASSES), name=f"head-{seed}"))
    return found


def timed(some: Sequence[TorchModel], images: TestSet) -> tuple[float, Evaluated]:
    """Seconds from opened models to predictions; no features are left from before."""
    shared_backbone.forget()
    start = time.perf_counter()
    done = evaluate(list(some), images, backend="torch", keep_logits=True)
    return time.perf_counter() - start, done


def main() -> None:
    args = arguments(__doc__)
    n, rounds = (128, 1) if args.quick else (256, 3)
    pixels = np.random.default_rng(0).integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8)
    images = TestSet(pixels, np.arange(n) % CLASSES, name="noise")
    heads = models(HEADS)
    one, every, same = [], [], True
    timed(heads[:1], TestSet(pixels[:8], np.arange(8) % CLASSES, name="few"))
    for _ in range(rounds):
        seconds, alone = timed(heads[:1], images)
        one.append(seconds)
        seconds, done = timed(heads, images)
        every.append(seconds)
        name = heads[0].id
        same &= done.store.read(name, "noise").equals(alone.store.read(name, "noise"))
    report(
        {
            "heads": HEADS,
            "images": n,
            "one pass of the backbone, s": min(one),
            "all heads together, s": min(every),
            "one_by_one, s": HEADS * min(one),
            "ratio": min(every) / min(one),
            "equal to the last bit": same,
        },
        args.json,
    )


if __name__ == "__main__":
    main()
