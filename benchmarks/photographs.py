"""Pictures to corrupt: pieces of scikit-learn's two photographs, and synthetic 1/f images."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pictures = NDArray[np.uint8]


def photographs(count: int, size: int, seed: int = 0) -> Pictures:
    """``count`` square pieces, uint8 (N, size, size, 3), resized by area."""
    from sklearn.datasets import load_sample_images

    wholes = load_sample_images().images
    rng = np.random.default_rng(seed)
    pieces = []
    for i in range(count):
        whole = wholes[i % len(wholes)]
        side = int(rng.integers(224, 400))
        top = int(rng.integers(0, whole.shape[0] - side + 1))
        left = int(rng.integers(0, whole.shape[1] - side + 1))
        piece = Image.fromarray(np.ascontiguousarray(whole[top : top + side, left : left + side]))
        pieces.append(np.asarray(piece.resize((size, size), Image.Resampling.BOX)))
    return np.stack(pieces)


def clouds(count: int, size: int, seed: int = 0) -> Pictures:
    """``count`` images with the 1/f amplitudes of natural ones, their channels correlated."""
    rng = np.random.default_rng(seed)
    radius = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None, :])
    radius[0, 0] = np.inf
    made = []
    for _ in range(count):
        noise = rng.normal(size=(4, size, size))
        fields = np.fft.irfft2(np.fft.rfft2(noise) / radius, s=(size, size))
        fields /= fields.std(axis=(1, 2), keepdims=True)
        mixed = rng.uniform(0.25, 0.75) + 0.2 * (fields[0] + 0.3 * fields[1:])
        made.append(np.clip(mixed * 255, 0, 255).astype(np.uint8).transpose(1, 2, 0))
    return np.stack(made)


def pictures(count: int, size: int, seed: int = 0) -> Pictures:
    """Half photographs, half synthetic."""
    half = (count + 1) // 2
    both = [photographs(half, size, seed), clouds(count - half, size, seed)] if count > 1 else []
    return np.concatenate(both) if both else photographs(1, size, seed)
