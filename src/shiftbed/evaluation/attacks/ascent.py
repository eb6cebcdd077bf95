"""Gradient ascent with steps of one size, and what both attacks share: losses and bookkeeping.

A loss is given per example with its gradient with respect to the logits; the rest of the way to the
pixels is automatic differentiation.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.attacks.balls import Ball
from shiftbed.evaluation.attacks.victim import Victim, take

_DROP = 8
"""Fooled examples leave the batch once they are an eighth of it: every batch size costs its own
preparation of convolutions."""


class Ascent:
    """What one run saw of each example so far, and in the end its outcome; tensors of N rows.

    Until the end, ``pixels`` and ``logits`` are those of the first fooling iterate, undefined where
    there is none.
    """

    def __init__(self, y: Tensor, pixels: Tensor) -> None:
        self.y, self.pixels = y, pixels
        self.logits = pixels.new_empty(0)
        self.when = torch.full_like(y, -1)
        """Steps taken when first fooled; −1 if never."""
        self.passes = torch.zeros_like(y)
        self.loss = torch.full(y.shape, torch.nan, device=y.device)
        self.start_loss = self.loss.clone()
        self.first_loss = self.loss.clone()
        """After one step; NaN if not reached."""
        self.zero = torch.zeros_like(y, dtype=torch.bool)
        """Whether the first gradient was 0."""
        self.not_finite, self.fooled, self.open = self.zero.clone(), self.zero, ~self.zero
        """Open: never fooled so far."""

    def opened(self, rows: Tensor) -> Tensor:
        """Which of ``rows`` are not fooled yet; before any is dropped, nothing is looked up."""
        return self.open if len(rows) == len(self.y) else self.open[rows]

    def see(self, step: int, rows: Tensor, y: Tensor, pixels: Tensor, logits: Tensor) -> Tensor:
        """Note which of ``rows`` are fooled after so many steps, and return that."""
        wrong = logits.argmax(1) != y
        fresh = wrong & self.opened(rows)
        if bool(fresh.any()):
            whole = ~torch.isnan(logits).any(1)  # what is no number fools no one
            new = (fresh & whole).nonzero().squeeze(1)
            self.not_finite[rows] |= ~whole
            at = rows[new]
            if not len(self.logits):
                self.logits = logits.new_empty(len(self.y), logits.shape[1])
            self.when[at], self.open[at] = step, False
            self.pixels[at] = take(pixels, new)
            self.logits[at] = logits[new]
            wrong &= whole
        return wrong

    def measure(self, step: int, rows: Tensor, loss: Tensor) -> None:
        """Keep the loss at the start, after one step, and now."""
        if step < 2:
            (self.first_loss if step else self.start_loss)[rows] = loss
        self.loss[rows] = loss

    def remaining(self, rows: Tensor) -> Tensor | None:
        """Positions in ``rows`` of what is not fooled yet, if it is time to drop the others."""
        left = self.opened(rows).nonzero().squeeze(1)
        return None if len(rows) - len(left) < max(1, len(rows) // _DROP) else left

    def ended(self, pixels: Tensor, logits: Tensor, wrong: Tensor, keep: str) -> "Ascent":
        """The outcome, from the end points of all examples; the first fooling iterate stands in
        where the end point does not fool."""
        self.fooled = wrong
        if keep == "worst":
            self.fooled = ~self.open
            earlier = (self.fooled & ~wrong).nonzero().squeeze(1)
            if len(earlier):
                pixels[earlier] = take(self.pixels, earlier)
                logits[earlier] = self.logits[earlier]
        self.pixels, self.logits = pixels, logits
        return self


def finite(gradient: Tensor, track: Ascent, rows: Tensor) -> Tensor:
    """The gradient, what is not finite in it as 0."""
    if math.isfinite(float(gradient.sum())):
        return gradient
    bad = ~torch.isfinite(gradient).flatten(1).all(1)
    track.not_finite[rows] |= bad
    return torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)


def ascend(
    victim: Victim,
    ball: Ball,
    y: Tensor,
    start: Tensor,
    *,
    step: float,
    steps: int,
    early_stop: bool,
    keep: str,
) -> Ascent:
    """δ ← P(δ + step · direction), ``steps`` times; every iterate is looked at, the last as well.

    Besides forward and backward, a step makes five passes over the pixels (ℓ∞). Call with
    gradients off.
    """
    track = Ascent(y, torch.empty_like(ball.x))
    rows = torch.arange(len(y), device=y.device)
    ends, end_wrong = torch.empty_like(ball.x), torch.ones_like(track.zero)
    delta, other = start, torch.empty_like(start)
    pixels = ball.x + delta
    for count in range(steps + 1):
        with torch.set_grad_enabled(count < steps):
            logits = victim(pixels.requires_grad_())
        seen = logits.detach()
        wrong = track.see(count, rows, y, pixels.detach(), seen)
        stopped = count == steps or (early_stop and not bool(track.opened(rows).any()))
        left = track.remaining(rows) if early_stop and not stopped else None
        if count < 2 or stopped or left is not None:
            track.measure(count, rows, cross_entropy(seen, y)[0])
            track.passes[rows] = count + (left is not None)
        if stopped:
            break
        gradient = victim.pull_back(logits, pixels, cross_entropy_pull(seen, y))
        gradient = finite(gradient, track, rows)
        if count == 0:
            track.zero = gradient.abs().amax(dim=(1, 2, 3)) == 0
        delta, other = ball.moved(delta, gradient, step, other), delta
        ball.project_(delta)
        if left is not None:
            rows, y, ball, delta = rows[left], y[left], ball.take(left), take(delta, left)
            pixels, other = torch.empty_like(delta), torch.empty_like(delta)
        torch.add(ball.x, delta, out=pixels)
    end_logits = seen.new_empty(len(track.y), seen.shape[1])
    ends[rows], end_logits[rows], end_wrong[rows] = pixels.detach(), seen, wrong
    if early_stop:  # their first fooling iterate, whether dropped or not
        end_wrong &= track.open
    return track.ended(ends, end_logits, end_wrong, keep)


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


Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
LOSSES: dict[str, Loss] = {"ce": cross_entropy, "dlr": logits_ratio}
