"""CIFAR-10 in balanced parts, its test images corrupted, and other pictures for replay.

``train.npz`` is what networks are fine-tuned on, ``line.npz`` (which holds it) what the networks of
the line are trained on, ``cifar10.npz`` and ``corrupted.npz`` are test sets, ``rows.npy`` says
which of CIFAR-10's test images these are. ``rehearsal.npz`` are training images outside
``train.npz``, labelled by the answers of EfficientNet-Lite0 before fine-tuning: ImageNet's
own pictures are in no package, so the old task is rehearsed on what the network says of others.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.cifar_data import Arrays, cifar10, cifar10_file
from examples.imagenet_cifar10.nets import lite0
from examples.imagenet_cifar10.recipe import Profile
from shiftbed.atomic import write_atomically
from shiftbed.evaluation.corruptions import Corruption
from shiftbed.evaluation.models import model

__all__ = ["CORRUPTIONS", "SEVERITY", "make"]

CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "motion_blur", "zoom_blur",
    "snow", "fog", "brightness", "contrast", "pixelate", "jpeg_compression",
)  # fmt: skip
SEVERITY = 3
FILES = ("line.npz", "train.npz", "cifar10.npz", "corrupted.npz", "rows.npy", "rehearsal.npz")
Rows = NDArray[np.int64]


def make(folder: Path, profile: Profile, source: Path | None = None) -> None:
    """The files above, where one is missing.

    Test image i has the i-th of the corruptions, in turn: their mean accuracy in one test set.
    """
    if all((folder / name).exists() for name in FILES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    whole = cifar10() if source is None else cifar10_file(source)
    images, labels = whole["train"]
    order = _shuffled(labels)
    parts = {
        "line": np.sort(order[:, : profile.line_train].ravel()),
        "train": np.sort(order[:, : profile.train].ravel()),
        "rehearsal": np.sort(order[:, -profile.rehearsal :].ravel()),
    }
    rows = np.sort(_shuffled(whole["test"][1])[:, : profile.test].ravel())
    clean, answers = whole["test"][0][rows], whole["test"][1][rows]
    made: dict[str, Arrays] = {name: (images[own], labels[own]) for name, own in parts.items()}
    made["rehearsal"] = made["rehearsal"][0], _said(made["rehearsal"][0])
    made["cifar10"] = clean, answers
    made["corrupted"] = _corrupted(clean), answers
    for name, (pixels, own) in made.items():
        with write_atomically(folder / f"{name}.npz") as file:
            np.savez(file, images=pixels, labels=own)
    with write_atomically(folder / "rows.npy") as file:
        np.save(file, rows)


def _shuffled(labels: NDArray[np.int64]) -> Rows:
    """(10, images of a class): rows of each class in a fixed random order."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(np.flatnonzero(labels == one)) for one in range(10)])


def _corrupted(clean: NDArray[np.uint8]) -> NDArray[np.uint8]:
    changed = clean.copy()
    for at, name in enumerate(CORRUPTIONS):
        rows = slice(at, None, len(CORRUPTIONS))
        ids = [str(row) for row in range(len(clean))[rows]]
        changed[rows] = Corruption(name, SEVERITY, threads=1)(clean[rows], ids)
    return changed


def _said(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """What Lite0 says of pictures, of ImageNet's 1,000 classes."""
    from PIL import Image

    network = model(lite0(), name="lite0")
    seen = network.preprocessing.pixels
    found = []
    with torch.inference_mode():
        for at in range(0, len(images), 200):
            some = [seen(Image.fromarray(one)).transpose(2, 0, 1) for one in images[at : at + 200]]
            found.append(network.logits(np.stack(some)).argmax(axis=1))
    return np.concatenate(found).astype(np.int64)
