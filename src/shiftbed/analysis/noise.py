"""How noise of the test images travels into effective robustness.

All models answer the same images, so their accuracies err together: an easy sample lifts every
model and the line with it, and ρ hardly moves. Independent binomials miss this (on 67 real models
they give ρ a standard error of 0.52 points where 0.29 is right).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Line
from shiftbed.scales import Scale

Floats = NDArray[np.float64]


def image_covariance(right: list[NDArray[np.bool_]], images: list[str]) -> Floats:
    """Covariance of accuracies over models and settings when images are resampled jointly.

    ``right[s]`` is (M, N_s) and ``images[s]`` says which images these are. For settings over the
    same N images Cov(a_i, a_j) = (P(i and j right) − a_i a_j)/(N − 1), the limit of resampling
    images without drawing a single resample. Settings over different images are independent.
    Returns (S·M, S·M), settings outermost.

    >>> right = np.array([[True, True, False, False], [True, False, False, False]])
    >>> image_covariance([right], ["a"]).round(4).tolist()
    [[0.0833, 0.0417], [0.0417, 0.0625]]
    """
    m, s = len(right[0]), len(right)
    out = np.zeros((s * m, s * m))
    numbers = [r.astype(np.float32) for r in right]
    means = [r.mean(axis=1, dtype=np.float64) for r in right]
    for a in range(s):
        for b in range(a, s):
            if images[a] != images[b]:
                continue
            n = right[a].shape[1]
            both = (numbers[a] @ numbers[b].T).astype(np.float64) / n
            block = (both - np.outer(means[a], means[b])) / max(n - 1, 1)
            out[a * m : (a + 1) * m, b * m : (b + 1) * m] = block
            out[b * m : (b + 1) * m, a * m : (a + 1) * m] = block.T
    return out


def attenuation(line: Line, noise: Floats, cross: Floats) -> tuple[Floats, Floats]:
    """The line freed of the bias that noise in x causes: coefficients and (AᵀA)⁻¹ in their stead.

    Noise in x adds K to the centred Gram matrix T of S(x) and κ to its product with S(y), so
    ordinary least squares converges to (T+K)⁻¹(Tw + κ) (errors in variables). Solved for w with
    the observed T, the slopes have covariance σ²(T−K)⁻¹T(T−K)⁻¹. ``noise`` is K (k, k), ``cross``
    κ (k,). Where noise would be more than half of the observed spread, only half is taken off:
    the data cannot support more.
    """
    w = line.row_weights
    x = line.design[:, 1:]
    mean = w @ x / w.sum()
    centred = x - mean
    gram = centred.T @ (centred * w[:, None])
    excess = float(np.max(np.real(np.linalg.eigvals(np.linalg.solve(gram, noise)))))
    if excess > 0.5:
        noise = noise * (0.5 / excess)
    old = line.coefficients[1:]
    inverse = np.linalg.inv(gram - noise)
    new = inverse @ (gram @ old - cross)
    slopes = inverse @ gram @ inverse
    gram_inverse = np.block(
        [
            [np.array([[1.0 / w.sum() + mean @ slopes @ mean]]), -(mean @ slopes)[None, :]],
            [-(slopes @ mean)[:, None], slopes],
        ]
    )
    return np.concatenate([[line.coefficients[0] + (old - new) @ mean], new]), gram_inverse


def independent_noise(line: Line) -> Floats:
    """K of ``attenuation`` if all models were measured on images of their own (its upper end)."""
    w = line.row_weights
    return np.diag(((w - w**2 / w.sum())[:, None] * line.noise).sum(axis=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class JointNoise:
    """Variance of ρ of the models one line serves, by source, and the corrected line."""

    var_fit: Floats
    var_id: Floats
    var_ood: Floats
    coefficients: Floats
    """The line's coefficients freed of attenuation."""
    scatter: float
    """Baseline models' standard deviation about the line, in scaled space."""
    gradient: Floats | None = None
    """(p, (k+1)·M): derivative of each ρ by every accuracy, in the covariance's order."""


def joint_noise(
    line: Line,
    scale: Scale,
    x: Floats,
    y: Floats,
    rows: NDArray[np.int64],
    fitted_rows: NDArray[np.int64],
    covariance: Floats,
) -> JointNoise:
    """Delta method on ρ_f = y_f − S⁻¹(a_f·θ), with θ itself a function of every accuracy.

    dη_f = w·dX_f + Σ_j c_fj (dY_j − w·dX_j) + Σ_j v_j r_j (a_fᵀG)_w·dX_j, with X = S(x),
    Y = S(y), c_fj = a_fᵀG a_j v_j, v the fit weights and r the residuals. ``rows`` are the models
    to judge, ``fitted_rows`` the fitted ones (in the line's order), both among the M rows of
    x (M, k) and y (M,); ``covariance`` is ``image_covariance`` of settings (x₁…x_k, y).

    The fit's own share comes from the models' scatter about the line: the residual variance less
    the part that is image noise.
    """
    m, k = x.shape
    p, f = len(rows), len(fitted_rows)
    w, v = line.coefficients[1:], line.row_weights
    slopes = scale.derivative(np.column_stack([x, y]))  # (M, k+1)
    a = np.column_stack([np.ones(p), scale.forward(x[rows])])
    slope_beta = scale.inverse_derivative(a @ line.coefficients)
    pull = a @ line.gram_inverse  # (p, k+1)
    c = pull @ line.design.T * v  # (p, f)

    gradient = np.zeros((p, k + 1, m))
    for s in range(k + 1):
        by_fit = -w[s] * c + np.outer(pull[:, 1 + s], v * line.residuals) if s < k else c
        gradient[:, s, fitted_rows] -= slope_beta[:, None] * by_fit * slopes[fitted_rows, s]
        own = -slope_beta * w[s] * slopes[rows, s] if s < k else 1.0
        gradient[np.arange(p), s, rows] += own
    flat = gradient.reshape(p, (k + 1) * m)
    on_x, on_y = flat.copy(), flat.copy()
    on_x[:, k * m :], on_y[:, : k * m] = 0.0, 0.0
    by_x = on_x @ covariance
    var_id = np.einsum("pi,pi->p", by_x, on_x)
    var_ood = np.einsum("pi,pi->p", on_y @ covariance, on_y)
    cross = np.einsum("pi,pi->p", by_x, on_y)
    # Where both sides have the same images, what they cancel or add is split in proportion.
    shared = np.maximum(1.0 + 2.0 * cross / np.maximum(var_id + var_ood, 1e-300), 0.0)

    # Image noise of the fitted models' accuracies in scaled space: a block (f, f) per two settings.
    at = np.arange(k + 1)[:, None] * m + fitted_rows
    scaled = slopes[fitted_rows].T
    blocks = covariance[at[:, None, :, None], at[None, :, None, :]]
    blocks = blocks * scaled[:, None, :, None] * scaled[None, :, None, :]
    of_residual = np.append(-w, 1.0)
    noise_r = np.einsum("s,stij,t->ij", of_residual, blocks, of_residual)
    maker = np.eye(f) - line.design @ line.gram_inverse @ (line.design * v[:, None]).T
    image_part = float(v @ np.einsum("ij,jk,ik->i", maker, noise_r, maker)) / line.dof
    scatter = max(0.0, line.sigma**2 - image_part)
    # Σ_j v_j C_jj − Σ_jl v_j v_l C_jl / Σv: what noise C adds to a centred weighted sum.
    added = np.einsum("stii,i->st", blocks, v)
    added = added - np.einsum("i,stij,j->st", v, blocks, v) / v.sum()
    corrected, gram_inverse = attenuation(line, added[:k, :k], added[:k, k])
    return JointNoise(
        var_fit=slope_beta**2 * scatter * np.einsum("ij,jk,ik->i", a, gram_inverse, a),
        var_id=var_id * shared,
        var_ood=var_ood * shared,
        coefficients=corrected,
        scatter=float(np.sqrt(scatter)),
        gradient=flat,
    )
