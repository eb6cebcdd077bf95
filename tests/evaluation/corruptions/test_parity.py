"""Against the `imagecorruptions` package 1.1.2: what ``tools.reference_corruptions`` stored.

Where nothing is drawn, the largest error is stated; on a 32×40 picture with ImageNet-C's parameters
at severities 1, 3 and 5. Where something is drawn, mean, variance and power in six rings of the
spectrum are compared over 200 pictures, each with itself.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.reference_corruptions import FOLDER, Reference
from shiftbed.evaluation.corruptions import parameters
from shiftbed.evaluation.corruptions.corruption import plan
from shiftbed.evaluation.corruptions.philox import image_keys
from tools.reference_corruptions import (
    COUNT,
    RANDOM,
    SEVERITIES,
    SIZE,
    many_pictures,
    one_picture,
    summary,
)

HERE = Path(__file__).parent
LARGEST = {  # in units of 1/255
    "brightness": 0.01,
    "contrast": 0.01,
    "defocus_blur": 0.01,
    "gaussian_blur": 0.01,
    "jpeg_compression": 0.01,
    "pixelate": 1.01,  # the package rounds to 8 bits after each of two steps
    "saturate": 0.01,
    "zoom_blur": 0.01,
}
RUNS = [(name, severity) for name in RANDOM for severity in SEVERITIES]


def ours(pixels: np.ndarray, name: str, severity: int, folder: str | None = None) -> np.ndarray:
    """Pixels (N, H, W, 3) corrupted with the parameters of large images; [0, 1]."""
    p = parameters(name, severity, 224, 224)
    height, width = pixels.shape[1:3]
    if name == "elastic_transform":  # the package's own: a smaller field and no affine map
        share = (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1]
        p = {"alpha": 250 * share * 0.005 * height, "sigma": 0.01 * height, "affine": 0.0}
    x = pixels * np.float32(1 / 255)
    out = np.empty_like(x)
    keys = image_keys([str(i) for i in range(len(x))], 0, name, severity)
    plan(name, p, height, width, folder)(x, out, keys)
    return out


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for file in ("deterministic.npz", "random.npz"):
        with np.load(HERE / file, allow_pickle=False) as arrays:
            made |= {key: arrays[key] for key in arrays.files}
    return made


@pytest.fixture(scope="module")
def many() -> np.ndarray:
    return many_pictures()


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_what_draws_nothing(stored, name, severity):
    expected = stored[f"{name}:{severity}"] / 65535 * 255
    made = ours(one_picture(), name, severity) * 255
    assert np.abs(made - expected).max() < LARGEST[name]


def compare(mine: np.ndarray, theirs: np.ndarray) -> None:
    """Summaries (N, 8) agree: stated bounds, and nothing beyond what chance leaves open."""
    paired = mine.astype(np.float64) - theirs.astype(np.float64)
    error = paired.std(axis=0, ddof=1) / np.sqrt(len(paired))
    mean = np.abs(paired.mean(axis=0))
    assert (mean <= 4.5 * error + 1e-3).all(), (mean, error)
    assert mean[0] < 0.02  # mean brightness
    assert mean[1] < 0.1 * theirs[:, 1].mean()  # variance
    assert mean[2:].max() < 0.08  # log10 power in each ring


@pytest.mark.parametrize(("name", "severity"), RUNS)
def test_what_draws_agrees_in_distribution(stored, many, name, severity):
    theirs = stored[f"{name}:{severity}"]
    assert theirs.shape == (COUNT, 8)
    compare(summary(ours(many, name, severity)), theirs)


needs_reference = pytest.mark.skipif(
    not (FOLDER / "complete").exists(),
    reason="the reference's environment is made by `python -m benchmarks.corruptions`",
)


@needs_reference
@pytest.mark.slow
def test_the_stored_results_are_the_packages(stored, many):
    with Reference() as reference:
        for name in LARGEST:
            made, _ = reference(one_picture(), name, 3)
            assert np.abs(made / 255 * 65535 - stored[f"{name}:3"]).max() <= 0.51
        for name in ("fog", "snow", "shot_noise"):
            made, _ = reference(many, name, 3, seed=99)
            again = summary(made / np.float32(255))
            compare(again, stored[f"{name}:3"])


@needs_reference
@pytest.mark.slow
@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_with_the_packages_pictures(many, severity, tmp_path):
    """The package uses five of its six pictures, enlarged by a tenth."""
    with Reference() as reference:
        for picture in sorted(reference.frost.iterdir())[:5]:
            (tmp_path / picture.name).write_bytes(picture.read_bytes())
        theirs, _ = reference(many, "frost", severity, seed=severity)
    mine = summary(ours(many, "frost", severity, str(tmp_path)))
    paired = mine - summary(theirs / np.float32(255))
    error = paired.std(axis=0) / np.sqrt(COUNT)
    mean = np.abs(paired.mean(axis=0))
    assert (mean <= 4.5 * error + np.array([5e-3, 2e-3] + [0.1] * 6)).all()
    assert mean[0] < 0.03
    assert mean[2:].max() < 0.25


def test_the_reference_pictures_are_as_large_as_said():
    assert many_pictures().shape == (COUNT, SIZE, SIZE, 3)
