"""The Jacobian of the logits: exact, or by random projections (fridovich2022, Section 3; Hoffman
et al. 2019).

With J = ∂logits/∂x at a normalised image x, the measure is √(mean over images of ‖J‖²_F). The
paper estimates it by random projections, its released code takes all classes. For v uniform on the
sphere of radius √K in the space of K classes, E‖vᵀJ‖² = ‖J‖²_F: one backward pass per projection
instead of one per class.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.models import Model, TorchModel

Floats = NDArray[np.float64]


def exact_squares(
    model: Model,
    pixels: NDArray[np.float32],
    *,
    std: Sequence[float] | None = None,
    batch_size: int = 32,
) -> Floats:
    """(N,): ‖J‖²_F of each image (N, C, H, W in [0, 1]), with one backward pass per class.

    ``std`` of each channel is that of normalised images, by default the model's own.
    """

    def directions(some: slice, classes: int) -> NDArray[np.float32]:
        return np.eye(classes, dtype=np.float32)[None]

    return _squares(model, pixels, directions, batch_size, std)


def projected_squares(
    model: Model,
    pixels: NDArray[np.float32],
    *,
    projections: int = 3,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
    std: Sequence[float] | None = None,
    batch_size: int = 32,
) -> Floats:
    """(N,): unbiased estimates of ‖J‖²_F, the mean over random projections.

    An image has the projections of (seed, its number), whatever the batches are; ``numbers`` are
    by default the places in ``pixels``. Directions are normalised Gaussian draws times √K
    (Hoffman et al. 2019).
    """
    if projections < 1:
        raise InputError(f"projections must be at least 1, is {projections}")
    which = range(len(pixels)) if numbers is None else numbers

    def directions(some: slice, classes: int) -> NDArray[np.float32]:
        shape = (projections, classes)
        drawn = np.stack([np.random.default_rng((seed, i)).normal(size=shape) for i in which[some]])
        length = np.sqrt((drawn**2).sum(axis=2, keepdims=True))
        return np.asarray(drawn * (np.sqrt(classes) / length), dtype=np.float32)

    return _squares(model, pixels, directions, batch_size, std) / projections


def _squares(
    model: Model,
    pixels: NDArray[np.float32],
    directions: Callable[[slice, int], NDArray[np.float32]],
    batch_size: int,
    own: Sequence[float] | None = None,
) -> Floats:
    """(N,): Σⱼ ‖vⱼᵀJ‖² for the (N or 1, J, classes) directions of some of the images."""
    import torch

    torch_model = differentiable(model)
    found = [np.zeros(0)]
    for start in range(0, len(pixels), batch_size):
        some = slice(start, start + batch_size)
        x = torch_model.tensor(pixels[some]).detach().requires_grad_(True)
        logits = torch_model.module(x)
        v = torch.from_numpy(directions(some, logits.shape[1])).to(logits.device)
        std = torch.tensor(own or model.preprocessing.std, device=x.device, dtype=x.dtype)
        total = np.zeros(len(x))
        for j in range(v.shape[1]):
            keep = j < v.shape[1] - 1
            (gradient,) = torch.autograd.grad((logits * v[:, j]).sum(), x, retain_graph=keep)
            scaled = gradient * std.view(1, -1, 1, 1)  # of x normalised
            total += scaled.double().pow(2).sum(dim=(1, 2, 3)).cpu().numpy()
        found.append(total)
    return np.concatenate(found)


def differentiable(model: Model) -> TorchModel:
    """The model, refused if it has no gradients."""
    if not isinstance(model, TorchModel):
        raise InputError(
            f"{model.id} has no gradients (it is no torch module), so its Jacobian cannot be "
            "measured; the other probes can"
        )
    return model
