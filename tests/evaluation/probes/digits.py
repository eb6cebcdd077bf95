"""Digits and two linear models of them, one without gradients, as objects."""

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
