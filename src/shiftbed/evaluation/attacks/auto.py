"""Auto-PGD: steps that halve by themselves (croce2020, Section 3 and Algorithm 1)."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from shiftbed.evaluation.attacks.ascent import LOSSES, Ascent, Loss, finite
from shiftbed.evaluation.attacks.balls import Ball
from shiftbed.evaluation.attacks.victim import Victim, take

MOMENTUM = 0.75
"""α of equation 2: how much of a step is new."""


def check_points(steps: int) -> tuple[int, ...]:
    """Steps after which progress is judged, w_j = ⌈p_j · steps⌉ with p_0 = 0, p_1 = 0.22,
    p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06) (Section 3.1).

    >>> check_points(100)
    (22, 41, 57, 70, 80, 87, 93, 99)
    """
    found, last, now = [], 0, 22  # in hundredths: whole numbers round as meant
    while now <= 100:
        found.append(-(-now * steps // 100))
        last, now = now, now + max(now - last - 3, 6)
    return tuple(sorted(set(found)))


@dataclass(kw_only=True, eq=False)
class State:
    """Per example: where it is, where it was, the best so far, and the step size."""

    rows: Tensor
    y: Tensor
    delta: Tensor
    before: Tensor
    gradient: Tensor
    loss: Tensor
    best: Tensor
    best_gradient: Tensor
    best_loss: Tensor
    best_logits: Tensor
    checked_loss: Tensor
    """Best loss at the last check point."""
    step: Tensor
    halved: Tensor
    """Whether the step was halved at the last check point."""
    rises: Tensor
    """Steps since the last check point that raised the loss."""

    def take(self, rows: Tensor) -> "State":
        return State(**{one.name: take(getattr(self, one.name), rows) for one in fields(self)})


def ascend(
    victim: Victim,
    ball: Ball,
    y: Tensor,
    start: Tensor,
    *,
    loss: str,
    steps: int,
    rho: float,
    early_stop: bool,
) -> Ascent:
    """``steps`` steps with momentum from η = 2 ε; call with gradients off.

    The outcome of an example is its iterate of highest loss; where that does not fool but another
    did, the first that did.
    """
    measure = LOSSES[loss]
    track = Ascent(y, torch.empty_like(ball.x))
    state = _begin(victim, ball, y, start, measure, track)
    pixels, move = torch.empty_like(start), torch.empty_like(start)
    checks, last_check = check_points(steps), 0
    ends, end_logits = torch.empty_like(ball.x), state.best_logits.clone()

    def note() -> None:
        """Best iterates, written when examples leave the batch."""
        ends[state.rows] = ball.x + state.best
        end_logits[state.rows] = state.best_logits
        track.loss[state.rows] = state.best_loss

    for count in range(1, steps + 1):
        _step(state, ball, move, first=count == 1)
        torch.add(ball.x, state.delta, out=pixels)
        going_on = count < steps
        with torch.set_grad_enabled(going_on):
            logits = victim(pixels.requires_grad_())
        now, pull = measure(logits.detach(), state.y)
        track.see(count, state.rows, state.y, pixels.detach(), logits.detach())
        if count == 1:
            track.measure(count, state.rows, now)
        stopped = early_stop and not bool(track.opened(state.rows).any())
        if going_on and not stopped:
            state.gradient = finite(victim.pull_back(logits, pixels, pull), track, state.rows)
        track.passes[state.rows] = count + (going_on and not stopped)
        _compare(state, now, logits.detach())
        if stopped or not going_on:
            break
        if count in checks:
            _check(state, rho * (count - last_check))
            last_check = count
        if early_stop and (left := track.remaining(state.rows)) is not None:
            note()
            state, ball = state.take(left), ball.take(left)
            pixels, move = torch.empty_like(state.delta), torch.empty_like(state.delta)
    note()
    wrong = (end_logits.argmax(1) != track.y) & torch.isfinite(track.loss)
    return track.ended(ends, end_logits, wrong, "worst")


def _begin(
    victim: Victim, ball: Ball, y: Tensor, start: Tensor, measure: Loss, track: Ascent
) -> State:
    rows = torch.arange(len(y), device=y.device)
    pixels = (ball.x + start).requires_grad_()
    with torch.enable_grad():
        logits = victim(pixels)
    loss, pull = measure(logits.detach(), y)
    track.see(0, rows, y, pixels.detach(), logits.detach())
    track.measure(0, rows, loss)
    gradient = finite(victim.pull_back(logits, pixels, pull), track, rows)
    track.zero = gradient.abs().amax(dim=(1, 2, 3)) == 0
    return State(
        rows=rows, y=y, delta=start, before=start.clone(), gradient=gradient, loss=loss,
        best=start.clone(), best_gradient=gradient.clone(), best_loss=loss.clone(),
        best_logits=logits.detach().clone(), checked_loss=loss.clone(),
        step=torch.full_like(loss, 2 * ball.eps),
        halved=torch.zeros_like(loss, dtype=torch.bool), rises=torch.zeros_like(loss),
    )  # fmt: skip


def _step(state: State, ball: Ball, move: Tensor, first: bool) -> None:
    """z = P(x + η d); x ← P(x + α (z − x) + (1 − α)(x − x_before)); the first step is z itself.

    The new point is written over the one before, and the two change places.
    """
    ball.project_(ball.moved(state.delta, state.gradient, state.step, move))
    if first:
        state.before.copy_(state.delta)
        state.delta.copy_(move)
        return
    state.before.mul_(MOMENTUM - 1).add_(move, alpha=MOMENTUM)
    state.before.add_(state.delta, alpha=2 * (1 - MOMENTUM))
    ball.project_(state.before)
    state.delta, state.before = state.before, state.delta


def _compare(state: State, now: Tensor, logits: Tensor) -> None:
    """Count rises, and remember the best point with its gradient."""
    state.rises += now > state.loss
    state.loss = now
    better = now > state.best_loss
    where = better.view(-1, 1, 1, 1)
    torch.where(where, state.delta, state.best, out=state.best)
    torch.where(where, state.gradient, state.best_gradient, out=state.best_gradient)
    state.best_logits = torch.where(better.unsqueeze(1), logits, state.best_logits)
    state.best_loss = torch.where(better, now, state.best_loss)


def _check(state: State, wanted: float) -> None:
    """Halve the step and go back to the best point if (1) the loss rose too rarely, or (2) the
    step was not halved last time and the best loss is still the same."""
    stalled = ~state.halved & (state.best_loss <= state.checked_loss)
    halve = (state.rises < wanted) | stalled
    state.step = torch.where(halve, state.step / 2, state.step)
    back = halve.view(-1, 1, 1, 1)
    torch.where(back, state.best, state.delta, out=state.delta)
    state.gradient = torch.where(back, state.best_gradient, state.gradient)
    state.loss = torch.where(halve, state.best_loss, state.loss)
    state.halved, state.checked_loss = halve, state.best_loss.clone()
    state.rises = torch.zeros_like(state.rises)
