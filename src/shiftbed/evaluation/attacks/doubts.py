"""What speaks against a robust accuracy, counted while attacking (carlini2019, Section 3)."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Counts of images; add those of all batches before reading anything into them.

    >>> (Evidence(images=3, robust=1) + Evidence(images=2, robust=2)).robust
    3
    """

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
        counts = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__dataclass_fields__
            if name != "notes"
        }
        return Evidence(**counts, notes=tuple(dict.fromkeys(self.notes + other.notes)))


def doubts(evidence: Evidence) -> tuple[str, ...]:
    """Reasons to distrust the robust accuracy, a line each.

    Best effort: no line is no proof. Shares below 1 % (loss order: 5 %) are passed over.

    >>> doubts(Evidence(images=50, robust=40, zero_gradient=40))[0]
    'the gradient is 0 for 40 of 40 robust images: the attack could not move them'
    """
    return (*evidence.notes, *_lines(evidence))


def _lines(e: Evidence) -> Iterable[str]:
    if _many(e.zero_gradient, e.robust, 0.01):
        yield (
            f"the gradient is 0 for {e.zero_gradient} of {e.robust} robust images: "
            "the attack could not move them"
        )
    if e.not_finite:
        yield f"gradients or logits were not finite for {e.not_finite} of {e.images} images"
    if _many(e.still - e.zero_gradient, e.robust, 0.01):
        yield (
            f"the loss did not rise for {e.still} of {e.robust} robust images: "
            "the attack found no way up"
        )
    if _many(e.noise_wins, e.images, 0.05):
        yield (
            f"random noise has a higher loss than the attack for {e.noise_wins} of {e.images} "
            "images: gradients may be masked"
        )
    if _many(e.first_wins, e.images, 0.05):
        yield (
            f"one step has a higher loss than all of them for {e.first_wins} of {e.images} images: "
            "gradients may be masked, or steps too large"
        )
    if _many(e.late, e.images, 0.01):
        yield (
            f"{e.late} of {e.images} images were fooled only in the last tenth of the steps: "
            "more steps or restarts may fool more"
        )
    if _many(e.last_restart, e.images, 0.01):
        yield (
            f"{e.last_restart} of {e.images} images were fooled only by the last restart: "
            "more restarts may fool more"
        )


def _many(count: int, of: int, share: float) -> bool:
    return count > 0 and count >= share * of
