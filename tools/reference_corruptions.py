"""What the `imagecorruptions` package makes of a few pictures, stored for the tests.

    python -m tools.reference_corruptions

writes two files under ``tests/evaluation/corruptions``: ``deterministic.npz``, results of the
corruptions that draw nothing, as 16-bit integers; and ``random.npz``, for those that do, the mean,
variance and radial power spectrum of each of 200 results. The pictures are small but corrupted
with ImageNet-C's parameters, which do not depend on the size in the package.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.photographs import photographs, pictures
from benchmarks.reference_corruptions import Reference, make_environment

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "evaluate" / "corruptions"
DETERMINISTIC = (
    "brightness",
    "contrast",
    "defocus_blur",
    "gaussian_blur",
    "jpeg_compression",
    "pixelate",
    "saturate",
    "zoom_blur",
)
RANDOM = (
    "elastic_transform",
    "fog",
    "gaussian_noise",
    "glass_blur",
    "impulse_noise",
    "motion_blur",
    "shot_noise",
    "snow",
    "spatter",
    "speckle_noise",
)
SEVERITIES = (1, 3, 5)
COUNT, SIZE = 200, 64
EDGES = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 0.36, 0.72)  # of the bins, in cycles per pixel


def one_picture() -> NDArray[np.uint8]:
    """The picture of the deterministic comparison, uint8 (1, 32, 40, 3)."""
    return np.ascontiguousarray(photographs(1, 40, seed=3)[:, :32])


def many_pictures() -> NDArray[np.uint8]:
    """The pictures of the comparison in distribution, uint8 (200, 64, 64, 3)."""
    return pictures(COUNT, SIZE, seed=5)


def summary(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Per image in [0, 1], (N, H, W, 3): mean, variance, log10 power in six rings, (N, 8)."""
    grey = images.astype(np.float64).mean(axis=3)
    mean, variance = images.mean(axis=(1, 2, 3)), images.var(axis=(1, 2, 3))
    power = np.abs(np.fft.fft2(grey - grey.mean(axis=(1, 2), keepdims=True))) ** 2
    height, width = grey.shape[1:]
    radius = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :])
    rings = [
        np.log10(power[:, (radius > low) & (radius <= high)].mean(axis=1) + 1e-9)
        for low, high in pairwise(EDGES)
    ]
    return np.stack([mean, variance, *rings], axis=1).astype(np.float32)


def main() -> None:
    make_environment()
    exact: dict[str, NDArray[np.uint16]] = {}
    drawn: dict[str, NDArray[np.float16]] = {}
    one, many = one_picture(), many_pictures()
    with Reference() as reference:
        for severity in SEVERITIES:
            for name in DETERMINISTIC:
                made, _ = reference(one, name, severity)
                exact[f"{name}:{severity}"] = np.rint(made / 255 * 65535).astype(np.uint16)
            for name in RANDOM:
                made, seconds = reference(many, name, severity, seed=severity)
                drawn[f"{name}:{severity}"] = summary(made / np.float32(255)).astype(np.float16)
                print(f"{name}:{severity} {seconds:.1f} s", flush=True)
    np.savez_compressed(FOLDER / "deterministic.npz", allow_pickle=False, **exact)
    np.savez_compressed(FOLDER / "random.npz", allow_pickle=False, **drawn)


if __name__ == "__main__":
    main()
