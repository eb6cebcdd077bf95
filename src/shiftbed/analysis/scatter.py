"""The scatter of baseline models about their line, and what falls outside of it.

A model is out of line if another baseline model would hardly fall where it does. How far baseline
models fall is learned from their residuals: those of a fit without the model itself, or without
its whole family where families are known, and with tails as heavy as theirs. Normal tails are
the default; a t distribution with ν degrees of freedom takes their place where it explains the
studentised residuals better (by Akaike's criterion: log likelihood larger by more than 1).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from shiftbed.analysis.baseline import Line
from shiftbed.analysis.intervals import quadratic, t_quantile, two_sided_p

Floats = NDArray[np.float64]
TAILS = (2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 30.0)
_NU = np.array(TAILS)
_CONSTANT = gammaln((_NU + 1) / 2) - gammaln(_NU / 2)
_ENOUGH = 8
"""Of fewer models the tails are not estimated."""


@dataclass(frozen=True, kw_only=True)
class Tails:
    """A t distribution of studentised residuals: width times t with ν degrees of freedom."""

    nu: float
    """∞ for normal tails."""
    width: float
    gain: float
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
    squares = residuals[np.isfinite(residuals)] ** 2
    m = len(squares)
    if m < _ENOUGH or float((squares**2).mean()) <= 3.0 * float(squares.mean()) ** 2:
        return NORMAL  # tails no heavier than normal
    nu = _NU[:, None]
    scale = np.full((len(nu), 1), float(squares.mean()))
    for _ in range(15):  # s² = mean of (ν+1)e²/(ν + e²/s²)
        scale = (nu + 1) / m * scale * (np.reciprocal(nu * scale + squares) @ squares)[:, None]
    fit = _CONSTANT[:, None] - 0.5 * np.log(np.pi * nu * scale)
    likelihood = (fit - (nu + 1) / 2 * np.log1p(squares / (nu * scale))).sum(axis=1)
    normal = -0.5 * m * (np.log(2 * np.pi * squares.mean()) + 1.0)
    best = int(likelihood.argmax())
    gain = float(likelihood[best] - normal)
    if gain <= 1.0:
        return NORMAL
    return Tails(nu=TAILS[best], width=float(np.sqrt(scale[best, 0])), gain=gain)


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
    y = a @ line.coefficients + r
    families = line.families
    if families is not None:
        missed = families.left_out
        pull = np.einsum("ij,ijk,ik->i", a, families.covariance_without[families.codes], a)
        scatter = families.variance_without[families.codes] / v
        variance = scatter + pull
        dof = _welch(scatter, families.variance_dof, pull, max(families.dof - 1, 1))
    elif line.dof > 1:
        leverage = quadratic(a, line.gram_inverse)
        rest = np.maximum(1.0 - v * leverage, 1e-12)
        missed = r / rest
        left = np.maximum(line.dof * line.sigma**2 - v * r**2 / rest, 0.0) / (line.dof - 1)
        variance = left * (1.0 / v + leverage / rest)
        dof = np.full(len(r), float(line.dof - 1))
    else:
        leverage = quadratic(a, line.gram_inverse)
        missed, variance = r, line.sigma**2 * (1.0 + leverage)
        dof = np.full(len(r), float(line.dof))
    with np.errstate(divide="ignore", invalid="ignore"):
        studentised = missed / np.sqrt(variance)
    return LeftOut(centre=y - missed, variance=variance, dof=dof, studentised=studentised)


@lru_cache(maxsize=64)
def line_tails(line: Line) -> Tails:
    """The tails of the fitted models' scatter about their line."""
    return fit_tails(leave_out(line).studentised)


def new_model(line: Line, a: Floats) -> tuple[Floats, Floats]:
    """Variance of another baseline model about the line at a (p, k+1), and its degrees of freedom.

    σ²(1 + aᵀGa) with m − k − 1; with families σ² + aᵀVa, σ² counting scatter between and within
    families (a new model is of a new family).
    """
    families = line.families
    if families is None:
        spread = line.sigma**2 * (1.0 + quadratic(a, line.gram_inverse))
        return spread, np.full(len(a), float(line.dof))
    pull = quadratic(a, families.covariance)
    scatter = np.full(len(a), families.variance)
    return scatter + pull, _welch(scatter, families.variance_dof, pull, families.dof)


def _welch(a: Floats, dof_a: float, b: Floats, dof_b: float) -> Floats:
    """Degrees of freedom of the sum of two variances (Welch–Satterthwaite)."""
    return np.asarray((a + b) ** 2 / np.maximum(a**2 / dof_a + b**2 / dof_b, 1e-300))


def tail_p(t: Floats, dof: Floats, tails: Tails) -> Floats:
    """Two-sided p-values; heavy tails and an estimated variance add up: 1/ν' = 1/ν + 1/dof."""
    return two_sided_p(t / tails.width, _both(dof, tails))


def tail_quantile(level: float, dof: Floats, tails: Tails) -> Floats:
    """What |t| exceeds with probability 1 − level, the inverse of ``tail_p``."""
    return np.asarray(tails.width * t_quantile(_both(dof, tails), level))


def _both(dof: Floats, tails: Tails) -> Floats:
    return np.asarray(1.0 / (1.0 / tails.nu + 1.0 / np.asarray(dof, np.float64)))
