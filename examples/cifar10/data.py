"""CIFAR-10 as the study takes it: balanced parts of its training and of its test images."""

from pathlib import Path

import numpy as np

from benchmarks.cifar_data import Arrays, cifar10, cifar10_file
from shiftbed.atomic import write_atomically

__all__ = ["QUICK", "WHOLE", "balanced", "make"]

WHOLE = {"train": 2000, "cifar10": 500}
"""File → images of each of the ten classes."""
QUICK = {"train": 30, "cifar10": 20}
_PART = {"train": "train", "cifar10": "test"}


def balanced(data: Arrays, each: int, seed: int = 0) -> Arrays:
    """``each`` images of every class, drawn with ``seed``, in the order of the original."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(data[1] == c))[:each] for c in range(10)]
    kept = np.sort(np.concatenate(rows))
    return data[0][kept], data[1][kept]


def make(folder: Path, sizes: dict[str, int], source: Path | None = None) -> None:
    """train.npz and cifar10.npz, where they are missing; fetched unless ``source`` has all."""
    missing = [name for name in sizes if not (folder / f"{name}.npz").exists()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    data = cifar10() if source is None else cifar10_file(source)
    for name in missing:
        images, labels = balanced(data[_PART[name]], sizes[name])
        with write_atomically(folder / f"{name}.npz") as file:
            np.savez(file, images=images, labels=labels)
