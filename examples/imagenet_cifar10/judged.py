"""Every checkpoint's ρ on the test images and on images drawn again: what intervals are made of.

Two things make a figure uncertain: the seeds of the runs, and which test images there happen to be.
The images are drawn again with replacement (an image and its corrupted copy together), the line is
fitted again through the same networks, and every figure is computed again; that spread is added to
the spread over seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

__all__ = ["Answers", "Figure", "figure", "rho", "verdict"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
DRAWS = 300
MARGIN = 1.0
"""Points: effective robustness of more than one is high (Section 1)."""
HOLDS, NOT, OPEN = "holds", "does not hold", "inconclusive"


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """Who was right: (models, images) ID and OOD, of the judged and of the line's networks."""

    id: Bools
    ood: Bools
    line_id: Bools
    line_ood: Bools
    paired: bool
    """Whether OOD image i is ID image i, changed."""

    def draws(self, many: int = DRAWS, seed: int = 0) -> list[tuple[Floats, Floats]]:
        """How often each image is drawn, ID and OOD."""
        rng, found = np.random.default_rng(seed), []
        for _ in range(many):
            sizes = (self.id.shape[1], self.ood.shape[1])
            one = rng.multinomial(sizes[0], np.full(sizes[0], 1 / sizes[0])).astype(float)
            two = rng.multinomial(sizes[1], np.full(sizes[1], 1 / sizes[1])).astype(float)
            found.append((one, one if self.paired else two))
        return found

    def once(self) -> tuple[Floats, Floats]:
        """Each image once."""
        return np.ones(self.id.shape[1]), np.ones(self.ood.shape[1])


def rho(answers: Answers, counts: tuple[Floats, Floats]) -> Floats:
    """ρ of every judged model in points, by least squares on the logit scale."""
    x, y = _accuracy(answers.id, counts[0]), _accuracy(answers.ood, counts[1])
    line_x, line_y = _accuracy(answers.line_id, counts[0]), _accuracy(answers.line_ood, counts[1])
    slope, intercept = np.polyfit(logit(line_x), logit(line_y), 1)
    return np.asarray(100 * (y - expit(slope * logit(x) + intercept)))


def _accuracy(right: Bools, counts: Floats) -> Floats:
    """Share of right answers, kept off 0 and 1 by half an image."""
    n = counts.sum()
    return np.asarray(np.clip(right @ counts / n, 0.5 / n, 1 - 0.5 / n))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A mean over runs, or a difference of two, with its 95 % interval."""

    value: float
    low: float
    high: float
    n: tuple[int, ...]


Sides = list[Floats]
"""Values of the runs of one kind, or of two kinds whose difference is meant."""


def figure(sides: Callable[[tuple[Floats, Floats]], Sides], answers: Answers) -> Figure | None:
    """The figure with its interval; None where a kind has fewer than two runs.

    ± √((t·s)² + (1.96·b)²): s the error over seeds (Welch), b the spread over drawn images.
    """
    own = sides(answers.once())
    if min(len(side) for side in own) < 2:
        return None
    again = [_difference(sides(counts)) for counts in answers.draws()]
    half = float(np.hypot(_seeds(own), 1.96 * np.std(again, ddof=1)))
    value = _difference(own)
    n = tuple(len(side) for side in own)
    return Figure(value=value, low=value - half, high=value + half, n=n)


def of_images(sides: Callable[[tuple[Floats, Floats]], Sides], answers: Answers) -> Figure:
    """The same for models that no seed changes: the interval is over images alone."""
    value = _difference(sides(answers.once()))
    half = 1.96 * float(np.std([_difference(sides(one)) for one in answers.draws()], ddof=1))
    return Figure(value=value, low=value - half, high=value + half, n=(1,))


def _difference(sides: Sides) -> float:
    return float(sides[0].mean() - (sides[1].mean() if len(sides) > 1 else 0.0))


def _seeds(sides: Sides) -> float:
    """Half the 95 % t interval of a mean, or of a difference of means with Welch's degrees."""
    parts = [float(side.var(ddof=1)) / len(side) for side in sides]
    each = [part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True)]
    if sum(each) == 0:
        return 0.0
    return float(stdtrit(sum(parts) ** 2 / sum(each), 0.975)) * sum(parts) ** 0.5


def verdict(claim: str, found: Figure | None) -> str:
    """What the interval says of a claim: ``above`` 0, ``within`` a point, ``no more`` than one.

    >>> verdict("above", Figure(value=2.0, low=0.5, high=3.5, n=(3,)))
    'holds'
    >>> verdict("no more", Figure(value=0.0, low=-2.0, high=1.5, n=(3,)))
    'inconclusive'
    """
    if found is None:
        return f"{OPEN} (fewer than two runs)"
    yes, no = {
        "above": (found.low > 0, found.high < 0),
        "within": (found.low > -MARGIN and found.high < MARGIN,
                   found.low > MARGIN or found.high < -MARGIN),
        "no more": (found.high < MARGIN, found.low > MARGIN),
    }[claim]  # fmt: skip
    return HOLDS if yes else NOT if no else OPEN


def row(what: str, where: str, claim: str, found: Figure | None) -> dict[str, Any]:
    """A row of the table of findings."""
    said = {"above": "> 0", "within": "within ±1", "no more": "≤ 1"}[claim]
    values: dict[str, Any] = {"value": None, "low": None, "high": None, "n": []}
    if found is not None:
        values = {key: getattr(found, key) for key in ("value", "low", "high")}
        values["n"] = list(found.n)
    about = {"finding": what, "paper": where, "claim": said}
    return about | values | {"verdict": verdict(claim, found)}
