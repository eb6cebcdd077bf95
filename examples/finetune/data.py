"""Three real domains of handwritten digits as arrays: MNIST, scikit-learn's digits and, if given,
USPS; images of one size, no image in two of the files (hashes are compared)."""

from pathlib import Path

import numpy as np
from PIL import Image

from examples.digits.data import Images, make

__all__ = ["domains"]

SIZE = 16
"""Pixels a side: USPS's own, half of what the networks take."""


def domains(folder: Path, usps: Path | None = None) -> list[str]:
    """Write NAME.npz for each part of each domain, unless they are there; the names."""
    raw = folder / "raw"
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
    for name in sorted(parts, key=lambda name: name.endswith("train")):  # tests keep theirs
        small, labels = np.stack([_shrink(one) for one in parts[name][0]]), parts[name][1]
        own = [one.tobytes() for one in small]
        keep = np.array([one not in seen for one in own])
        seen |= set(own)
        target = folder / f"{name}.npz"
        if not target.exists():
            part = folder / f".{name}.npz"
            np.savez_compressed(part, images=small[keep], labels=labels[keep])
            part.rename(target)
    return sorted(parts)


def _load(path: Path) -> Images:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["images"], arrays["labels"].astype(np.int64)


def _shrink(image: np.ndarray) -> np.ndarray:
    """To SIZE × SIZE; a picture of that size stays as it is."""
    if image.shape == (SIZE, SIZE):
        return image
    small = Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.uint8)
