"""CIFAR-10 in balanced parts, its test images corrupted, and CIFAR-10.1 and 10.2 where given."""

from pathlib import Path

import numpy as np

from benchmarks.cifar_data import cifar10, cifar10_file
from examples.cifar10.data import balanced
from shiftbed.atomic import write_atomically
from shiftbed.evaluation.corruptions import Corruption

__all__ = ["CORRUPTIONS", "make"]

CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "motion_blur", "zoom_blur",
    "snow", "fog", "brightness", "contrast", "pixelate", "jpeg_compression",
)  # fmt: skip
SEVERITY = 3


def make(folder: Path, train: int, test: int, source: Path | None = None) -> None:
    """train.npz, cifar10.npz and corrupted.npz, so many images of each class, where missing.

    Test image i has the i-th of the corruptions, in turn: their mean accuracy in one test set.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = ("train", "cifar10", "corrupted")
    if all((folder / f"{name}.npz").exists() for name in names):
        return
    whole = cifar10() if source is None else cifar10_file(source)
    clean, labels = balanced(whole["test"], test)
    changed = clean.copy()
    for at, name in enumerate(CORRUPTIONS):
        rows = slice(at, None, len(CORRUPTIONS))
        ids = [str(row) for row in range(len(clean))[rows]]
        changed[rows] = Corruption(name, SEVERITY, threads=1)(clean[rows], ids)
    parts = {"train": balanced(whole["train"], train), "cifar10": (clean, labels)}
    for name, (images, own) in (parts | {"corrupted": (changed, labels)}).items():
        with write_atomically(folder / f"{name}.npz") as file:
            np.savez(file, images=images, labels=own)
