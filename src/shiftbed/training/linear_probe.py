"""A linear probe of a network: its head replaced by logistic regression on its own features.

Features are computed once and kept (``features.py``); the sweep over penalties is ``linear.py``.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.training.evaluation import Opened
from shiftbed.training.expand import short_hash
from shiftbed.training.features import backbone_digest, cached_features
from shiftbed.training.linear import PENALTIES, Logistic, Probe, probe
from shiftbed.training.networks import Network

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Probed:
    """A network with its new head, and how the head was chosen."""

    network: Network
    found: Probe
    id: str
    """Hash of all that the head depends on: backbone, images, penalties."""
    n_train: int
    n_validation: int


def probe_network(
    network: Network,
    train: Opened,
    validation: Opened,
    folder: str | Path,
    *,
    penalties: tuple[float, ...] = PENALTIES,
    level: float = 0.95,
    iterations: int = 1000,
) -> Probed:
    """Fit heads on the features of ``train``, keep the one that is best on ``validation``.

    The network is changed: it has that head afterwards. ``folder`` keeps the features.
    """
    if train.test_set.fingerprint == validation.test_set.fingerprint:
        raise InputError("training and validation images are the same: hold some out")
    backbone = backbone_digest(network)
    x, y = _features(network, train, folder, backbone)
    held_x, held_y = _features(network, validation, folder, backbone)
    found = probe(
        (x, y),
        (held_x, held_y),
        penalties=penalties,
        classes=network.classes,
        level=level,
        iterations=iterations,
    )
    install(network, found.best.model)
    parts = [backbone, network.preprocessing.describe(), list(penalties), iterations]
    parts += [train.test_set.fingerprint, validation.test_set.fingerprint]
    return Probed(
        network=network,
        found=found,
        id=short_hash(parts),
        n_train=len(y),
        n_validation=len(held_y),
    )


def _features(
    network: Network, opened: Opened, folder: str | Path, backbone: str
) -> tuple[Floats, NDArray[np.int64]]:
    """Features and labels of the images that can be read and have a label."""
    name = opened.setting.test_set.name
    found = cached_features(
        network,
        opened.test_set.fingerprint,
        lambda: opened.pixels,
        folder,
        digest=backbone,
    )
    if found is None:
        raise InputError(f"{network.spec} does more to its features than a linear head would")
    labels = opened.stored.labels
    known = opened.readable & (labels >= 0)
    if not known.any() or labels[known].max() >= network.classes:
        raise InputError(f"{name}: labels must lie in 0 … {network.classes - 1}")
    return found[known], labels[known]


def install(network: Network, model: Logistic) -> None:
    """Give a network the fitted head."""
    if len(network.heads) != 1 or network.heads[0].bias is None:
        raise InputError(f"{network.spec} has no single head with a bias, which a probe needs")
    head, layer = network.heads[0], model.as_layer()
    with torch.no_grad():
        head.weight.copy_(layer.weight)
        head.bias.copy_(layer.bias)
