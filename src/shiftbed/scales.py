"""Scales on which accuracies of many models fall on a line: linear, probit, logit.

taori2020 (Section 2) and andreassen2021 (Appendix A) fit in logit space, fridovich2022 in probit
space. A scale S maps an accuracy in (0, 1) to the real line; ``inverse`` maps back.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri

from shiftbed.errors import unknown

Floats = NDArray[np.float64]
_TICKS = (0.001, 0.005, 0.01, 0.02, 0.05, *(i / 20 for i in range(2, 19)), 0.95)
_TICKS += (0.98, 0.99, 0.995, 0.999)
_FINER = (0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5)
"""Steps of ticks, where a range is short."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A monotone map S of accuracies, its inverse and both derivatives.

    >>> round(float(LOGIT.forward(0.75)), 4), float(LOGIT.inverse(0.0))
    (1.0986, 0.5)
    """

    name: str
    forward: Callable[[ArrayLike], Floats]
    inverse: Callable[[ArrayLike], Floats]
    derivative: Callable[[ArrayLike], Floats]
    """dS/dp at accuracy p."""
    inverse_derivative: Callable[[ArrayLike], Floats]
    """dp/dS at scaled value z."""

    @property
    def bounded(self) -> bool:
        """Whether accuracies of 0 and 1 have a finite image (only on the linear scale)."""
        return self.name == "linear"

    def ticks(self, low: float, high: float, most: int = 12) -> list[float]:
        """Round accuracies within [low, high] that are well apart on this scale.

        >>> LOGIT.ticks(0.5, 0.9)
        [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9]
        """
        inside = [t for t in _TICKS if low - 1e-12 <= t <= high + 1e-12]
        for step in _FINER:
            if len(inside) >= 3:
                break
            first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
            finer = [round(i * step, 6) for i in range(first, last + 1)]
            inside = [t for t in finer if self.bounded or 0 < t < 1]
        if self.bounded and low <= 0 and 0.0 not in inside:
            inside.insert(0, 0.0)
        if self.bounded and high >= 1 and 1.0 not in inside:
            inside.append(1.0)
        if len(inside) < 2:
            return inside
        position = self.forward(np.asarray(inside))
        apart = (position[-1] - position[0]) / most
        order = sorted(range(len(inside)), key=lambda i: (_roughness(inside[i]), i))
        kept: list[int] = []
        for i in order:
            if all(abs(position[i] - position[j]) >= apart * 0.999 for j in kept):
                kept.append(i)
        return [inside[i] for i in sorted(kept)]


def _roughness(tick: float) -> int:
    """0 for halves and tenths, larger for ticks with more digits."""
    for digits, step in enumerate((0.5, 0.1, 0.05, 0.01)):
        if abs(tick / step - round(tick / step)) < 1e-9:
            return digits
    return 4


def _array(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _ones(values: ArrayLike) -> Floats:
    return np.ones_like(_array(values))


def _normal_density(z: ArrayLike) -> Floats:
    return np.asarray(np.exp(-0.5 * _array(z) ** 2) / np.sqrt(2 * np.pi))


LINEAR = Scale(
    name="linear", forward=_array, inverse=_array, derivative=_ones, inverse_derivative=_ones
)
PROBIT = Scale(
    name="probit",
    forward=lambda p: np.asarray(ndtri(_array(p))),
    inverse=lambda z: np.asarray(ndtr(_array(z))),
    derivative=lambda p: np.asarray(1.0 / _normal_density(ndtri(_array(p)))),
    inverse_derivative=_normal_density,
)
LOGIT = Scale(
    name="logit",
    forward=lambda p: np.asarray(logit(_array(p))),
    inverse=lambda z: np.asarray(expit(_array(z))),
    derivative=lambda p: np.asarray(1.0 / (_array(p) * (1.0 - _array(p)))),
    inverse_derivative=lambda z: np.asarray(expit(_array(z)) * expit(-_array(z))),
)
SCALES = {s.name: s for s in (LINEAR, PROBIT, LOGIT)}


def scale(which: str | Scale) -> Scale:
    """The scale of that name; a Scale passes through.

    >>> scale("logit").name
    'logit'
    """
    if isinstance(which, Scale):
        return which
    if which not in SCALES:
        raise unknown("scale", which, SCALES)
    return SCALES[which]
