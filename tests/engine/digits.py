"""A testbed of two linear digit models: a torch module, and a plain function without gradients."""

from pathlib import Path

import numpy as np

MODELS = """
import numpy as np
import torch

with np.load({path!r}) as arrays:
    kept = dict(arrays)
SIZE = {{"size": (8, 8), "mode": "L", "crop": "none"}}

def net():
    linear = torch.nn.Linear(64, 10)
    linear.weight.data = torch.from_numpy(kept["weights"])
    linear.bias.data = torch.from_numpy(kept["bias"])
    module = torch.nn.Sequential(torch.nn.Flatten(), linear)
    module.preprocessing = SIZE
    return module

class Steps(torch.nn.Module):
    def forward(self, x):
        return (x * 4).round()

def stepped():
    module = torch.nn.Sequential(Steps(), net())
    module.preprocessing = SIZE
    return module

def plain(pixels):
    return pixels.reshape(len(pixels), -1) @ kept["weights"].T + kept["bias"]

plain.preprocessing = SIZE

def dim(x, ids, severity, seed):
    return x * np.float32(1 - severity / 10)
"""
HEAD = """
store = "store"
[defaults]
batch_size = 64
[[models]]
id = "python:digit_nets:net()"
name = "net"
[[models]]
id = "python:digit_nets:plain"
name = "plain"
[[test_sets]]
name = "val"
path = "val.npz"
"""


def make_digits(folder: Path) -> Path:
    """Models and the last 600 digits; returns the folder."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    folder.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    fitted = LogisticRegression(max_iter=300, C=0.3).fit(images[:1100] / 16, labels[:1100])
    path = folder / "kept.npz"
    np.savez(
        path,
        weights=fitted.coef_.astype(np.float32),
        bias=fitted.intercept_.astype(np.float32),
    )
    (folder / "digit_nets.py").write_text(MODELS.format(path=str(path)))
    pixels = (images[1197:] * 15.9375).round().astype(np.uint8).reshape(-1, 8, 8)
    np.savez(folder / "val.npz", images=pixels, labels=labels[1197:])
    return folder


def write(folder: Path, settings: str, head: str = HEAD) -> Path:
    path = folder / "testbed.toml"
    path.write_text(head + settings)
    return path
