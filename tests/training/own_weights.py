"""A ``python:`` network with two files of weights whose accuracies are known: all and nothing."""

from pathlib import Path

import numpy as np
import torch

from shiftbed.evaluation.data import TestSet

NET = """
from torch import nn

def net():
    made = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    made.preprocessing = {"size": (4, 4), "mode": "L", "crop": "none"}
    return made
"""
LINE = "python:own.py:net()"
N = 40


def images(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Dark and bright images of 4×4 pixels, and which is which."""
    generator = np.random.default_rng(seed)
    labels = np.arange(N) % 2
    pixels = generator.integers(0, 100, (N, 4, 4)) + 150 * labels[:, None, None]
    return pixels.astype(np.uint8), labels


def shades(name: str = "seen", seed: int = 0) -> TestSet:
    return TestSet(*images(seed), name=name, classes=["dark", "bright"])


def network() -> torch.nn.Sequential:
    space: dict[str, object] = {}
    exec(NET, space)
    return space["net"]()  # type: ignore[operator]


def weights(sign: float, seed: int = 0) -> dict[str, torch.Tensor]:
    """Class 1 if the mean pixel is above one half, or (sign −1) below it."""
    torch.manual_seed(seed)
    state = network().state_dict()
    state["1.weight"] = torch.zeros(8, 16)
    state["1.weight"][0] = 1 / 16
    state["1.bias"] = torch.zeros(8)
    state["3.weight"] = torch.zeros(2, 8)
    state["3.weight"][1, 0] = sign
    state["3.bias"] = torch.tensor([sign / 2, 0.0])
    return state


def place(folder: Path) -> Path:
    """The network, ``right.pt`` (accuracy 1), ``wrong.pt`` (accuracy 0) and test sets."""
    (folder / "own.py").write_text(NET)
    torch.save(weights(1.0), folder / "right.pt")
    torch.save(weights(-1.0), folder / "wrong.pt")
    torch.save({"other": torch.zeros(1)}, folder / "strange.pt")
    for name, seed in (("seen", 0), ("more", 1), ("held", 2)):
        x, y = images(seed)
        np.savez(folder / f"{name}.npz", images=x, labels=y)
    return folder
