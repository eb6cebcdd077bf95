"""Head-only training: what enters the head is computed once, kept in a file, and trained on.

With a frozen backbone and no augmentation the input of the last layer is the same in every epoch.
A file of features is named by a hash of the examples, their order and contents, the preprocessing
and the backbone's weights, so that none of them can change unnoticed.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftbed.atomic import write_atomically
from shiftbed.training.networks import Network, caught, mean_of_heads
from shiftbed.training.recipe import canonical

Floats = NDArray[np.float32]
_TOLERANCE = 1e-4


class HeadOnly(nn.Module):
    """Logits from features: the mean over heads of W_k f_k + b_k; mostly there is one head.

    Features of several heads lie side by side, (N, Σ width_k).
    """

    def __init__(self, heads: tuple[nn.Linear, ...]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.widths = [head.in_features for head in heads]

    def forward(self, features: Tensor) -> Tensor:
        return mean_of_heads(self.heads, torch.split(features, self.widths, dim=1))


class Through(nn.Module):
    """Pixels to logits by way of features: the network up to its heads, then ``head``."""

    def __init__(self, network: Network, head: nn.Module) -> None:
        super().__init__()
        self.network = network.module
        self.own = network.heads
        self.head = head

    def forward(self, pixels: Tensor) -> Tensor:
        with caught(self.own) as inputs:
            self.network(pixels)
        found: Tensor = self.head(torch.cat(inputs, dim=1))
        return found


def backbone_digest(network: Network) -> str:
    """SHA-256 of everything in the network's state but its heads."""
    heads = {id(tensor) for head in network.heads for tensor in head.parameters()}
    whole = hashlib.sha256()
    own: dict[str, Any] = dict(network.module.network.named_parameters())
    own |= dict(network.module.network.named_buffers())
    for name in sorted(own):
        if id(own[name]) not in heads:
            tensor = own[name].detach().cpu().contiguous()
            whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            whole.update(tensor.numpy().tobytes())
    return whole.hexdigest()


def features_of(network: Network, pixels: NDArray[np.uint8], batch_size: int = 64) -> Floats | None:
    """(N, width) inputs of the head for pixels (N, H, W, C), by one pass of each image.

    None if the network's logits are not what its heads make of them.
    """
    module = network.module.eval()
    model = network.as_model("features")
    head = HeadOnly(network.heads)
    parts = []
    with torch.inference_mode(), caught(network.heads) as inputs:
        for start in range(0, len(pixels), batch_size):
            batch = pixels[start : start + batch_size].transpose(0, 3, 1, 2)
            logits = module(model.tensor(batch))
            if not all(map(torch.is_tensor, inputs)):  # a head that is used without being called
                return None
            found = torch.cat(inputs, dim=1)
            if not start and not _agree(logits, head, found):
                return None
            parts.append(found.cpu().numpy())
    return np.concatenate(parts)


def _agree(logits: Tensor, head: HeadOnly, features: Tensor) -> bool:
    if features.shape[1] != sum(head.widths):
        return False
    again = head(features)
    scale = float(logits.abs().max()) or 1.0
    return again.shape == logits.shape and float((again - logits).abs().max()) <= _TOLERANCE * scale


def cached_features(
    network: Network,
    fingerprint: str,
    pixels: Callable[[], NDArray[np.uint8]],
    folder: str | Path | None,
    *,
    digest: str | None = None,
    batch_size: int = 64,
) -> Floats | None:
    """Features from their file in ``folder``, or computed (and written there, if there is one).

    None as ``features_of``.
    """
    if folder is None:
        return features_of(network, pixels(), batch_size)
    backbone = digest or backbone_digest(network)
    parts = [backbone, network.preprocessing.describe(), fingerprint]
    name = hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]
    path = Path(folder) / f"{name}.npy"
    if path.is_file():
        kept: Floats = np.load(path, allow_pickle=False)
        return kept
    found = features_of(network, pixels(), batch_size)
    if found is not None:
        with write_atomically(path) as file:
            np.save(file, found, allow_pickle=False)
    return found
