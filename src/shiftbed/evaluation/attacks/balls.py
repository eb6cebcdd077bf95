"""ε-balls around images: starts, steps and projections, in place.

The perturbation δ is kept beside the image and not added to it: at ε = 0.001 in ℓ2 a step changes
a pixel by less than float32 resolves near 1.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.evaluation.attacks.victim import take


@dataclass(frozen=True, kw_only=True, eq=False)
class Ball:
    """{x + δ : ‖δ‖ ≤ ε}, and 0 ≤ x + δ ≤ 1 if clamped, for every x of a batch."""

    x: Tensor
    norm: str
    eps: float
    low: Tensor | None
    """Smallest δ allowed per pixel; None where pixels are not clamped."""
    high: Tensor | None

    def take(self, rows: Tensor) -> "Ball":
        low = None if self.low is None else take(self.low, rows)
        high = None if self.high is None else take(self.high, rows)
        return replace(self, x=take(self.x, rows), low=low, high=high)

    def project_(self, delta: Tensor) -> Tensor:
        """Into the ball, then the box; the box contains δ = 0, so it only shortens δ."""
        if self.norm == "l2":
            delta.mul_(_spread((self.eps / lengths(delta)).clamp_(max=1)))  # 1 where δ = 0
        elif self.low is None:
            delta.clamp_(-self.eps, self.eps)
        if self.low is not None:
            torch.clamp(delta, self.low, self.high, out=delta)
        return delta

    def moved(self, delta: Tensor, gradient: Tensor, step: float | Tensor, out: Tensor) -> Tensor:
        """δ + step · d, with d the steepest ascent of length 1 in the norm: the sign, or g/‖g‖₂;
        0 where g is 0. ``step`` is one number or (N,)."""
        if self.norm == "linf":
            torch.sign(gradient, out=out)
            if isinstance(step, float):
                return torch.add(delta, out, alpha=step, out=out)
            return torch.addcmul(delta, out, _spread(step), out=out)
        length = lengths(gradient)
        if float(length.min()) < 1e-15:  # squares of what is left underflow
            largest = gradient.abs().amax(dim=(1, 2, 3))
            gradient = gradient / _spread(torch.where(largest > 0, largest, 1))
            length = lengths(gradient).clamp_(min=1e-30)
        return torch.addcmul(delta, gradient, _spread(step / length), out=out)


def ball_around(x: Tensor, *, norm: str, eps: float, clamp: bool) -> Ball:
    """
    >>> ball = ball_around(torch.full((1, 1, 1, 2), 0.9), norm="linf", eps=0.25, clamp=True)
    >>> ball.project_(torch.tensor([[[[0.5, -0.5]]]])).flatten().tolist()
    [0.10000002384185791, -0.25]
    """
    low = high = None
    if clamp:
        bound = eps if norm == "linf" else 1.0
        low, high = x.neg().clamp_(min=-bound), x.neg().add_(1).clamp_(max=bound)
    return Ball(x=x, norm=norm, eps=eps, low=low, high=high)


def lengths(values: Tensor) -> Tensor:
    """ℓ2 norms of (N, C, H, W), as (N,)."""
    if not values.is_contiguous():
        values = values.permute(0, 2, 3, 1)
    found: Tensor = torch.linalg.vector_norm(values.flatten(1), dim=1)
    return found


def _spread(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def draw_starts(
    ids: Sequence[str], *, norm: str, eps: float, shape: Sequence[int], seed: int, stream: str
) -> NDArray[np.float32]:
    """Perturbations (N, C, H, W) uniform in the ball, each from (seed, stream, id) alone.

    ℓ2: a Gaussian direction, at radius ε u^(1/d) with u uniform.
    """
    made = np.empty((len(ids), *shape), dtype=np.float32)
    size = int(np.prod(shape))
    for one, example in zip(made, ids, strict=True):
        key = hashlib.blake2b(f"{seed}\0{stream}\0{example}".encode(), digest_size=16).digest()
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
        flat = one.reshape(-1)
        if norm == "linf":
            rng.random(out=flat, dtype=np.float32)
            flat *= 2 * eps
            flat -= eps
        else:
            rng.standard_normal(out=flat, dtype=np.float32)
            flat *= eps * rng.random() ** (1 / size) / np.linalg.norm(flat)
    return made
