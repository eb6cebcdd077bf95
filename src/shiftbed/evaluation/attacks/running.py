"""An attack on a batch: clean pass, restarts, and diagnostics of the outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.attacks import auto
from shiftbed.evaluation.attacks.ascent import Ascent, ascend
from shiftbed.evaluation.attacks.attack import APGD, FGSM, PGD, Attack, Attacked
from shiftbed.evaluation.attacks.balls import Ball, ball_around, draw_starts
from shiftbed.evaluation.attacks.victim import Victim, check_labels, open_images, open_victim, take


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Counts of images; add those of all batches before reading anything into them."""

    images: int = 0
    """Attacked."""
    robust: int = 0
    """Of these never fooled; the counts below with ``of the robust`` are parts of it."""
    zero_gradient: int = 0
    """Of the robust: the gradient at the start was 0 everywhere."""
    still: int = 0
    """Of the robust: the loss did not rise."""
    not_finite: int = 0
    """A gradient or a logit was not finite."""
    noise_wins: int = 0
    """The random start had a higher loss than the end."""
    first_wins: int = 0
    """The first step had a higher loss than the end."""
    late: int = 0
    """First fooled in the last tenth of the last run's steps."""
    last_restart: int = 0
    """Fooled by the last of several restarts only."""
    notes: tuple[str, ...] = ()
    """What is known of the model or the attack beforehand."""

    def __add__(self, other: "Evidence") -> "Evidence":
        both = {name: getattr(self, name) + getattr(other, name) for name in vars(self)}
        return Evidence(**{**both, "notes": tuple(dict.fromkeys(both["notes"]))})


def run(
    attack: Attack,
    model: Any,
    images: Any,
    labels: Any,
    ids: Sequence[str] | None,
    *,
    batch_size: int | None = None,
) -> Attacked:
    """Attack images in batches and put the outcomes together."""
    x, listed = open_images(images, ids)
    if labels is None and attack.target != "own":
        raise InputError("labels are needed unless the model's own predictions are attacked")
    classes = None if labels is None else check_labels(labels, len(x))
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}")
    victim = open_victim(model, images, x)
    size = batch_size or len(x)
    with torch.inference_mode(False), torch.no_grad():
        parts = [
            _batch(attack, victim, x[at : at + size],
                   None if classes is None else classes[at : at + size], listed[at : at + size])
            for at in range(0, len(x), size)
        ]  # fmt: skip
    return _together(attack, victim, parts)


@dataclass(kw_only=True, eq=False)
class _Batch:
    pixels: Tensor
    logits: Tensor
    clean: Tensor
    fooled: Tensor
    passes: Tensor
    evidence: Evidence


def _batch(
    attack: Attack,
    victim: Victim,
    images: NDArray[np.float32],
    classes: NDArray[np.int64] | None,
    ids: Sequence[str],
) -> _Batch:
    x = victim.tensor(images)
    clean = victim(x)
    if not bool(torch.isfinite(clean).any(1).all()):
        raise InputError(f"{victim.name} has logits that are not numbers for images as they are")
    if attack.target == "own" or classes is None:
        y = clean.argmax(1)
    elif classes.max() < clean.shape[1]:
        y = torch.from_numpy(classes).to(clean.device)
    else:
        known = f"the {clean.shape[1]} classes of the model"
        raise InputError(f"label {classes.max()} is not among {known}")
    wrong = clean.argmax(1) != y
    whole = ball_around(x, norm=attack.norm, eps=attack.eps, clamp=attack.clamp)
    part = _Batch(
        pixels=x.clone(), logits=clean.clone(), clean=clean, fooled=wrong.clone(),
        passes=torch.zeros_like(y), evidence=Evidence(),
    )  # fmt: skip
    rows = torch.arange(len(y), device=y.device)
    if attack.skips_wrong or attack.early_stop:
        rows = rows[~wrong]
    seen: list[tuple[Tensor, Ascent]] = []
    best = torch.full_like(clean[:, 0], -torch.inf)
    for restart in range(attack.restarts):
        if not len(rows):
            break
        ball = whole if len(rows) == len(y) else whole.take(rows)
        start = _start(attack, victim, ball, [ids[i] for i in rows.tolist()], restart)
        found = _ascend(attack, victim, ball, y[rows], start)
        seen.append((rows, found))
        _write(attack, part, rows, found, best, wrong)
        rows = rows[~part.fooled[rows]]
    part.evidence = _evidence(attack, part, seen, wrong)
    return part


def _ascend(attack: Attack, victim: Victim, ball: Ball, y: Tensor, start: Tensor) -> Ascent:
    """One run from perturbations ``start``, against classes ``y``."""
    if isinstance(attack, APGD):
        return auto.ascend(
            victim, ball, y, start,
            loss=attack.loss, steps=attack.steps, rho=attack.rho, early_stop=attack.early_stop,
        )  # fmt: skip
    assert isinstance(attack, PGD | FGSM)
    return ascend(
        victim, ball, y, start, step=attack.step_size, steps=_steps(attack),
        early_stop=attack.early_stop, keep=attack.keep,
    )  # fmt: skip


def _steps(attack: Attack) -> int:
    return attack.steps if isinstance(attack, PGD | APGD) else 1


def _start(attack: Attack, victim: Victim, ball: Ball, ids: Sequence[str], restart: int) -> Tensor:
    if not attack.random_start:
        return torch.zeros_like(ball.x)
    drawn = draw_starts(
        ids, norm=attack.norm, eps=attack.eps, shape=ball.x.shape[1:], seed=attack.seed,
        stream=f"{attack.family} {restart}",
    )  # fmt: skip
    return ball.project_(victim.laid_out(torch.from_numpy(drawn).to(victim.device)))


def _write(
    attack: Attack, part: _Batch, rows: Tensor, found: Ascent, best: Tensor, wrong: Tensor
) -> None:
    """Take over what fools, or has a higher loss than the runs before; an image misclassified as
    it is stays as it is if no iterate is."""
    part.passes[rows] += found.passes
    better = found.fooled | (found.loss > best[rows]) | torch.isinf(best[rows])
    if attack.keep == "worst":
        better &= found.fooled | ~wrong[rows]
    taken = better.nonzero().squeeze(1)
    at = rows[taken]
    part.pixels[at] = take(found.pixels, taken)
    part.logits[at] = found.logits[taken]
    best[at] = found.loss[taken]
    part.fooled[at] = found.fooled[taken]


def _evidence(
    attack: Attack, part: _Batch, seen: Sequence[tuple[Tensor, Ascent]], wrong: Tensor
) -> Evidence:
    """Counts over the images attacked, from the run that each saw last."""
    if not seen:
        return Evidence()
    first_rows, first = seen[0]
    robust = ~part.fooled[first_rows]
    one_step = isinstance(attack, FGSM)
    steps = _steps(attack)
    rise = first.loss - first.start_loss
    tiny = 1e-6 * (1 + first.start_loss.abs())
    late = last = 0
    if len(seen) > 1 and len(seen) == attack.restarts:
        last = int(seen[-1][1].fooled.sum())
    if steps >= 10 and len(seen) == 1:
        late = int(((first.when > 0.9 * steps) & ~wrong[first_rows]).sum())
    return Evidence(
        images=len(first_rows),
        robust=int(robust.sum()),
        zero_gradient=int((first.zero & robust).sum()),
        still=int(((rise <= tiny) & robust).sum()),
        not_finite=int(first.not_finite.sum()),
        noise_wins=int((rise < -tiny).sum()) if attack.random_start else 0,
        first_wins=0 if one_step else int((first.loss < first.first_loss - tiny).sum()),
        late=late,
        last_restart=last,
    )


def _together(attack: Attack, victim: Victim, parts: Sequence[_Batch]) -> Attacked:
    notes = victim.notes
    if isinstance(attack, FGSM):
        notes += ("one step only: the robust accuracy is an upper bound that PGD usually lowers",)
    evidence = sum((part.evidence for part in parts), Evidence(notes=notes))

    def joined(name: str) -> NDArray[Any]:
        arrays = [getattr(part, name).cpu().numpy() for part in parts]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    return Attacked(
        pixels=joined("pixels"), logits=joined("logits"), clean_logits=joined("clean"),
        fooled=joined("fooled"), passes=joined("passes"), evidence=evidence,
        warnings=diagnose(evidence),
    )  # fmt: skip


def diagnose(evidence: Evidence) -> tuple[str, ...]:
    """Diagnostics of an attack (carlini2019, Section 3): why the robust accuracy may be too high.

    None found does not prove that it is right. Shares below 1 % (loss order: 5 %) are passed over.

    >>> diagnose(Evidence(images=50, robust=40, zero_gradient=40))[0]
    'the gradient is 0 for 40 of 40 robust images: the attack could not move them'
    """
    e = evidence
    still = e.still if _many(e.still - e.zero_gradient, e.robust, 0.01) else 0
    return e.notes + tuple(
        text.format(count, of)
        for count, of, share, text in (
            (e.zero_gradient, e.robust, 0.01, "the gradient is 0 for {} of {} robust images: "
             "the attack could not move them"),
            (e.not_finite, e.images, 0, "gradients or logits were not finite for {} of {} images"),
            (still, e.robust, 0, "the loss did not rise for {} of {} robust images: "
             "the attack found no way up"),
            (e.noise_wins, e.images, 0.05, "random noise has a higher loss than the attack for {} "
             "of {} images: gradients may be masked"),
            (e.first_wins, e.images, 0.05, "one step has a higher loss than all of them for {} of "
             "{} images: gradients may be masked, or steps too large"),
            (e.late, e.images, 0.01, "{} of {} images were fooled only in the last tenth of the "
             "steps: more steps or restarts may fool more"),
            (e.last_restart, e.images, 0.01, "{} of {} images were fooled only by the last "
             "restart: more restarts may fool more"),
        )
        if _many(count, of, share)
    )  # fmt: skip


def _many(count: int, of: int, share: float) -> bool:
    return count > 0 and count >= share * of
