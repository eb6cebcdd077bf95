"""The difference of two models' effective robustness, with an interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.intervals import binomial_variance, off_boundary, two_sided_p
from shiftbed.analysis.noise import JointNoise

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """ρ(A) − ρ(B)."""

    effective: float
    low: float
    high: float
    p_value: float
    paired: bool


def difference(
    baseline: Baseline,
    x: Floats,
    y: Floats,
    *,
    n_id: Floats,
    n_ood: Floats,
    noise: JointNoise | None = None,
    covariance: Floats | None = None,
    level: float = 0.95,
) -> Difference:
    """ρ(A) − ρ(B) for x (2, k), y (2,), sizes n_id (2, k) and n_ood (2,).

    The line's error moves both models, so only the difference of their pulls counts: with
    u = s_A a_A − s_B a_B, s = dβ/dη, the fit adds σ² uᵀGu. Image noise is taken as independent
    (conservative); with the two models' ``joint_noise`` and the ``covariance`` it was made with
    it is paired.
    """
    inner_x = off_boundary(x, n_id)
    served = baseline.line_of(x)
    a = np.column_stack([np.ones(2), baseline.scale.forward(inner_x)])
    theta = np.stack([baseline.lines[i].coefficients for i in served])
    eta = np.einsum("ij,ij->i", a, theta)
    slope = baseline.scale.inverse_derivative(eta)
    rho = y - baseline.scale.inverse(eta)
    pull = slope[:, None] * a
    lines = [baseline.lines[i] for i in served]
    spreads = [line.sigma if noise is None else noise.scatter for line in lines]
    if served[0] == served[1]:
        u = pull[0] - pull[1]
        fit = spreads[0] ** 2 * float(u @ lines[0].gram_inverse @ u)
    else:
        fit = sum(
            spread**2 * float(p @ line.gram_inverse @ p)
            for p, line, spread in zip(pull, lines, spreads, strict=True)
        )
    if noise is not None and noise.gradient is not None and covariance is not None:
        g = noise.gradient[0] - noise.gradient[1]
        image = float(g @ covariance @ g)
    else:
        gain = pull[:, :1] * theta[:, 1:] * baseline.scale.derivative(inner_x)
        image = float((gain**2 * binomial_variance(x, n_id)).sum())
        image += float(binomial_variance(y, n_ood).sum())
    spread = float(np.sqrt(fit + image))
    dof = min(line.dof for line in lines) * min((fit + image) / max(fit, 1e-300), 1e6) ** 2
    half = float(stdtrit(dof, 0.5 + level / 2)) * spread if spread > 0 else 0.0
    known = bool((n_id > 0).all() and (n_ood > 0).all())
    delta = float(rho[0] - rho[1])
    return Difference(
        effective=delta,
        low=delta - half if known else float("nan"),
        high=delta + half if known else float("nan"),
        p_value=_p_value(delta, spread, dof) if known else float("nan"),
        paired=noise is not None,
    )


def _p_value(delta: float, spread: float, dof: float) -> float:
    """1 for a model and itself, measured on the same images: nothing differs."""
    return float(two_sided_p(delta / spread, dof)) if spread > 0 else 1.0
