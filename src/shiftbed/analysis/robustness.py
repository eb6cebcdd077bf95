"""Effective robustness with two intervals that answer two questions.

ρ(f) = acc_ood(f) − β(acc_id(f)) (taori2020, Section 2), in accuracy.

*How precisely is ρ measured?* The measurement interval: noise of the test images on both axes
plus the uncertainty of the line. Models share test images, so their errors move together; where
per-image results exist the joint covariance of all accuracies is used (the closed form of
resampling images jointly over models, see ``analysis.noise``) and the interval is *paired*.
Where only accuracies exist they are taken as independent, which overstates the noise: the
interval is *conservative*.

*Is the model unusual?* The prediction interval: where ρ of another baseline model would fall,
which adds their scatter about the line. p-values come from it; a model that is itself in the fit
set is judged against the fit without it.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline, Line
from shiftbed.analysis.intervals import (
    binomial_variance,
    check_fractions,
    check_level,
    off_boundary,
    two_sided_p,
)
from shiftbed.analysis.noise import JointNoise, attenuation, independent_noise, joint_noise
from shiftbed.errors import InputError
from shiftbed.scales import Scale

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Robustness:
    """Effective robustness of M models; every field is an array of shape (M,)."""

    predicted: Floats
    """β(x), the accuracy the baseline predicts."""
    effective: Floats
    """ρ."""
    low: Floats
    """Measurement interval of ρ."""
    high: Floats
    fit_share: Floats
    """Share of the measurement variance that comes from the fit."""
    id_share: Floats
    """… from the ID test images."""
    ood_share: Floats
    """… from the OOD test images."""
    paired: NDArray[np.bool_]
    """Joint resampling of images (True) or conservative independent noise (False)."""
    prediction_low: Floats
    """Where a baseline model's ρ would fall."""
    prediction_high: Floats
    p_value: Floats
    reference: Floats
    """ρ of the line y = x, that is x − β(x)."""
    share_of_gap: Floats
    """ρ / (x − β(x)), the distance already covered towards y = x."""
    extrapolated: NDArray[np.bool_]
    boundary: NDArray[np.bool_]
    """An accuracy is exactly 0 or 1; it was moved to (k+½)/(n+1) where a scale needed it."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """The fields by name, in order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_NUMBERS = tuple(
    field.name
    for field in fields(Robustness)
    if field.name not in ("paired", "extrapolated", "boundary")
)


def effective_robustness(
    baseline: Baseline,
    x: ArrayLike,
    y: ArrayLike,
    *,
    n_id: ArrayLike,
    n_ood: ArrayLike,
    position: ArrayLike | None = None,
    covariance: Floats | None = None,
    level: float = 0.95,
) -> Robustness:
    """ρ of models with ID accuracies x (M,) or (M, k) and OOD accuracies y (M,).

    ``n_id`` (M, k) and ``n_ood`` (M,) are test-set sizes, 0 for unknown (then ρ has no
    measurement interval). ``position[i]`` is the row of model i in the arrays the baseline was
    fitted on, −1 if it was not among them. ``covariance`` is ``image_covariance`` over exactly
    these rows, all baseline models among them, and makes the interval paired.

    >>> from shiftbed.analysis.baseline import fit_baseline
    >>> line = fit_baseline([0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.61, 0.72])
    >>> placed = effective_robustness(line, [0.65], [0.60], n_id=50_000, n_ood=10_000)
    >>> round(float(placed.effective[0]), 3), bool(placed.low[0] > 0)
    (0.048, True)
    """
    check_level(level)
    k = len(baseline.id_settings)
    points = check_fractions(np.asarray(x, np.float64).reshape(-1, k))
    target = check_fractions(np.asarray(y, np.float64).reshape(-1))
    m = len(target)
    if len(points) != m:
        raise InputError(f"x has {len(points)} models but y has {m}")
    sizes_id = np.broadcast_to(np.asarray(n_id, np.float64), (m, k))
    sizes_ood = np.broadcast_to(np.asarray(n_ood, np.float64).reshape(-1), (m,))
    where = np.full(m, -1) if position is None else np.asarray(position)
    inner_x, inner_y = off_boundary(points, sizes_id), off_boundary(target, sizes_ood)

    columns = {name: np.full(m, np.nan) for name in _NUMBERS}
    served = baseline.line_of(points)
    usable = np.isfinite(points).all(axis=1) & np.isfinite(target)
    for i, line in enumerate(baseline.lines):
        rows = np.flatnonzero((served == i) & usable)
        if not len(rows):
            continue
        placed = _place(
            line, baseline.scale, inner_x[rows], inner_y[rows], sizes_id[rows], sizes_ood[rows]
        )
        rho = target[rows] - placed.beta
        if covariance is None:
            noise = _independent(line, baseline.scale, placed)
        else:
            fitted = find_fitted(line, where)
            noise = joint_noise(line, baseline.scale, inner_x, inner_y, rows, fitted, covariance)
        part = {"predicted": placed.beta, "effective": rho}
        part |= _measurement(line, baseline.scale, placed, rho, noise, covariance is None, level)
        part |= _prediction(line, baseline, placed, where[rows], level)
        for name, values in part.items():
            columns[name][rows] = values
    if k == 1:
        columns["reference"] = points[:, 0] - columns["predicted"]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = columns["effective"] / columns["reference"]
        columns["share_of_gap"] = np.where(np.abs(columns["reference"]) > 1e-12, share, np.nan)
    edge = ((points <= 0) | (points >= 1)).any(axis=1) | (target <= 0) | (target >= 1)
    return Robustness(
        **columns,
        paired=np.full(m, covariance is not None),
        extrapolated=baseline.extrapolated(points),
        boundary=edge,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Placed:
    """Models on one line: accuracies (p, k) and (p,), sizes, and where the line puts them."""

    x: Floats
    y: Floats
    n_id: Floats
    n_ood: Floats
    a: Floats
    """(1, S(x)), shape (p, k+1)."""
    eta: Floats
    beta: Floats
    slope_beta: Floats
    """dS⁻¹/dη at η."""
    leverage: Floats
    """aᵀGa."""


def _place(line: Line, scale: Scale, x: Floats, y: Floats, n_id: Floats, n_ood: Floats) -> _Placed:
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.column_stack([np.ones(len(x)), scale.forward(x)])
        eta = a @ line.coefficients
        leverage = np.einsum("ij,jk,ik->i", a, line.gram_inverse, a)
    beta, slope = scale.inverse(eta), scale.inverse_derivative(eta)
    on_line = {"a": a, "eta": eta, "beta": beta, "slope_beta": slope, "leverage": leverage}
    return _Placed(x=x, y=y, n_id=n_id, n_ood=n_ood, **on_line)


def _independent(line: Line, scale: Scale, placed: _Placed) -> JointNoise:
    """Noise of ρ if every accuracy were measured on images of its own: an upper bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = placed.slope_beta[:, None] * line.coefficients[1:] * scale.derivative(placed.x)
        var_id = (gain**2 * binomial_variance(placed.x, placed.n_id)).sum(axis=1)
    cross = np.zeros(placed.x.shape[1])
    corrected, gram_inverse = attenuation(line, independent_noise(line), cross)
    with np.errstate(invalid="ignore"):
        leverage = np.einsum("ij,jk,ik->i", placed.a, gram_inverse, placed.a)
    return JointNoise(
        var_fit=placed.slope_beta**2 * line.sigma**2 * leverage,
        var_id=var_id,
        var_ood=binomial_variance(placed.y, placed.n_ood),
        coefficients=corrected,
        scatter=line.sigma,
    )


def _measurement(
    line: Line,
    scale: Scale,
    placed: _Placed,
    rho: Floats,
    noise: JointNoise,
    conservative: bool,
    level: float,
) -> dict[str, Floats]:
    """ρ − bias ± t·√(var_fit + var_id + var_ood).

    The bias is what noise in the baseline models' x does to the slope. Independent noise is the
    most of it there can be, so the conservative interval covers none to all of that; so does one
    that would otherwise leave out ρ itself, where too few models support the correction. Where a
    size is unknown there is neither an interval nor a share of its variance.
    """
    known = (placed.n_id > 0).all(axis=1) & (placed.n_ood > 0)
    total = np.where(known, noise.var_fit + noise.var_id + noise.var_ood, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        corrected = rho + placed.beta - scale.inverse(placed.a @ noise.coefficients)
        # Welch–Satterthwaite: only the fit's variance is estimated from few models.
        dof = line.dof * (np.minimum(total / np.maximum(noise.var_fit, 1e-300), 1e6)) ** 2
        shares = [
            np.where(total > 0, v / total, np.nan)
            for v in (noise.var_fit, noise.var_id, noise.var_ood)
        ]
    half = stdtrit(dof, 0.5 + level / 2) * np.sqrt(total)
    other = rho if conservative else np.where(np.abs(corrected - rho) > half, rho, corrected)
    return {
        "low": np.minimum(corrected, other) - half,
        "high": np.maximum(corrected, other) + half,
        "fit_share": shares[0],
        "id_share": shares[1],
        "ood_share": shares[2],
    }


def _prediction(
    line: Line, baseline: Baseline, placed: _Placed, where: NDArray[np.int64], level: float
) -> dict[str, Floats]:
    """Where a baseline model's ρ would fall, and the p-value of this model's.

    A model outside the fit: η ± t σ √(1 + h), h = aᵀGa, with m − k − 1 degrees of freedom. A model
    in the fit is judged against the fit without it, in closed form: with its residual r, weight v
    and leverage h, the fit without it misses it by r/(1 − vh), with variance
    σ₍₎²(1/v + h/(1 − vh)), σ₍₎² = (dof·σ² − v r²/(1 − vh))/(dof − 1) (externally studentised
    residuals). A model measured on fewer images than the baseline models are is allowed the extra
    binomial noise.
    """
    scale, dof = baseline.scale, np.full(len(where), float(line.dof))
    centre, variance = placed.eta.copy(), line.sigma**2 * (1.0 + placed.leverage)
    inside = np.full(len(where), -1, dtype=np.int64)
    at = np.searchsorted(line.fitted, where)  # fitted rows are in ascending order
    found = (at < line.n) & (line.fitted[np.minimum(at, line.n - 1)] == where)
    inside[found] = at[found]
    own = np.flatnonzero(inside >= 0)
    if len(own) and line.dof > 1:
        v, r = line.row_weights[inside[own]], line.residuals[inside[own]]
        rest = np.maximum(1.0 - v * placed.leverage[own], 1e-12)
        left = np.maximum(line.dof * line.sigma**2 - v * r**2 / rest, 0.0) / (line.dof - 1)
        centre[own] = placed.eta[own] - v * placed.leverage[own] * r / rest
        variance[own] = left * (1.0 / v + placed.leverage[own] / rest)
        dof[own] = line.dof - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = variance + _extra_noise(line, baseline, placed)
        scaled_y = scale.forward(placed.y)
        t = (scaled_y - centre) / np.sqrt(variance)
        half = stdtrit(dof, 0.5 + level / 2) * np.sqrt(variance)
    return {
        "prediction_low": scale.inverse(centre - half) - placed.beta,
        "prediction_high": scale.inverse(centre + half) - placed.beta,
        "p_value": two_sided_p(t, dof),
    }


def _extra_noise(line: Line, baseline: Baseline, placed: _Placed) -> Floats:
    """Binomial variance in scaled space beyond what baseline models have at the same accuracy."""

    def beyond(p: Floats, n: Floats, usual: Floats) -> Floats:
        more = binomial_variance(p, n) - binomial_variance(p, np.broadcast_to(usual, n.shape))
        slope = baseline.scale.derivative(p)
        return np.where((n > 0) & (usual > 0) & (n < usual), more * slope**2, 0.0)

    weights = line.coefficients[1:]
    on_x = beyond(placed.x, placed.n_id, baseline.sizes[:-1]) * weights**2
    inner = np.clip(placed.beta, 1e-6, 1 - 1e-6)
    return np.asarray(on_x.sum(axis=1)) + beyond(inner, placed.n_ood, baseline.sizes[-1])


def find_fitted(line: Line, where: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the fitted models, in the line's order."""
    row_of = {int(position): row for row, position in enumerate(where) if position >= 0}
    try:
        return np.array([row_of[int(position)] for position in line.fitted])
    except KeyError:
        raise InputError(
            "a paired interval needs per-image results of every baseline model"
        ) from None


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
    # A model and itself, measured on the same images: nothing differs.
    p_value = float(two_sided_p(delta / spread, dof)) if spread > 0 else 1.0
    return Difference(
        effective=delta,
        low=delta - half if known else float("nan"),
        high=delta + half if known else float("nan"),
        p_value=p_value if known else float("nan"),
        paired=noise is not None,
    )
