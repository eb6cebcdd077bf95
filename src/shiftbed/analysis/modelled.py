"""Covariances of accuracies where nobody kept the answers per image.

Models are right on the same images to a degree that depends on how close their accuracies are.
Think of model i as right on an image where a standard normal variable falls below z_i = Φ⁻¹(p_i),
and of these variables of two models as correlated by r: then
Cov(a_i, a_j) = (Φ₂(z_i, z_j; r) − p_i p_j)/n. Measured on 67 models on ImageNet and ImageNetV2,
r = 0.90 − 0.26·|z_i − z_j| (R² 0.95); on 30 models on CIFAR-10, 0.86 − 0.31·|z_i − z_j|. Either
serves for the other data set's answers. They are for models like these: classifiers trained on the
ID data. Models trained otherwise (zero-shot, on other data) err on other images, and get the
independent noise instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from shiftbed.analysis.intervals import binomial_variance, off_boundary

Floats = NDArray[np.float64]
WIDEST = 2.7
"""Probits beyond ± this are taken as this: c − s·|Δz| is a correlation if Δz ≤ 2c/s only."""
NODES = 109


@dataclass(frozen=True, kw_only=True)
class ErrorCorrelation:
    """r = level − slope·|z_i − z_j|, the tetrachoric correlation of two models' answers."""

    level: float
    slope: float


IMAGENET = ErrorCorrelation(level=0.90, slope=0.26)
CIFAR10 = ErrorCorrelation(level=0.86, slope=0.31)


def shared_probability(a: ArrayLike, b: ArrayLike, r: ArrayLike) -> Floats:
    """Φ₂(a, b; r) − Φ(a)Φ(b), by Gauss–Legendre quadrature of Plackett's identity.

    ∂Φ₂/∂r is the bivariate normal density, so the difference is its integral from 0 to r; with
    t = sin θ: (2π)⁻¹ ∫ exp(−(a² + b² − 2ab sin θ)/(2 cos² θ)) dθ from 0 to asin r (Drezner and
    Wesolowsky 1990).

    >>> float(shared_probability(0.0, 0.0, 0.5).round(6))  # asin(r)/(2π)
    0.083333
    """
    nodes, weights = np.polynomial.legendre.leggauss(20)
    first, second, to = np.broadcast_arrays(
        *(np.asarray(one, np.float64)[..., None] for one in (a, b, np.arcsin(r)))
    )
    angle = to * (nodes + 1.0) / 2.0
    power = first**2 + second**2 - 2.0 * first * second * np.sin(angle)
    density = np.exp(-power / (2.0 * np.cos(angle) ** 2))
    return np.asarray((density * weights).sum(axis=-1) * to[..., 0] / (4.0 * np.pi))


@lru_cache(maxsize=8)
def _table(errors: ErrorCorrelation) -> Floats:
    """Correlation of right answers on a grid of probits (nodes, nodes)."""
    z = np.linspace(-WIDEST, WIDEST, NODES)
    r = errors.level - errors.slope * np.abs(z[:, None] - z)
    spread = np.sqrt(ndtr(z) * ndtr(-z))
    return np.asarray(shared_probability(z[:, None], z, r) / np.outer(spread, spread))


@dataclass(frozen=True, kw_only=True, eq=False)
class Modelled:
    """Image noise of M models in k + 1 settings, from accuracies and sizes alone.

    On a grid of probits the correlations are a fixed table R; a model is a mixture of the two
    nodes next to it, so sums over models are sums over nodes: C = D P R Pᵀ D + own variance, with
    P the mixture and D the binomial standard deviations. Settings are independent of each other.
    For a stack of lines every array has a further axis in front.
    """

    spread: Floats
    """(M, k+1): √(p(1−p)/n)."""
    node: NDArray[np.int64]
    """(M, k+1): the grid node below each probit."""
    part: Floats
    """(M, k+1): how far towards the next node."""
    errors: ErrorCorrelation = IMAGENET

    @classmethod
    def of(cls, p: Floats, n: Floats, errors: ErrorCorrelation = IMAGENET) -> "Modelled":
        """From accuracies p (M, S) on n (M, S) images, one column a setting."""
        inside = off_boundary(p, n)
        inner = np.clip(np.where(np.isfinite(inside), inside, 0.5), 1e-9, 1.0 - 1e-9)
        at = (np.clip(ndtri(inner), -WIDEST, WIDEST) + WIDEST) / (2 * WIDEST) * (NODES - 1)
        node = np.minimum(at.astype(np.int64), NODES - 2)
        variance = binomial_variance(p, n)
        spread = np.sqrt(np.where(variance > 0, variance, 0.0))  # a metric may exceed 1
        return cls(spread=spread, node=node, part=at - node, errors=errors)

    def settings(self, columns: Sequence[int] | NDArray[np.int64]) -> "Modelled":
        """Of these settings only, in that order; columns (S, k+1) give a stack."""
        at = np.asarray(columns)
        return Modelled(
            spread=np.moveaxis(self.spread[:, at], 0, -2),
            node=np.moveaxis(self.node[:, at], 0, -2),
            part=np.moveaxis(self.part[:, at], 0, -2),
            errors=self.errors,
        )

    def own(self, s: int, t: int) -> Floats | None:
        return self.spread[..., s] ** 2 if s == t else None

    def times(self, s: int, t: int, fitted: NDArray[np.int64], right: Floats) -> Floats:
        low, part, spread = self.node[..., s], self.part[..., s], self.spread[..., s]
        if s != t:
            return np.zeros((*spread.shape, right.shape[-1]))
        scaled = spread[..., fitted, None] * right
        carried = _table(self.errors) @ _on_nodes(low[..., fitted], part[..., fitted], scaled)
        near, far = (np.take_along_axis(carried, at[..., None], -2) for at in (low, low + 1))
        out = near + part[..., None] * (far - near)
        out *= spread[..., None]
        rest = spread[..., fitted] * self._rest(s, fitted)
        out[..., fitted, :] += rest[..., None] * scaled
        return np.asarray(out)

    def _rest(self, s: int, rows: NDArray[np.int64]) -> Floats:
        """1 − the correlation that the table gives a model with itself."""
        table, low, part = _table(self.errors), self.node[..., rows, s], self.part[..., rows, s]
        near, far, next_to = table[low, low], table[low + 1, low + 1], table[low, low + 1]
        return np.asarray(
            1.0 - (1 - part) ** 2 * near - part**2 * far - 2 * part * (1 - part) * next_to
        )

    def between(self, s: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
        table, node, part = _table(self.errors), self.node[..., s], self.part[..., s]
        i, j, a, b = node[..., one], node[..., other], part[..., one], part[..., other]
        near = (1 - a) * table[i, j] + a * table[i + 1, j]
        far = (1 - a) * table[i, j + 1] + a * table[i + 1, j + 1]
        found = np.where(one == other, 1.0, (1 - b) * near + b * far)
        return np.asarray(found * self.spread[..., one, s] * self.spread[..., other, s])

    def among(self, s: int, t: int, rows: NDArray[np.int64]) -> Floats:
        if s != t:
            return np.zeros((len(rows), len(rows)))
        mixture = np.zeros((len(rows), NODES))
        at = np.arange(len(rows))
        mixture[at, self.node[rows, s]] = 1.0 - self.part[rows, s]
        mixture[at, self.node[rows, s] + 1] = self.part[rows, s]
        found = mixture @ _table(self.errors) @ mixture.T
        found[at, at] = 1.0
        return np.asarray(found * np.outer(self.spread[rows, s], self.spread[rows, s]))


def _on_nodes(low: NDArray[np.int64], part: Floats, values: Floats) -> Floats:
    """(…, nodes, c): values (…, F, c) summed over models, each on the two nodes next to it."""
    shape = (*low.shape[:-1], NODES, values.shape[-1])
    stack, c = np.arange(int(np.prod(shape[:-2]))).reshape(*shape[:-2], 1), shape[-1]
    at = ((stack * NODES + low)[..., None] * c + np.arange(c)).ravel()
    far = part[..., None] * values
    found = np.bincount(at, (values - far).ravel(), np.prod(shape))
    found += np.bincount(at + c, far.ravel(), np.prod(shape))
    return found.reshape(shape)
