"""How many test images and baseline models it takes to detect an effective robustness of δ.

Two questions, as everywhere: *measured* (is ρ ≠ 0, by the measurement interval?) and
*out-of-line* (is the model unusual among baseline models, by the prediction interval?). The
second has a floor that no number of images removes: the baseline models' own scatter.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import gammaincinv, ndtr, stdtrit

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.robustness import effective_robustness
from shiftbed.errors import InputError
from shiftbed.scales import LOGIT, Scale

Question = Literal["measured", "out-of-line"]
QUESTIONS: tuple[Question, ...] = ("measured", "out-of-line")


@dataclass(frozen=True, kw_only=True)
class Design:
    """A planned measurement: one model against a line through ``models`` baseline models."""

    accuracy: float
    """Planned model's ID accuracy."""
    slope: float
    intercept: float
    scatter: float
    """Baseline models' standard deviation about the line, in scaled space."""
    spread: float
    """Standard deviation of the baseline models' scaled ID accuracies."""
    centre: float
    """Mean of the baseline models' scaled ID accuracies."""
    models: int
    id_images: int
    ood_images: int
    scale: Scale = LOGIT
    level: float = 0.95

    @property
    def predicted(self) -> float:
        """β(x)."""
        return float(self.scale.inverse(self.intercept + self.slope * self._scaled))

    @property
    def _scaled(self) -> float:
        return float(self.scale.forward(self.accuracy))

    @property
    def _leverage(self) -> float:
        """1/m + (X − X̄)²/(m·s²): how much the line's error counts at this x."""
        offset = (self._scaled - self.centre) / self.spread
        return (1.0 + offset**2) / self.models

    @property
    def _gain(self) -> float:
        """dβ/dη: from scaled space to accuracy."""
        eta = self.intercept + self.slope * self._scaled
        return float(self.scale.inverse_derivative(eta))


def power_of(design: Design, delta: float, question: Question) -> float:
    """Probability of detecting ρ = δ: that of a non-central t beyond ±t_dof(level).

    *measured*: non-centrality δ/se, se² = V_fit + V_images with V_fit = (dβ/dη)² σ² h and
    V_images = y(1−y)/n_ood + (β′)² x(1−x)/n_id; only V_fit is estimated from models, so
    dof = (m − 2)·(se²/V_fit)² as in the interval itself. *out-of-line*: non-centrality
    (S(β+δ) − S(β))/(σ√(1+h)), m − 2 degrees of freedom.
    """
    check_level(design.level)
    x, y, dof = design.accuracy, _target(design, delta), design.models - 2.0
    if question == "measured":
        gain = design._gain * design.slope * float(design.scale.derivative(x))
        images = y * (1 - y) / design.ood_images + gain**2 * x * (1 - x) / design.id_images
        fit = (design._gain * design.scatter) ** 2 * design._leverage
        dof *= min((images + fit) / max(fit, 1e-300), 1e6) ** 2
        away, spread = abs(delta), np.sqrt(images + fit)
    else:
        away = abs(float(design.scale.forward(y) - design.scale.forward(design.predicted)))
        spread = design.scatter * np.sqrt(1.0 + design._leverage)
    if spread <= 0:
        return 1.0
    return _beyond(away / spread, float(stdtrit(dof, 0.5 + design.level / 2)), dof)


def _beyond(away: float, t: float, dof: float) -> float:
    """P(|T| > t) of a non-central t: E[Φ(δ − ts) + Φ(−δ − ts)] over s = √(χ²_dof/dof).

    By quadrature over quantiles of s, since ``scipy.special.nctdtr`` is NaN far out.

    >>> round(_beyond(2.0, 2.0, 20.0), 6), round(_beyond(12.0, 2.0, 20.0), 6)
    (0.509815, 1.0)
    """
    nodes, weights = np.polynomial.legendre.leggauss(128)
    v = (nodes + 1.0) / 2.0
    s = np.sqrt(2.0 * gammaincinv(dof / 2.0, v * v * (3.0 - 2.0 * v)) / dof)
    found = (ndtr(away - t * s) + ndtr(-away - t * s)) @ (3.0 * v * (1.0 - v) * weights)
    return min(float(found), 1.0)


def smallest(design: Design, delta: float, question: Question, wanted: float) -> dict[str, object]:
    """The fewest OOD images and the fewest baseline models that reach the wanted power.

    Each is found with the other kept as designed; None where no number is enough. For
    *out-of-line* the images only matter through the scatter, which is given, so there is no
    number of images to look for.
    """
    check_level(wanted)
    images = None
    if question == "measured":
        images = _first(lambda n: replace(design, ood_images=n), delta, question, wanted, 1, 10**9)
    models = _first(lambda m: replace(design, models=m), delta, question, wanted, 4, 10**6)
    return {
        "ood_images": images,
        "models": models,
        "delta": _smallest_delta(design, question, wanted),
    }


def simulated_power(
    design: Design, delta: float, question: Question, *, simulations: int = 1000, seed: int = 0
) -> float:
    """The same by simulation, through the package's own fit and intervals.

    Baseline models get scaled ID accuracies from N(centre, spread²) and scatter about the line
    from N(0, scatter²); test images are binomial for the planned model.
    """
    rng = np.random.default_rng(seed)
    target, found, scale = _target(design, delta), 0, design.scale
    for _ in range(simulations):
        x = rng.normal(design.centre, design.spread, design.models)
        y = design.intercept + design.slope * x + rng.normal(0, design.scatter, design.models)
        line = fit_baseline(scale.inverse(x), scale.inverse(y), scale=scale, bootstrap=0)
        if question == "measured":
            own_x = rng.binomial(design.id_images, design.accuracy) / design.id_images
            own_y = rng.binomial(design.ood_images, target) / design.ood_images
        else:
            own_x = design.accuracy
            noise = rng.normal(0, design.scatter)
            own_y = float(scale.inverse(scale.forward(target) + noise))
        placed = effective_robustness(
            line,
            [own_x],
            [own_y],
            n_id=design.id_images,
            n_ood=design.ood_images,
            level=design.level,
        )
        if question == "measured":
            found += not placed.low[0] <= 0.0 <= placed.high[0]
        else:
            found += placed.p_value[0] < 1.0 - design.level
    return found / simulations


def _target(design: Design, delta: float) -> float:
    target = design.predicted + delta
    if not 0.0 < target < 1.0:
        raise InputError(
            f"ρ = {delta:g} is impossible here: the line predicts {design.predicted:.4f}"
        )
    return target


def _first(
    make: Callable[[int], Design],
    delta: float,
    question: Question,
    wanted: float,
    low: int,
    high: int,
) -> int | None:
    """The smallest whole number in [low, high] with the wanted power (power grows with it)."""
    if power_of(make(high), delta, question) < wanted:
        return None
    while low < high:
        middle = (low + high) // 2
        if power_of(make(middle), delta, question) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


def _smallest_delta(design: Design, question: Question, wanted: float) -> float | None:
    """The smallest positive ρ this design detects with the wanted power."""
    low, high = 0.0, (1.0 - design.predicted) * (1 - 1e-9)
    if power_of(design, high, question) < wanted:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if power_of(design, middle, question) >= wanted else (middle, high)
        )
    return high
