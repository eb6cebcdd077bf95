"""The scatter of baseline models about their line, and what falls outside of it.

A model is out of line if another baseline model would hardly fall where it does. How far baseline
models fall is learned from their residuals: those of a fit without the model itself, or without
its whole family where families are known, and with tails as heavy as theirs. Normal tails are
the default; a t distribution with ν degrees of freedom takes their place where it explains the
studentised residuals better (by Akaike's criterion: log likelihood larger by more than 1).

Formulas are over the last axes: they serve one line, or a stack of lines (``analysis.stacks``).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from shiftbed.analysis.baseline import Line
from shiftbed.analysis.intervals import (
    PerLine,
    column,
    dot,
    number,
    quadratic,
    t_quantile,
    two_sided_p,
)

Floats = NDArray[np.float64]
TAILS = (2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 30.0)
_NU = np.array(TAILS)
_CONSTANT = gammaln((_NU + 1) / 2) - gammaln(_NU / 2)
_ENOUGH = 8
"""Of fewer models the tails are not estimated."""


@dataclass(frozen=True, kw_only=True)
class Tails:
    """A t distribution of studentised residuals: width times t with ν degrees of freedom."""

    nu: PerLine
    """∞ for normal tails."""
    width: PerLine
    gain: PerLine
    """Log likelihood over that of the normal distribution."""


NORMAL = Tails(nu=float("inf"), width=1.0, gain=0.0)


def fit_tails(residuals: Floats) -> Tails:
    """The tails of studentised residuals (m,) by maximum likelihood over a grid of ν.

    For each ν the scale solves s² = mean((ν+1) e²/(ν + e²/s²)) (the EM iteration of Lange, Little
    and Taylor 1989). Normal unless the log likelihood gains more than 1 (Akaike's criterion).

    >>> rng = np.random.default_rng(0)
    >>> fit_tails(rng.normal(size=200)).nu, fit_tails(rng.standard_t(3, 200)).nu
    (inf, 3.0)
    """
    there = np.isfinite(residuals)
    squares, m = np.where(there, residuals, 0.0) ** 2, there.sum(axis=-1)
    mean = squares.sum(axis=-1) / np.maximum(m, 1)
    fourth = dot(squares, squares) / np.maximum(m, 1)
    heavy = np.asarray((m >= _ENOUGH) & (fourth > 3.0 * mean**2))  # else no heavier than normal
    nu, width, gain = (np.full(heavy.shape, one) for one in (np.inf, 1.0, 0.0))
    if heavy.any():
        found = _heavy_tails(squares[heavy], m[heavy], mean[heavy])
        for values, chosen in zip((nu, width, gain), found, strict=True):
            values[heavy] = chosen
    return Tails(nu=number(nu), width=number(width), gain=number(gain))


def _heavy_tails(squares: Floats, m: NDArray[np.int64], mean: Floats) -> tuple[Floats, ...]:
    """ν, width and gain of each row of squared residuals (L, n), of which m (L,) are known."""
    nu, count, known = _NU[:, None], m[:, None, None], squares[:, None, :]
    scale = np.repeat(mean[:, None, None], len(_NU), axis=1)  # (L, grid, 1)
    for _ in range(15):  # s² = mean of (ν+1)e²/(ν + e²/s²)
        weighted = np.reciprocal(nu * scale + known) @ squares[..., None]
        scale = (nu + 1) / count * scale * weighted
    fit = count * (_CONSTANT[:, None] - 0.5 * np.log(np.pi * nu * scale))
    far = (nu + 1) / 2 * np.log1p(known / (nu * scale)).sum(axis=-1, keepdims=True)
    likelihood = (fit - far)[..., 0]
    normal = -0.5 * m * (np.log(2 * np.pi * mean) + 1.0)
    rows, best = np.arange(len(m)), likelihood.argmax(axis=-1)
    gain = likelihood[rows, best] - normal
    better = gain > 1.0
    return (
        np.where(better, _NU[best], np.inf),
        np.where(better, np.sqrt(scale[rows, best, 0]), 1.0),
        np.where(better, gain, 0.0),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LeftOut:
    """Each fitted model against the fit without it (without its family)."""

    centre: Floats
    """(m,): where the fit without it puts it, in scaled space."""
    variance: Floats
    """(m,): of a new model about that."""
    dof: Floats
    studentised: Floats
    """(m,): S(y) less the centre, in standard deviations."""


@lru_cache(maxsize=64)
def leave_out(line: Line) -> LeftOut:
    """Every fitted model judged by the others.

    Without families, in closed form: with its residual r, weight v and leverage h, the fit
    without it misses it by r/(1 − vh), with variance σ₍₎²(1/v + h/(1 − vh)) and
    σ₍₎² = (dof·σ² − v r²/(1 − vh))/(dof − 1) (externally studentised residuals). With families
    its whole family g is left out: the variance is σ₍g₎²/v + aᵀV₍g₎a, see ``analysis.families``.
    """
    a, v, r = line.design, line.row_weights, line.residuals
    y = dot(a, line.coefficients[..., None, :]) + r
    families = line.families
    sigma = column(line.sigma)
    if families is not None:
        missed = families.left_out
        pull = families.quadratic_without(a)
        scatter = families.variance_without[..., families.codes] / v
        variance = scatter + pull
        dof = _welch(scatter, families.variance_dof, pull, max(families.dof - 1, 1))
    elif line.dof > 1:
        leverage = quadratic(a, line.gram_inverse)
        rest = np.maximum(1.0 - v * leverage, 1e-12)
        missed = r / rest
        left = np.maximum(line.dof * sigma**2 - v * r**2 / rest, 0.0) / (line.dof - 1)
        variance = left * (1.0 / v + leverage / rest)
        dof = np.full(r.shape, float(line.dof - 1))
    else:
        leverage = quadratic(a, line.gram_inverse)
        missed, variance = r, sigma**2 * (1.0 + leverage)
        dof = np.full(r.shape, float(line.dof))
    with np.errstate(divide="ignore", invalid="ignore"):
        studentised = missed / np.sqrt(variance)
    return LeftOut(centre=y - missed, variance=variance, dof=dof, studentised=studentised)


@lru_cache(maxsize=64)
def line_tails(line: Line) -> Tails:
    """The tails of the fitted models' scatter about their line."""
    return fit_tails(leave_out(line).studentised)


def new_model(line: Line, a: Floats) -> tuple[Floats, Floats]:
    """Variance of another baseline model about the line at a (…, k+1), and its degrees of freedom.

    σ²(1 + aᵀGa) with m − k − 1; with families σ² + aᵀVa, σ² counting scatter between and within
    families (a new model is of a new family).
    """
    families = line.families
    if families is None:
        spread = column(line.sigma) ** 2 * (1.0 + quadratic(a, line.gram_inverse))
        return spread, np.full(spread.shape, float(line.dof))
    pull, scatter = quadratic(a, families.covariance), column(families.variance)
    return scatter + pull, _welch(scatter, families.variance_dof, pull, families.dof)


def _welch(a: Floats, dof_a: PerLine, b: Floats, dof_b: int) -> Floats:
    """Degrees of freedom of the sum of two variances (Welch–Satterthwaite)."""
    least = a**2 / column(dof_a) + b**2 / dof_b
    return np.asarray((a + b) ** 2 / np.maximum(least, 1e-300))


def tail_p(t: Floats, dof: Floats, tails: Tails) -> Floats:
    """Two-sided p-values; heavy tails and an estimated variance add up: 1/ν' = 1/ν + 1/dof."""
    return two_sided_p(t / column(tails.width), _both(dof, tails))


def tail_quantile(level: float, dof: Floats, tails: Tails) -> Floats:
    """What |t| exceeds with probability 1 − level, the inverse of ``tail_p``."""
    return np.asarray(column(tails.width) * t_quantile(_both(dof, tails), level))


def _both(dof: Floats, tails: Tails) -> Floats:
    return np.asarray(1.0 / (1.0 / column(tails.nu) + 1.0 / np.asarray(dof, np.float64)))
