"""Gradient ascent with steps of one size, and the bookkeeping both attacks share."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shiftbed.evaluate.attacks.balls import Ball, lengths
from shiftbed.evaluate.attacks.losses import cross_entropy
from shiftbed.evaluate.attacks.victim import Victim, take

__all__ = ["Ascent", "Track", "ascend", "finite"]

_DROP = 8
"""Fooled examples leave the batch once they are an eighth of it: every batch size costs its own
preparation of convolutions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ascent:
    """One run's outcome for N examples; tensors of N rows."""

    pixels: Tensor
    logits: Tensor
    loss: Tensor
    fooled: Tensor
    passes: Tensor
    when: Tensor
    """Steps taken when first fooled; −1 if never."""
    start_loss: Tensor
    first_loss: Tensor
    """After one step; NaN if not reached."""
    zero: Tensor
    """Whether the first gradient was 0."""
    not_finite: Tensor


@dataclass(kw_only=True, eq=False)
class Track:
    """What was seen of each example so far; rows are those of the whole batch."""

    y: Tensor
    pixels: Tensor
    """First fooling iterate; undefined where there is none."""
    logits: Tensor | None = None
    when: Tensor = field(init=False)
    passes: Tensor = field(init=False)
    loss: Tensor = field(init=False)
    start_loss: Tensor = field(init=False)
    first_loss: Tensor = field(init=False)
    zero: Tensor = field(init=False)
    not_finite: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.when = torch.full_like(self.y, -1)
        self.passes = torch.zeros_like(self.y)
        self.loss = torch.full(self.y.shape, torch.nan, device=self.y.device)
        self.start_loss, self.first_loss = self.loss.clone(), self.loss.clone()
        self.zero = torch.zeros_like(self.y, dtype=torch.bool)
        self.not_finite = self.zero.clone()

    def all(self, rows: Tensor) -> bool:
        """Whether nothing was dropped yet; rows are in order, so none need be looked up."""
        return len(rows) == len(self.y)

    def open(self, rows: Tensor) -> Tensor:
        """Which of ``rows`` are not fooled yet."""
        return (self.when if self.all(rows) else self.when[rows]) < 0

    def see(self, step: int, rows: Tensor, pixels: Tensor, logits: Tensor, loss: Tensor) -> Tensor:
        """Note which of ``rows`` are fooled now, and return that."""
        if self.logits is None:
            self.logits = torch.empty(len(self.y), logits.shape[1], device=logits.device)
        if step < 2:
            (self.first_loss if step else self.start_loss)[rows] = loss
        wrong = logits.argmax(1) != (self.y if self.all(rows) else self.y[rows])
        if not math.isfinite(float(loss.sum())):  # what is not a number fools no one
            whole = torch.isfinite(loss)
            self.not_finite[rows] |= ~whole
            wrong &= whole
        new = (wrong & self.open(rows)).nonzero().squeeze(1)
        if len(new):
            at = rows[new]
            self.when[at] = step
            self.pixels[at] = take(pixels, new)
            self.logits[at] = logits[new]
        return wrong

    def mark(self, rows: Tensor, gradient: Tensor, first: bool) -> None:
        """Count a pass; look at the first gradient."""
        if self.all(rows):
            self.passes += 1
        else:
            self.passes[rows] += 1
        if first:
            self.zero[rows] = lengths(gradient.abs()) == 0

    def remaining(self, rows: Tensor) -> Tensor | None:
        """Positions in ``rows`` of what is not fooled yet, if it is time to drop the others."""
        left = self.open(rows).nonzero().squeeze(1)
        if len(rows) - len(left) < max(1, len(rows) // _DROP):
            return None
        return left

    def ended(self, pixels: Tensor, logits: Tensor, wrong: Tensor, keep: str) -> Ascent:
        """The outcome, from the end points of all examples; the first fooling iterate stands in
        where the end point does not fool."""
        assert self.logits is not None
        fooled = wrong
        if keep == "worst":
            fooled = self.when >= 0
            earlier = (fooled & ~wrong).nonzero().squeeze(1)
            if len(earlier):
                pixels[earlier] = take(self.pixels, earlier)
                logits[earlier] = self.logits[earlier]
        return Ascent(
            pixels=pixels, logits=logits, loss=self.loss, fooled=fooled, passes=self.passes,
            when=self.when, start_loss=self.start_loss, first_loss=self.first_loss,
            zero=self.zero, not_finite=self.not_finite,
        )  # fmt: skip


def finite(gradient: Tensor, track: Track, rows: Tensor) -> Tensor:
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

    A pass costs a forward, a backward and four elementwise operations (ℓ∞). Call with gradients
    off.
    """
    track = Track(y=y, pixels=torch.empty_like(ball.x))
    rows = torch.arange(len(y), device=y.device)
    ends, end_wrong = torch.empty_like(ball.x), torch.ones_like(track.zero)
    delta = start
    pixels, move = ball.x + delta, torch.empty_like(delta)
    for count in range(steps + 1):
        with torch.set_grad_enabled(count < steps):
            logits = victim(pixels.requires_grad_(count < steps))
        loss, pull = cross_entropy(logits.detach(), y)
        wrong = track.see(count, rows, pixels.detach(), logits.detach(), loss)
        if count == steps or (early_stop and not bool(track.open(rows).any())):
            break
        gradient = finite(victim.pull_back(logits, pixels, pull), track, rows)
        track.mark(rows, gradient, first=count == 0)
        delta.add_(ball.direction(gradient, move), alpha=step)
        ball.project_(delta)
        if early_stop and (left := track.remaining(rows)) is not None:
            track.loss[rows] = loss
            rows, y, ball, delta = rows[left], y[left], ball.take(left), take(delta, left)
            pixels, move = torch.empty_like(delta), torch.empty_like(delta)
        torch.add(ball.x, delta, out=pixels)
    track.loss[rows] = loss
    end_logits = logits.new_empty(len(track.y), logits.shape[1])
    ends[rows], end_logits[rows], end_wrong[rows] = pixels.detach(), logits.detach(), wrong
    if early_stop:  # those dropped have their first fooling iterate
        end_wrong = end_wrong & (track.when < 0)
    return track.ended(ends, end_logits, end_wrong, keep)
