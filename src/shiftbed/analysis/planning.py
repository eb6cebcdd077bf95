"""How many test images and baseline models it takes to detect an effective robustness of δ.

Two questions, as everywhere: *measured* (is ρ ≠ 0, by the measurement interval?) and
*out-of-line* (is the model unusual among baseline models, by the prediction interval?). The
second has a floor that no number of images removes: the baseline models' own scatter.

The planned model has a true ρ of δ; what varies is the sample of images and of baseline models.
Image noise is that of ``analysis.modelled``: all models answer the same images, so the line moves
with the model. It is counted once: ``scatter`` is the models' own, and what image noise adds to the
residuals of the planned number of images is added to it where residuals are what is looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, nctdtr, ndtr, ndtri, stdtrit

from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.modelled import IMAGENET, shared_probability
from shiftbed.errors import InputError
from shiftbed.scales import LOGIT, Scale

Floats = NDArray[np.float64]
Question = Literal["measured", "out-of-line"]
QUESTIONS: tuple[Question, ...] = ("measured", "out-of-line")
_NODES = 25
"""Accuracies that stand for all baseline models."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A planned measurement: one model against a line through ``models`` baseline models."""

    accuracy: float
    """Planned model's ID accuracy."""
    slope: float
    intercept: float
    scatter: float
    """Baseline models' own standard deviation about the line, in scaled space, without image noise
    (see ``own_scatter``)."""
    spread: float
    """Standard deviation of the baseline models' scaled ID accuracies."""
    centre: float
    """Mean of the baseline models' scaled ID accuracies."""
    models: int
    id_images: int
    ood_images: int
    scale: Scale = LOGIT
    level: float = 0.95
    families: int | None = None
    """Families among the baseline models; None: each is a family of its own."""
    correlation: float = 0.0
    """Of the scatter of models of one family."""
    interval: str = "modelled"
    """paired (answers per image), modelled (accuracies on the same images), or independent (a model
    unlike the baseline models, whose errors fall on other images)."""

    @property
    def predicted(self) -> float:
        """β(x)."""
        return float(self.scale.inverse(self.intercept + self.slope * self._scaled))

    @property
    def _scaled(self) -> float:
        return float(self.scale.forward(self.accuracy))

    @property
    def _offset(self) -> float:
        return (self._scaled - self.centre) / self.spread

    @property
    def _related(self) -> float:
        """Models of a family beyond the first."""
        return 0.0 if self.families is None else max(self.models / self.families - 1.0, 0.0)

    @property
    def _leverage(self) -> float:
        """[1 + (n−1)c + (1 + (n−1)c²)(X − X̄)²/s²]/m: how much the line's error counts at this x.

        n models of a family share scatter (correlation c) and, as much, accuracy.
        """
        c = self.correlation
        related = 1.0 + self._related * c, 1.0 + self._related * c**2
        return (related[0] + related[1] * self._offset**2) / self.models

    @property
    def _fit_dof(self) -> float:
        return (self.models if self.families is None else self.families) - 1.0

    @property
    def _jackknife(self) -> float:
        """How much leaving out families overstates the line's variance: (F − 1)/(F − 2)."""
        return self._fit_dof / max(self._fit_dof - 1.0, 0.5)

    @property
    def _scatter_dof(self) -> float:
        return max(self.models / (1.0 + self.correlation**2 * self._related) - 2.0, 1.0)

    @property
    def _gain(self) -> float:
        """dβ/dη: from scaled space to accuracy."""
        eta = self.intercept + self.slope * self._scaled
        return float(self.scale.inverse_derivative(eta))


def power_of(design: Design, delta: float, question: Question) -> float:
    """Probability of detecting ρ = δ: that of a non-central t beyond ±t_dof(level).

    *measured*: ρ̂ has mean δ and variance V_fit + V_images, with V_fit = (dβ/dη)² σ² h, h the line's
    leverage at x, and V_images the image noise of y − β(x) with the line's. It is compared with t
    times what the interval says, in which V_fit is (F−1)/(F−2) times as large (the jackknife over F
    families) and alone estimated from models: dof = (F − 1)·(se²/V_fit)². *out-of-line*: S(y) − η̂
    has mean S(β+δ) − S(β) and variance σ²h + image noise, and is compared with t·s√(1 + h),
    s² = σ² + image noise of a residual, of m − 2 degrees of freedom (fewer with families).
    """
    check_level(design.level)
    y, h = _target(design, delta), design._leverage
    own = 1.0 if question == "measured" else float(design.scale.derivative(y))
    gain = design._gain if question == "measured" else 1.0
    images, said = _images(design, y, own, gain)
    fit = (gain * design.scatter) ** 2 * h
    noise = float(np.sqrt(images + fit))
    if noise <= 0:
        return 1.0
    if question == "measured":
        away = abs(delta)
        fit *= design._jackknife
        dof = design._fit_dof * min((said + fit) / max(fit, 1e-300), 1e6) ** 2
        seen = np.sqrt(said + fit)
    else:
        away = abs(float(design.scale.forward(y) - design.scale.forward(design.predicted)))
        dof = design._scatter_dof
        seen = np.sqrt((design.scatter**2 + residual_noise(design)) * (1.0 + h))
    limit = float(stdtrit(dof, 0.5 + design.level / 2) * seen) / noise
    return _beyond(away / noise, limit, dof)


def own_scatter(design: Design, sigma: float) -> float:
    """The models' own scatter, of a line whose residuals have the standard deviation sigma."""
    return float(np.sqrt(max(sigma**2 - residual_noise(design), 0.0)))


def residual_noise(design: Design) -> float:
    """What image noise adds to the variance of a baseline model's residual, in scaled space."""
    found = 0.0
    for p, n, weight in _sides(design):
        slope = weight * design.scale.derivative(p)
        shared = _correlation(p, p) * np.outer(slope, slope) * _covariance(p, n)
        x = _offsets()
        found += float((slope**2 * p * (1 - p) / n).mean())
        found -= float(((1.0 + np.outer(x, x)) * shared).mean())
    return max(found, 0.0)


def _images(design: Design, y: float, own: float, gain: float) -> tuple[float, float]:
    """Variance, from images, of own·dy − gain·(w·dX + a·dθ) of the planned model and the line.

    As it is, and as the interval says: that of an unlike model leaves the line's out.
    """
    u = (1.0 + design._offset * _offsets()) / _NODES  # how much the models at a node move the line
    x, total, alone_too = design.accuracy, 0.0, 0.0
    moves = -gain * design.slope * float(design.scale.derivative(x)), own
    for at, move, (p, n, weight) in zip((x, y), moves, _sides(design), strict=True):
        c = np.append(move, -gain * weight * u * design.scale.derivative(p))
        r = np.eye(_NODES + 1)
        near = _correlation(p, p)
        r[1:, 1:] = near + np.diag((1.0 - np.diag(near)) * _NODES / design.models)
        if design.interval != "independent":
            r[0, 1:] = r[1:, 0] = _correlation(np.array([float(at)]), p)[0]
        p = np.append(at, p)
        covariance = r * _covariance(p, n)
        total += float(c @ covariance @ c)
        alone_too += float(c[0] ** 2 * covariance[0, 0])
    total = max(total, 0.0)
    return total, alone_too if design.interval == "independent" else total


def _sides(design: Design) -> tuple[tuple[Floats, int, float], tuple[Floats, int, float]]:
    """Accuracies of the baseline models on ID and OOD data, images, and weights of a residual."""
    x = design.centre + design.spread * _offsets()
    sides = design.scale.inverse(x), design.scale.inverse(design.intercept + design.slope * x)
    inner = [np.clip(side, 1e-9, 1 - 1e-9) for side in sides]
    return (inner[0], design.id_images, -design.slope), (inner[1], design.ood_images, 1.0)


def _offsets() -> Floats:
    """Normal quantiles with mean 0 and variance 1."""
    found = ndtri((np.arange(_NODES) + 0.5) / _NODES)
    return np.asarray(found / found.std())


def _correlation(p: Floats, q: Floats) -> Floats:
    """Of answers: how often models of these accuracies err together."""
    return _cached(p.tobytes(), q.tobytes())


@lru_cache(maxsize=256)
def _cached(first: bytes, second: bytes) -> Floats:
    a, b = (np.clip(ndtri(np.frombuffer(one)), -2.7, 2.7) for one in (first, second))
    r = IMAGENET.level - IMAGENET.slope * np.abs(a[:, None] - b)
    spread = [np.sqrt(ndtr(z) * ndtr(-z)) for z in (a, b)]
    return np.asarray(shared_probability(a[:, None], b, r) / np.outer(*spread))


def _covariance(p: Floats, n: int) -> Floats:
    spread = np.sqrt(p * (1.0 - p) / n)
    return np.outer(spread, spread)


def _beyond(away: float, t: float, dof: float) -> float:
    """P(|T| > t) of a non-central t: E[Φ(δ − ts) + Φ(−δ − ts)] over s = √(χ²_dof/dof).

    By quadrature over quantiles of s (within 10⁻⁴) where ``scipy.special.nctdtr``, far out, is NaN.

    >>> round(_beyond(2.0, 2.0, 20.0), 6), round(_beyond(12.0, 2.0, 20.0), 6)
    (0.509815, 1.0)
    """
    exact = float(1.0 - nctdtr(dof, away, t) + nctdtr(dof, away, -t))
    if np.isfinite(exact):
        return min(max(exact, 0.0), 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(128)
    v = (nodes + 1.0) / 2.0
    s = np.sqrt(2.0 * gammaincinv(dof / 2.0, v * v * (3.0 - 2.0 * v)) / dof)
    found = (ndtr(away - t * s) + ndtr(-away - t * s)) @ (3.0 * v * (1.0 - v) * weights)
    return min(float(found), 1.0)


def smallest(design: Design, delta: float, question: Question, wanted: float) -> dict[str, object]:
    """The fewest OOD images and the fewest baseline models that reach the wanted power.

    Each is found with the other kept as designed (more models come with as many more families);
    None where no number is enough. For *out-of-line* the floor is the scatter, so there is no
    number of images to look for.
    """
    check_level(wanted)
    images = None
    if question == "measured":
        images = _first(lambda n: replace(design, ood_images=n), delta, question, wanted, 1, 10**9)

    def with_models(m: int) -> Design:
        families = None
        if design.families is not None:
            families = min(max(round(design.families * m / design.models), 3), m)
        return replace(design, models=m, families=families)

    models = _first(with_models, delta, question, wanted, 4, 10**6)
    return {
        "ood_images": images,
        "models": models,
        "delta": _smallest_delta(design, question, wanted),
    }


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
