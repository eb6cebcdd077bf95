"""Real photographs that come with scikit-learn."""

from functools import cache

import numpy as np
import pytest
from PIL import Image


@cache
def photograph(name: str) -> Image.Image:
    datasets = pytest.importorskip("sklearn.datasets")
    return Image.fromarray(np.asarray(datasets.load_sample_image(f"{name}.jpg")))


def photographs() -> list:
    """china.jpg and flower.jpg, upright too, as parameters."""
    try:
        found = {name: photograph(name) for name in ("china", "flower")}
    except pytest.skip.Exception:
        return [pytest.param(None, marks=pytest.mark.skip(reason="scikit-learn is not installed"))]
    found["upright"] = found["flower"].rotate(90, expand=True).crop((0, 0, 301, 533))
    return [pytest.param(image, id=name) for name, image in found.items()]
