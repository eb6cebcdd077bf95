"""Head-only training: what enters the head is computed once, kept in a file, and trained on.

With a frozen backbone and no augmentation the input of the last layer is the same in every epoch.
A file of features is named by a hash of the examples, their order and contents, the preprocessing
and the backbone's weights, so that none of them can change unnoticed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.atomic import one_at_a_time, write_atomically
from shiftbed.evaluation.backends import exported_features
from shiftbed.evaluation.models import heads
from shiftbed.evaluation.models.heads import HeadOnly, caught
from shiftbed.places import only_here
from shiftbed.training.networks import Network
from shiftbed.training.recipe import canonical

Floats = NDArray[np.float32]
_TOLERANCE = 1e-4


def backbone_digest(network: Network) -> str:
    """SHA-256 of everything in the network but its heads."""
    return heads.backbone_digest(network.module, network.heads)


Batches = Iterable[NDArray[np.uint8] | NDArray[np.float32]]


def features_of(
    network: Network,
    pixels: NDArray[np.uint8] | Batches,
    batch_size: int = 64,
    backend: str = "torch",
) -> Floats | None:
    """(N, width) inputs of the head for pixels (N, H, W, C), by one pass of each image.

    ``pixels`` may be batches (B, C, H, W), uint8 or in [0, 1]. None if the network's logits are not
    what its heads make of them.
    """
    batches: Batches = _batches(pixels, batch_size) if isinstance(pixels, np.ndarray) else pixels
    if backend == "onnxruntime":
        network.module.eval()
        split = network.as_model("features").parts
        graph = None if split is None else exported_features(split)
        if graph is not None:
            return np.concatenate([graph(batch) for batch in batches])
    module = network.module.eval()
    model = network.as_model("features")
    head = HeadOnly(network.heads)
    parts: list[Floats] = []
    with torch.inference_mode(), caught(network.heads) as inputs:
        for batch in batches:
            logits = module(model.tensor(batch))
            if not all(map(torch.is_tensor, inputs)):  # a head that is used without being called
                return None
            found = torch.cat(inputs, dim=1)
            if not parts and not _agree(logits, head, found):
                return None
            parts.append(found.cpu().numpy())
    return np.concatenate(parts)


def _batches(pixels: NDArray[np.uint8], size: int) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(pixels), size):
        yield pixels[start : start + size].transpose(0, 3, 1, 2)


def _agree(logits: Tensor, head: HeadOnly, features: Tensor) -> bool:
    if features.shape[1] != sum(head.widths):
        return False
    again = head(features)
    scale = float(logits.abs().max()) or 1.0
    return again.shape == logits.shape and float((again - logits).abs().max()) <= _TOLERANCE * scale


def cached_features(
    network: Network,
    fingerprint: str,
    pixels: Callable[[], NDArray[np.uint8] | Batches],
    folder: str | Path | None,
    *,
    digest: str | None = None,
    batch_size: int = 64,
    backend: str = "torch",
) -> Floats | None:
    """Features from their file in ``folder``, or computed (and written there, if there is one).

    Of several processes one computes them. None as ``features_of``.
    """
    if folder is None:
        return features_of(network, pixels(), batch_size, backend)
    backbone = digest or backbone_digest(network)
    parts = [backbone, network.preprocessing.describe(), fingerprint]
    parts += [] if backend == "torch" else [backend]
    name = hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]
    path = only_here(folder, "a folder of features") / f"{name}.npy"
    with one_at_a_time(path):
        if path.is_file():
            kept: Floats = np.load(path, allow_pickle=False)
            return kept
        found = features_of(network, pixels(), batch_size, backend)
        if found is not None:
            with write_atomically(path) as file:
                np.save(file, found, allow_pickle=False)
        return found
