"""A recipe on scikit-learn's digits, as small as can be: a folder with data, a net and the file."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

NET = """
from torch import nn

def build():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 10),
    )
    net.preprocessing = {"size": 8, "mode": "L", "mean": [0.3], "std": [0.3]}
    return net
"""

HEAD = """
name = "tiny"

[data.digits]
path = "digits.npz:train"
held_out = 0.1

[data.other]
path = "digits.npz:other"

[[test_sets]]
name = "test"
path = "digits.npz:test"

[[test_sets]]
name = "faint"
path = "digits.npz:faint"

[[shifts]]
name = "faint"
id = "test"
ood = "faint"
"""

GRID = """
[[grid]]
model = "python:net.py:build()"
data = "digits"
optimiser = {name = "SGD", lr = 0.1, momentum = 0.9}
epochs = 2
batch_size = 64
"""


def place(folder: Path, grid: str = GRID, head: str = HEAD) -> Path:
    """Write everything; the recipe's path."""
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 255 / 16).round().astype(np.uint8)
    np.savez(
        folder / "digits.npz",
        train_images=images[:600],
        train_labels=y[:600],
        other_images=255 - images[600:900],
        other_labels=y[600:900],
        test_images=images[1400:],
        test_labels=y[1400:],
        faint_images=images[1400:] // 2,
        faint_labels=y[1400:],
    )
    (folder / "net.py").write_text(NET)
    path = folder / "recipe.toml"
    path.write_text(head + grid)
    return path
