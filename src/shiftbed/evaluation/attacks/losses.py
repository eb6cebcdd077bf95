"""What attacks raise: per example a loss and its gradient with respect to the logits.

The rest of the way to the pixels is automatic differentiation.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from shiftbed.errors import InputError


def cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The log odds against y, m = log Σ_{j≠y} exp z_j − z_y, and ∂m/∂z: (N,) and (N, classes).

    Cross-entropy is log(1 + exp m). It rises with m, and their gradients differ by a positive
    factor per example, so sign steps, unit steps and comparisons of losses are the same. But m
    does not saturate: where the model is sure (1 − p < 6e-8), float32 leaves of the gradient of
    the cross-entropy nothing that could be used.

    >>> loss, pull = cross_entropy(torch.tensor([[200.0, 0.0]]), torch.tensor([0]))
    >>> loss.tolist(), pull.tolist()
    ([-200.0], [[-1.0, 1.0]])
    """
    at = y.unsqueeze(1)
    loss = torch.logsumexp(logits.scatter(1, at, -torch.inf), 1) - logits.gather(1, at).squeeze(1)
    return loss, cross_entropy_pull(logits, y)


def cross_entropy_pull(logits: Tensor, y: Tensor) -> Tensor:
    """∂m/∂z alone: softmax over the other classes, and −1 at y."""
    at = y.unsqueeze(1)
    return torch.softmax(logits.scatter(1, at, -torch.inf), 1).scatter_(1, at, -1)


def logits_ratio(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Difference of logits ratio, (max_{j≠y} z_j − z_y) / (z_π1 − z_π3), z_π1 ≥ z_π2 ≥ …
    (croce2020, equation 6), and its gradient.

    Shifting or scaling all logits does not change it.

    >>> loss, _ = logits_ratio(torch.tensor([[4.0, 3.0, 0.0]]), torch.tensor([0]))
    >>> loss.tolist()
    [-0.25]
    """
    if logits.shape[1] < 3:
        raise InputError("the difference of logits ratio needs at least three classes; use ce")
    values, places = logits.topk(3, dim=1)
    first = places[:, 0] == y
    rival = torch.where(first, places[:, 1], places[:, 0]).unsqueeze(1)
    at = y.unsqueeze(1)
    over = 1 / (values[:, :1] - values[:, 2:] + 1e-12)
    difference = logits.gather(1, rival) - logits.gather(1, at)
    loss = difference * over
    pull = torch.zeros_like(logits)
    pull.scatter_add_(1, rival, over).scatter_add_(1, at, -over)
    fall = loss * over
    pull.scatter_add_(1, places[:, :1], -fall).scatter_add_(1, places[:, 2:], fall)
    return loss.squeeze(1), pull


LOSSES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "ce": cross_entropy,
    "dlr": logits_ratio,
}
