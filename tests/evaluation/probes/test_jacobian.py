"""Jacobians against torch.func, and the projections' lack of bias."""

import numpy as np
import pytest
import torch
from torch import nn

from shiftbed.errors import InputError
from shiftbed.evaluation.models import FunctionModel
from shiftbed.evaluation.models.torch_model import seeded, wrap
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.jacobian import exact_squares, projected_squares

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def model():
    with seeded(0):
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 5)
        )
    given = Preprocessing(size=(6, 6), mean=MEAN, std=STD)
    return wrap(network, id="torch:tiny", preprocessing=given, facts={}, channels_last=False)


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).random((5, 3, 6, 6), dtype=np.float32)


def by_torch_func(model, pixels):
    """‖∂logits/∂x‖²_F with x the normalised image that the bare network takes."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))

    def logits(x):
        return model.module((x * std + mean)[None])[0]

    squares = []
    for one in torch.from_numpy(pixels):
        jacobian = torch.func.jacrev(logits)((one - mean) / std)
        squares.append(float((jacobian.double() ** 2).sum()))
    return np.array(squares)


def test_exact_is_torch_func_jacrev(model, pixels):
    assert exact_squares(model, pixels, batch_size=2) == pytest.approx(by_torch_func(model, pixels))


def test_projection_is_unbiased(model, pixels):
    """Mean over 2,000 draws within 2 standard errors of the exact value."""
    one = np.repeat(pixels[:1], 2000, axis=0)
    drawn = projected_squares(model, one, projections=1, batch_size=500)
    error = drawn.std(ddof=1) / np.sqrt(len(drawn))
    exact = exact_squares(model, pixels[:1])[0]
    assert abs(drawn.mean() - exact) <= 2 * error
    assert error < 0.1 * exact
    many = projected_squares(model, one[:500], projections=8, batch_size=500)
    assert many.std() < 0.6 * drawn.std()


def test_projections_follow_the_image_not_the_batch(model, pixels):
    whole = projected_squares(model, pixels, projections=2, batch_size=5)
    parts = [
        projected_squares(model, pixels[i : i + 1], projections=2, numbers=[i]) for i in range(5)
    ]
    assert np.concatenate(parts) == pytest.approx(whole, rel=1e-5)
    assert (projected_squares(model, pixels, projections=2, seed=1) != whole).all()


def test_what_has_no_jacobian(model, pixels):
    plain = FunctionModel(
        id="python:mean",
        classes=3,
        function=lambda x: x.mean(axis=(2, 3)),
        preprocessing=Preprocessing(size=(6, 6)),
    )
    for measure in (exact_squares, projected_squares):
        with pytest.raises(InputError, match="no gradients"):
            measure(plain, pixels)
    with pytest.raises(InputError, match="projections"):
        projected_squares(model, pixels, projections=0)
    assert len(exact_squares(model, pixels[:0])) == 0
