"""The Jacobian of the logits: exact, or by random projections (fridovich2022, Section 3; Hoffman
et al. 2019).

With J = ∂logits/∂x at a normalised image x, the measure is √(mean over images of ‖J‖²_F). For
v ~ N(0, I) over classes, E‖vᵀJ‖² = ‖J‖²_F: one backward pass per projection instead of one per
class.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluate.models import Model, TorchModel

if TYPE_CHECKING:
    import torch

__all__ = ["exact_squares", "projected_squares"]

Floats = NDArray[np.float64]


def exact_squares(model: Model, pixels: NDArray[np.float32], *, batch_size: int = 32) -> Floats:
    """(N,): ‖J‖²_F of each image (N, C, H, W in [0, 1]), with one backward pass per class."""
    torch_model = _differentiable(model)
    found = []
    for start in range(0, len(pixels), batch_size):
        x, logits = _forward(torch_model, pixels[start : start + batch_size])
        total = np.zeros(len(x))
        for k in range(logits.shape[1]):
            last = k == logits.shape[1] - 1
            total += _row_squares(torch_model, x, logits[:, k].sum(), keep=not last)
        found.append(total)
    return np.concatenate(found) if found else np.zeros(0)


def projected_squares(
    model: Model,
    pixels: NDArray[np.float32],
    *,
    projections: int = 3,
    seed: int = 0,
    first: int = 0,
    batch_size: int = 32,
) -> Floats:
    """(N,): unbiased estimates of ‖J‖²_F, the mean over random projections.

    Image i of the whole set (``first`` + its place here) has the projections of (seed, i), whatever
    the batches are.
    """
    import torch

    if projections < 1:
        raise InputError(f"projections must be at least 1, is {projections}")
    torch_model = _differentiable(model)
    found = []
    for start in range(0, len(pixels), batch_size):
        part = pixels[start : start + batch_size]
        x, logits = _forward(torch_model, part)
        directions = np.stack(
            [
                np.random.default_rng((seed, first + start + i)).normal(
                    size=(projections, logits.shape[1])
                )
                for i in range(len(part))
            ]
        ).astype(np.float32)
        v = torch.from_numpy(directions).to(logits.device)
        total = np.zeros(len(x))
        for j in range(projections):
            keep = j < projections - 1
            total += _row_squares(torch_model, x, (logits * v[:, j]).sum(), keep=keep)
        found.append(total / projections)
    return np.concatenate(found) if found else np.zeros(0)


def _differentiable(model: Model) -> TorchModel:
    if not isinstance(model, TorchModel):
        raise InputError(
            f"{model.id} has no gradients, so its Jacobian cannot be had; the other probes can"
        )
    return model


def _forward(
    model: TorchModel, pixels: NDArray[np.float32]
) -> "tuple[torch.Tensor, torch.Tensor]":
    x = model.tensor(pixels).detach().requires_grad_(True)
    return x, model.module(x)


def _row_squares(
    model: TorchModel, x: "torch.Tensor", score: "torch.Tensor", *, keep: bool
) -> Floats:
    """(N,): ‖∂score/∂x‖² with x normalised: a pixel's gradient times the channel's std."""
    import torch

    (gradient,) = torch.autograd.grad(score, x, retain_graph=keep)
    std = torch.tensor(model.preprocessing.std, device=x.device, dtype=x.dtype)
    scaled = gradient * std.view(1, -1, 1, 1)
    squares: Floats = scaled.double().pow(2).sum(dim=(1, 2, 3)).cpu().numpy()
    return squares
