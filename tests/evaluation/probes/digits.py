"""Digits, two linear models of them, one without gradients, and blended spectra by definition."""

import numpy as np

from shiftbed.evaluation.data import open_test_set
from shiftbed.evaluation.models import FunctionModel, resolve
from shiftbed.evaluation.preprocessing import Preprocessing
from tests.engine.digits import make_digits


def some_digits(folder):
    make_digits(folder)
    return open_test_set(folder / "val.npz")


def torch_model(folder):
    import sys

    sys.path.insert(0, str(folder))
    try:
        return resolve("python:digit_nets:net()")
    finally:
        sys.path.remove(str(folder))


def plain_model(folder, count=None):
    """The same by numpy; ``count`` hears of every batch."""
    with np.load(folder / "kept.npz") as arrays:
        weights, bias = arrays["weights"], arrays["bias"]

    def logits(x):
        if count is not None:
            count.append(len(x))
        return x.reshape(len(x), -1) @ weights.T + bias

    given = Preprocessing(size=(8, 8), mode="L", crop="none", mean=(0.3,), std=(0.4,))
    return FunctionModel(id="python:plain", classes=10, function=logits, preprocessing=given)


def blend_amplitude(f0, f1, lam, inside):
    """The spectrum with phases of f0 and, in the window, amplitudes (1−λ)|f0| + λ|f1|."""
    a0, a1 = np.abs(f0), np.abs(f1)
    return np.where(inside, (1 - lam) * a0 + lam * a1, a0) * np.exp(1j * np.angle(f0))


def blend_phase(f0, f1, lam, inside):
    """The spectrum with amplitudes of f0 and, in the window, angles (1−λ)·arg f0 + λ·arg f1."""
    p0, p1 = np.angle(f0), np.angle(f1)
    return np.abs(f0) * np.exp(1j * np.where(inside, (1 - lam) * p0 + lam * p1, p0))
