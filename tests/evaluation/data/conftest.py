"""Real photographs and digits, packed on the spot in every format."""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, Unreadable, batches, open_test_set
from tests.conftest import SHARED

datasets.disable_progress_bars()
CLASSES = ["china", "flower"]


@dataclass(frozen=True)
class Photo:
    """A crop of a photograph, as a file."""

    name: str
    label: int
    data: bytes

    @property
    def id(self) -> str:
        return f"{CLASSES[self.label]}/{self.name}"

    @property
    def pixels(self) -> np.ndarray:
        with Image.open(io.BytesIO(self.data)) as image:
            return np.asarray(image)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.fixture(scope="session")
def scenes() -> list[Image.Image]:
    """scikit-learn's two photographs: a temple, a flower."""
    return [Image.fromarray(one) for one in load_sample_images().images]


@pytest.fixture(scope="session")
def photos(scenes) -> list[Photo]:
    """Three crops of each, sorted by name within their class."""
    crops = []
    for label, scene in enumerate(scenes):
        for at in range(3):
            crop = scene.crop((100 * at, 80 * at, 100 * at + 96, 80 * at + 72))
            crops.append(Photo(f"{at}.jpg", label, encoded(crop, quality=90)))
    return crops


@pytest.fixture
def folder(tmp_path, photos) -> Path:
    return write_folder(tmp_path / "photos", photos)


def write_folder(root: Path, photos: list[Photo]) -> Path:
    for photo in photos:
        (root / photo.id).parent.mkdir(parents=True, exist_ok=True)
        (root / photo.id).write_bytes(photo.data)
    return root


def write_manifest(root: Path, photos: list[Photo]) -> Path:
    write_folder(root / "below", photos)
    rows = [f"below/{photo.id},{CLASSES[photo.label]}\n" for photo in photos]
    path = root / "photos.csv"
    path.write_text("path,label\n" + "".join(rows))
    return path


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def members_of(photo: Photo) -> list[tuple[str, bytes]]:
    stem = photo.id.removesuffix(".jpg")
    label = {"label": CLASSES[photo.label], "width": 96}
    return [(photo.id, photo.data), (f"{stem}.json", json.dumps(label).encode())]


def to_dataset(photos: list[Photo]) -> datasets.Dataset:
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    )
    rows = {
        "image": [{"bytes": photo.data, "path": photo.id} for photo in photos],
        "label": [photo.label for photo in photos],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def same_photos(test_set: TestSet, photos: list[Photo]) -> None:
    """All pictures and labels, in order."""
    assert len(test_set) == len(photos)
    assert test_set.labels.tolist() == [photo.label for photo in photos]
    for row, photo in enumerate(photos):
        assert np.array_equal(np.asarray(test_set.load(row)), photo.pixels)


def check(test_set: TestSet) -> list[Unreadable]:
    """The images that cannot be read."""

    def same(_: Image.Image) -> np.ndarray:
        return np.zeros((1, 1, 1), np.uint8)

    return [one for batch in batches(test_set, None, same, 64, 1) for one in batch.unreadable]


@pytest.fixture
def refused() -> Callable[..., str]:
    """Open a test set, expect one line of complaint with all these words in it."""

    def refused(spec: Any, *words: str, **options: Any) -> str:
        with pytest.raises(InputError) as caught:
            open_test_set(spec, **options)
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert word in message, f"{word!r} is not in {message!r}"
        return message

    return refused


@pytest.fixture(scope="session")
def digits() -> Path:
    path = SHARED / "images" / "digits.npz"
    if not path.is_file():
        pytest.skip("public digits (images/digits.npz) are not beside the checkout")
    return path
