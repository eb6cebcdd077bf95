"""Three real domains of handwritten digits as arrays: MNIST, scikit-learn's digits and, if given,
USPS; images of one size, no image in two of the files (hashes are compared)."""

from pathlib import Path

import numpy as np

from examples.digits.data import Images, make, shrunk
from shiftbed.atomic import write_atomically

__all__ = ["domains"]


def domains(
    folder: Path, usps: Path | None = None, most: int | None = None, raw: Path | None = None
) -> dict[str, int]:
    """Write NAME.npz for each part of each domain, at most ``most`` images of each; their counts.

    An image that is in two parts stays in a test set only. ``raw`` (by default below the folder)
    keeps what they are made of.
    """
    raw = raw or folder / "raw"
    make(raw)
    parts: dict[str, Images] = {}
    for name in ("mnist_train", "mnist_test"):
        parts[name] = _load(raw / f"{name}.npz")
    images, labels = _load(raw / "sklearn_digits.npz")
    test = np.zeros(len(labels), dtype=bool)
    test[np.random.default_rng(0).permutation(len(labels))[:597]] = True
    parts["sklearn_train"] = images[~test], labels[~test]
    parts["sklearn_test"] = images[test], labels[test]
    if usps is not None:
        with np.load(usps, allow_pickle=False) as arrays:
            for part in ("train", "test"):
                labels = arrays[f"usps_{part}_labels"].astype(np.int64)
                parts[f"usps_{part}"] = arrays[f"usps_{part}_images"], labels
    seen: set[bytes] = set()
    counts = {}
    for name in sorted(parts, key=lambda name: name.endswith("train")):  # tests keep theirs
        small, labels = np.stack([shrunk(one) for one in parts[name][0]]), parts[name][1]
        own = [one.tobytes() for one in small]
        rows = np.flatnonzero([one not in seen for one in own])
        seen |= set(own)
        if most is not None and len(rows) > most:
            rows = np.sort(np.random.default_rng(0).permutation(rows)[:most])
        _write(folder / f"{name}.npz", (small[rows], labels[rows]))
        counts[name] = len(rows)
    return counts


def _write(path: Path, data: Images) -> None:
    """Unless the same is there."""
    if path.exists():
        images, labels = _load(path)
        if np.array_equal(images, data[0]) and np.array_equal(labels, data[1]):
            return
    with write_atomically(path) as file:
        np.savez_compressed(file, images=data[0], labels=data[1])


def _load(path: Path) -> Images:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["images"], arrays["labels"].astype(np.int64)
