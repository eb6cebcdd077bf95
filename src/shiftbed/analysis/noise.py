"""How noise of the test images travels into effective robustness.

All models answer the same images, so their accuracies err together: an easy sample lifts every
model and the line with it, and ρ hardly moves. Independent binomials miss this (on 67 real models
they give ρ a standard error of 0.52 points where 0.29 is right). The covariance of accuracies is
either known from answers per image (``image_covariance``) or modelled (``analysis.modelled``).

Every formula is over the last axes of its arrays: it serves one line, or a stack of lines through
the same models (``analysis.stacks``), whose arrays have a further axis in front.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Line
from shiftbed.analysis.intervals import (
    PerLine,
    beside,
    column,
    dot,
    number,
    quadratic,
    transposed,
    with_ones,
)
from shiftbed.scales import Scale

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class ImageNoise(Protocol):
    """Covariances of the accuracies of M models in settings 0, 1, … (ID first, OOD last)."""

    def own(self, s: int, t: int) -> Floats | None:
        """(…, M): Cov of each model's accuracies in settings s and t; None if all are 0."""

    def times(self, s: int, t: int, fitted: NDArray[np.int64], right: Floats) -> Floats:
        """Σ_j Cov(a_is, a_jt) right_j over the fitted models j: (…, M, c) for right (…, F, c)."""

    def among(self, s: int, t: int, rows: NDArray[np.int64]) -> Floats:
        """(R, R): Cov(a_is, a_jt) among these models."""

    def between(self, s: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
        """(…, R): Cov of the accuracies of two models in setting s, pair by pair."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paired:
    """Image noise from answers per image."""

    covariance: Floats
    """``image_covariance``: (S·M, S·M), settings outermost."""
    models: int

    def _block(self, s: int, t: int) -> Floats:
        m = self.models
        return self.covariance[s * m : (s + 1) * m, t * m : (t + 1) * m]

    def own(self, s: int, t: int) -> Floats | None:
        block = self._block(s, t)
        return np.diagonal(block) if s == t or block.any() else None

    def times(self, s: int, t: int, fitted: NDArray[np.int64], right: Floats) -> Floats:
        return np.asarray(self._block(s, t)[:, fitted] @ right)

    def among(self, s: int, t: int, rows: NDArray[np.int64]) -> Floats:
        return self._block(s, t)[np.ix_(rows, rows)]

    def between(self, s: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
        return self._block(s, s)[one, other]


class RightAnswers(Protocol):
    """Which models (M) are right on which images (N): an array, or anything that gives parts."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, at: Any, /) -> NDArray[np.bool_]: ...


AT_ONCE = 1 << 13
"""Images that are looked at together."""


def _blocks(
    right: RightAnswers, chosen: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.float32]]:
    """Columns as numbers, so many at once: all of them, or those chosen."""
    for start in range(0, right.shape[1] if chosen is None else len(chosen), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        found = right[:, part] if chosen is None else right[:, chosen[part]]
        yield found.astype(np.float32)


def image_covariance(
    right: Sequence[RightAnswers],
    images: list[str],
    ids: list[tuple[str, NDArray[Any]] | None] | None = None,
) -> Floats:
    """Covariance of accuracies over models and settings when images are resampled jointly.

    ``right[s]`` is (M, N_s), looked at ``AT_ONCE`` images at a time, and ``images[s]`` says which
    images these are. For settings over the same N images Cov(a_i, a_j) =
    (P(i and j right) − a_i a_j)/(N − 1), the limit of resampling images without drawing a single
    resample. ``ids[s]`` names the pool that images were taken from and each one's id in it:
    settings that share some of them, as a class twin and its whole set do, have
    Cov = Σ (r_i − a_i)(r_j − a_j)/(N_s N_t) over the images they share. Settings over different
    images are independent. Returns (S·M, S·M), settings outermost.

    >>> right = np.array([[True, True, False, False], [True, False, False, False]])
    >>> image_covariance([right], ["a"]).round(4).tolist()
    [[0.0833, 0.0417], [0.0417, 0.0625]]
    """
    m, s = right[0].shape[0], len(right)
    out = np.zeros((s * m, s * m))
    sums = [sum(x.sum(axis=1, dtype=np.float64) for x in _blocks(r)) for r in right]
    means = [total / r.shape[1] for total, r in zip(sums, right, strict=True)]
    for a in range(s):
        for b in range(a, s):
            if images[a] == images[b]:
                n = right[a].shape[1]
                pairs = zip(_blocks(right[a]), _blocks(right[b]), strict=True)
                both = sum((x @ y.T).astype(np.float64) for x, y in pairs) / n
                block = (both - np.outer(means[a], means[b])) / max(n - 1, 1)
            else:
                one, other = (None, None) if ids is None else (ids[a], ids[b])
                if one is None or other is None or one[0] != other[0]:
                    continue
                _, i, j = np.intersect1d(one[1], other[1], return_indices=True)
                if not len(i):
                    continue
                pairs = zip(_blocks(right[a], i), _blocks(right[b], j), strict=True)
                block = sum(
                    (x - means[a][:, None]) @ (y - means[b][:, None]).T for x, y in pairs
                ) / (right[a].shape[1] * right[b].shape[1])
            out[a * m : (a + 1) * m, b * m : (b + 1) * m] = block
            out[b * m : (b + 1) * m, a * m : (a + 1) * m] = block.T
    return out


def attenuation(line: Line, noise: Floats, cross: Floats) -> tuple[Floats, Floats]:
    """The line freed of the bias that noise in x causes: coefficients Jθ − c, and J.

    Noise in x adds K to the centred Gram matrix T of S(x) and κ to its product with S(y), so
    ordinary least squares converges to (T+K)⁻¹(Tw + κ) (errors in variables). Solved for w with
    the observed T: w' = (T−K)⁻¹(Tw − κ), through the same centre, so a covariance V of the
    coefficients becomes JVJᵀ. ``noise`` is K (k, k), ``cross`` κ (k,). Where noise would be more
    than half of the observed spread, only half is taken off: the data cannot support more.
    """
    w, x = line.row_weights, line.design[..., 1:]
    mean = (w[..., None] * x).sum(axis=-2) / column(w.sum(axis=-1))
    centred = x - mean[..., None, :]
    gram = transposed(centred) @ (centred * w[..., None])
    if mean.shape[-1] == 1:
        excess = noise[..., 0, 0] / gram[..., 0, 0]
    else:
        excess = np.real(np.linalg.eigvals(np.linalg.solve(gram, noise))).max(axis=-1)
    noise = noise * column(column(0.5 / np.maximum(excess, 0.5)))
    old, one = line.coefficients[..., 1:], np.eye(mean.shape[-1])
    inverse = np.linalg.inv(gram - noise)
    stretch = inverse @ gram
    new = (stretch @ old[..., None] - inverse @ cross[..., None])[..., 0]
    jacobian = np.zeros((*gram.shape[:-2], len(one) + 1, len(one) + 1))
    jacobian[..., 0, 0] = 1.0
    jacobian[..., 1:, 1:] = stretch
    jacobian[..., :1, 1:] = mean[..., None, :] @ (one - stretch)
    intercept = line.coefficients[..., 0] + dot(old - new, mean)
    return np.concatenate([column(intercept), new], axis=-1), jacobian


def independent_noise(line: Line) -> Floats:
    """K of ``attenuation`` if all models were measured on images of their own (its upper end)."""
    w = line.row_weights
    added = ((w - w**2 / column(w.sum(axis=-1)))[..., None] * line.noise).sum(axis=-2)
    return np.asarray(added[..., None] * np.eye(added.shape[-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class JointNoise:
    """Errors of ρ of the R models a line serves, by source, and the corrected line.

    The error of ρ_i is Σ_s o_is da_is − g_i·dθ, with da the image noise of its own accuracies and
    dθ the line's error: scatter of models plus image noise of the fitted models.
    """

    var_fit: Floats
    var_id: Floats
    var_ood: Floats
    coefficients: Floats
    """The line's coefficients freed of attenuation."""
    scatter: PerLine
    """Baseline models' standard deviation about the line, in scaled space, without image noise."""
    own: Floats
    """o (R, k+1): derivative of ρ by the model's own accuracies."""
    reach: Floats
    """g (R, k+1): derivative of −ρ by the line's coefficients."""
    fit_covariance: Floats
    """Covariance of the coefficients from the models' scatter."""
    mixed: Floats
    """(k+1, R, k+1): covariance of the accuracy in each setting with the coefficients' image
    noise."""
    diagonal: Floats
    """(k+1, k+1, R): covariances of each model's own accuracies."""
    line_noise: Floats
    """(k+1, k+1): covariance of the coefficients from the fitted models' image noise."""
    carries: Floats
    """(R,): 1 where the line's image noise counts, 0 for noise taken as independent."""

    def matrix(self, images: ImageNoise, rows: NDArray[np.int64]) -> Floats:
        """(R, R): covariance of the errors of ρ on one line, for ``rows`` of ``images``."""
        settings = self.own.shape[1]
        found = self.reach @ self.fit_covariance @ self.reach.T
        for s in range(settings):
            for t in range(settings):
                if images.own(s, t) is not None:
                    both = np.outer(self.own[:, s], self.own[:, t])
                    found = found + both * images.among(s, t, rows)
        reach = self.reach * self.carries[:, None]
        mixed = np.einsum("is,sij->ij", self.own, self.mixed) @ reach.T
        return np.asarray(found - mixed - mixed.T + reach @ self.line_noise @ reach.T)

    def covariances(self, *pairs: tuple[Floats, Floats]) -> list[Floats]:
        """(R,) each: Cov(Σ_s a_s da_s − g·dθ, Σ_s b_s da_s − g·dθ) per model, a and b (R, k+1)."""
        of_line = self.var_fit + self.carries * quadratic(self.reach, self.line_noise)
        with_line = dot(self.mixed, self.reach[..., None, :, :]) * self.carries[..., None, :]
        settings = range(self.own.shape[-1])
        blocks = [
            (s, t, self.diagonal[..., s, t, :])
            for s in settings
            for t in settings
            if s == t or self.diagonal[..., s, t, :].any()
        ]
        found = []
        for a, b in pairs:
            both = of_line - sum((a + b)[..., s] * with_line[..., s, :] for s in settings)
            for s, t, together in blocks:
                both = both + a[..., s] * b[..., t] * together
            found.append(both)
        return found


def joint_noise(
    line: Line,
    scale: Scale,
    x: Floats,
    y: Floats,
    rows: NDArray[np.int64],
    fitted: NDArray[np.int64],
    images: ImageNoise,
    *,
    shares: Bools | None = None,
    carries: Bools | None = None,
) -> JointNoise:
    """Delta method on ρ_f = y_f − S⁻¹(a_f·θ), with θ itself a function of every accuracy.

    dη_f = w·dX_f + a_f·dθ, dθ = G Σ_j v_j [a_j (dY_j − w·dX_j) + r_j e_w·dX_j], with X = S(x),
    Y = S(y), v the fit weights and r the residuals. ``rows`` are the models to judge, ``fitted``
    the fitted ones (in the line's order), both among the M rows of x (M, k) and y (M,), for which
    ``images`` has the covariances. Of the judged models, only those that ``shares`` names have
    images in common with the fitted ones; the line's own image noise counts for those that
    ``carries`` names (both: all).

    The fit's own share comes from the models' scatter about the line: the residual variance less
    the part that is image noise.
    """
    k, p, before = x.shape[-1], line.coefficients.shape[-1], line.residuals.shape[:-1]
    w, v = line.coefficients[..., 1:], line.row_weights
    slopes = scale.derivative(beside(x, y))  # (…, M, k+1)
    a = with_ones(scale.forward(x[..., rows, :]))
    slope_beta = scale.inverse_derivative((a @ line.coefficients[..., None])[..., 0])
    reach = slope_beta[..., None] * a
    of_x = -slope_beta[..., None] * w[..., None, :] * slopes[..., rows, :k]
    own = beside(of_x, np.ones(slope_beta.shape))
    with_fit = np.ones(len(rows)) if shares is None else shares.astype(np.float64)
    with_line = np.ones(len(rows)) if carries is None else carries.astype(np.float64)

    # dθ by the accuracies of the fitted models: G (E_s)ᵀ, from v·a and v·r in scaled space.
    base = beside(line.design * v[..., None], v * line.residuals)
    steep = slopes[..., fitted, :]
    right = [steep[..., s, None] * base for s in range(k + 1)]
    inverse = line.gram_inverse
    mix = [  # each (…, p+1, p)
        np.concatenate([-w[..., s, None, None] * inverse, inverse[..., 1 + s, None, :]], axis=-2)
        for s in range(k)
    ]
    mix.append(np.concatenate([inverse, np.zeros((*before, 1, p))], axis=-2))

    of_residual = np.concatenate([-w, np.ones((*before, 1))], axis=-1)
    total_weight, image_part = v.sum(axis=-1), np.zeros(before)
    added, line_noise = np.zeros((*before, k + 1, k + 1)), np.zeros((*before, p, p))
    variance, own_noise = np.zeros((2, *before, k + 1, k + 1, len(rows)))
    with_line_noise = np.zeros((*before, k + 1, len(rows), p))
    for s in range(k + 1):
        for t in range(k + 1):
            diagonal = images.own(s, t)
            if diagonal is None:
                continue
            product = images.times(s, t, fitted, right[t])  # (…, M, p+1)
            mixed = with_fit[..., None] * (product[..., rows, :] @ mix[t])
            inner = transposed(right[s]) @ product[..., fitted, :]  # (…, p+1, p+1)
            of_line = transposed(mix[s]) @ inner @ mix[t]
            with_line_noise[..., s, :, :] += mixed
            own_noise[..., s, t, :] = diagonal[..., rows]
            line_noise += of_line
            there = own[..., s] * dot(mixed, reach)
            back = there
            if s != t:
                other = images.times(t, s, fitted, right[s])[..., rows, :] @ mix[s]
                back = own[..., t] * with_fit * dot(other, reach)
            alone = own[..., s] * own[..., t] * own_noise[..., s, t, :]
            variance[..., s, t, :] = alone - there - back + with_line * quadratic(reach, of_line)
            # The part of the residual variance that is image noise, and what noise adds to
            # centred sums of squares: Σ v C − Σ v v C / Σ v.
            raw = dot(v, steep[..., s] * steep[..., t] * diagonal[..., fitted])
            kept = raw - (inverse * transposed(inner[..., :p, :p])).sum(axis=(-2, -1))
            image_part += of_residual[..., s] * of_residual[..., t] * kept / line.dof
            added[..., s, t] = raw - inner[..., 0, 0] / total_weight
    var_id = np.maximum(variance[..., :k, :k, :].sum(axis=(-3, -2)), 0.0)  # not by rounding
    var_ood = np.maximum(variance[..., k, k, :], 0.0)
    cross = variance[..., :k, k, :].sum(axis=-2)
    # Where both sides have the same images, what they cancel or add is split in proportion.
    split = np.maximum(1.0 + 2.0 * cross / np.maximum(var_id + var_ood, 1e-300), 0.0)

    residual = np.asarray(line.sigma) ** 2
    scatter = np.maximum(0.0, residual - image_part)
    corrected, jacobian = attenuation(line, added[..., :k, :k], added[..., :k, k])
    share = column(column(scatter / np.maximum(residual, 1e-300)))
    fit_covariance = share * jacobian @ line.covariance @ transposed(jacobian)
    return JointNoise(
        var_fit=quadratic(reach, fit_covariance),
        var_id=var_id * split,
        var_ood=var_ood * split,
        coefficients=corrected,
        scatter=number(np.sqrt(scatter)),
        own=own,
        reach=reach,
        fit_covariance=fit_covariance,
        mixed=with_line_noise,
        diagonal=own_noise,
        line_noise=line_noise,
        carries=with_line,
    )
