"""Effective robustness with two intervals that answer two questions.

ρ(f) = acc_ood(f) − β(acc_id(f)) (taori2020, Section 2), in accuracy.

*How precisely is ρ measured?* The measurement interval: noise of the test images on both axes
plus the uncertainty of the line. Models share test images, so their errors move together; where
per-image results exist the joint covariance of all accuracies is used (the closed form of
resampling images jointly over models, see ``analysis.noise``) and the interval is *paired*.
Where only accuracies exist their covariance is *modelled* (``analysis.modelled``), or taken as
*independent* for models unlike the fitted ones, or measured on images of their own. The line's
uncertainty is by family where families are known (``analysis.families``).

*Is the model unusual?* The prediction interval: where ρ of another baseline model would fall,
which adds their scatter about the line (``analysis.scatter``). p-values come from it; a model that
is itself in the fit set is judged against the fit without it and its family.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.baseline import Baseline, Line, outside, serving
from shiftbed.analysis.intervals import (
    beside,
    binomial_variance,
    check_fractions,
    check_level,
    column,
    dot,
    off_boundary,
    quadratic,
    t_quantile,
    transposed,
    wilson,
    with_ones,
)
from shiftbed.analysis.noise import (
    ImageNoise,
    JointNoise,
    Paired,
    attenuation,
    independent_noise,
    joint_noise,
)
from shiftbed.analysis.scatter import leave_out, line_tails, new_model, tail_p, tail_quantile
from shiftbed.analysis.stacks import Stack
from shiftbed.errors import InputError
from shiftbed.scales import Scale

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


FEW = 30
"""With fewer errors or right answers than this an interval is made otherwise, and flagged."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Robustness:
    """Effective robustness of M models; every field is an array (M,), or (S, M) of a stack."""

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
    """Whether the interval comes from answers per image."""
    interval: NDArray[np.object_]
    """What it comes from: ``paired``, ``modelled``, ``independent``; None if there is none."""
    prediction_low: Floats
    """Where a baseline model's ρ would fall."""
    prediction_high: Floats
    p_value: Floats
    reference: Floats
    """ρ of the line y = x, that is x − β(x)."""
    share_of_gap: Floats
    """ρ / (x − β(x)), the distance already covered towards y = x."""
    share_low: Floats
    """Its interval; none where the gap is not significantly different from 0."""
    share_high: Floats
    extrapolated: NDArray[np.bool_]
    boundary: NDArray[np.bool_]
    """An accuracy is exactly 0 or 1; it was moved to (k+½)/(n+1) where a scale needed it."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """The fields by name, in order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_NUMBERS = tuple(
    field.name
    for field in fields(Robustness)
    if field.name not in ("paired", "interval", "extrapolated", "boundary")
)


def effective_robustness(
    baseline: Baseline | Stack,
    x: ArrayLike,
    y: ArrayLike,
    *,
    n_id: ArrayLike,
    n_ood: ArrayLike,
    position: ArrayLike | None = None,
    covariance: Floats | ImageNoise | None = None,
    like: ArrayLike | None = None,
    own_images: ArrayLike | None = None,
    level: float = 0.95,
) -> Robustness:
    """ρ of models with ID accuracies x (M,) or (M, k) and OOD accuracies y (M,).

    ``n_id`` (M, k) and ``n_ood`` (M,) are test-set sizes, 0 for unknown (then ρ has no
    measurement interval). ``position[i]`` is the row of model i in the arrays the baseline was
    fitted on, −1 if it was not among them. ``covariance`` is ``image_covariance`` over exactly
    these rows, all baseline models among them, which makes the interval paired, or ``Modelled``.
    It holds for models whose errors are like the fitted models' (``like``, default all); the
    others' image noise is taken as independent of theirs. ``own_images`` are models measured on
    other images than the fitted ones, whose line then errs by itself. A stack of S baselines
    takes all of these but ``position`` with (S,) in front, and gives arrays (S, M).

    >>> from shiftbed.analysis.baseline import fit_baseline
    >>> line = fit_baseline([0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.61, 0.72])
    >>> placed = effective_robustness(line, [0.65], [0.60], n_id=50_000, n_ood=10_000)
    >>> round(float(placed.effective[0]), 3), bool(placed.low[0] > 0)
    (0.048, True)
    """
    check_level(level)
    fit = baseline if isinstance(baseline, Stack) else Stack.one(baseline)
    before, k = fit.support.shape[:-2], fit.support.shape[-2]
    points = check_fractions(np.asarray(x, np.float64).reshape(*before, -1, k))
    target = check_fractions(np.asarray(y, np.float64).reshape(*before, -1))
    shape, m = target.shape, target.shape[-1]
    if points.shape[-2] != m:
        raise InputError(f"x has {points.shape[-2]} models but y has {m}")
    sizes_id = np.broadcast_to(np.asarray(n_id, np.float64), points.shape)
    sizes_ood = np.broadcast_to(np.asarray(n_ood, np.float64), shape)
    where = np.full(m, -1) if position is None else np.asarray(position)
    apart = np.broadcast_to(False if own_images is None else np.asarray(own_images, bool), shape)
    shares = np.broadcast_to(True if like is None else np.asarray(like, bool), shape) & ~apart
    shares |= where >= 0
    images = covariance
    if isinstance(images, np.ndarray):
        images = Paired(covariance=images, models=m)
    usable = np.isfinite(points).all(axis=-1) & np.isfinite(target)
    inner_x = off_boundary(np.where(usable[..., None], points, 0.5), sizes_id)
    inner_y = off_boundary(np.where(usable, target, 0.5), sizes_ood)

    columns = {name: np.full(shape, np.nan) for name in _NUMBERS}
    served = serving(fit.lines, points)
    for i, line in enumerate(fit.lines):
        mine = (served == i) & usable
        rows = np.flatnonzero(mine.any(axis=tuple(range(len(before)))))
        if not len(rows):
            continue
        accuracies = inner_x[..., rows, :], inner_y[..., rows]
        sizes = sizes_id[..., rows, :], sizes_ood[..., rows]
        placed = place_on(line, fit.scale, *accuracies, *sizes)
        rho = target[..., rows] - placed.beta
        if images is None:
            noise = independent_errors(line, fit.scale, placed)
        else:
            given = (line, fit.scale, inner_x, inner_y, rows, find_fitted(line, where))
            which = {"shares": shares[..., rows], "carries": (shares | apart)[..., rows]}
            noise = joint_noise(*given, images, **which)
        part = {"predicted": placed.beta, "effective": rho}
        part |= _measurement(line, fit.scale, placed, rho, noise, images is None, level)
        part |= _prediction(line, fit, placed, where[rows], noise, apart[..., rows], level)
        for name, values in part.items():
            there = columns[name][..., rows]
            columns[name][..., rows] = np.where(mine[..., rows], values, there)
    if k == 1:
        columns["reference"] = points[..., 0] - columns["predicted"]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = columns["effective"] / columns["reference"]
        columns["share_of_gap"] = np.where(np.abs(columns["reference"]) > 1e-12, share, np.nan)
    edge = ((points <= 0) | (points >= 1)).any(axis=-1) | (target <= 0) | (target >= 1)
    joint = "paired" if isinstance(images, Paired) else "modelled"
    kind = np.full(shape, None, dtype=object)
    kind[np.isfinite(columns["low"])] = "independent"
    if images is not None:
        kind[np.isfinite(columns["low"]) & shares] = joint
    return Robustness(
        **columns,
        paired=kind == "paired",
        interval=kind,
        extrapolated=outside(fit.support, points),
        boundary=edge,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class OnLine:
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


def place_on(line: Line, scale: Scale, x: Floats, y: Floats, n_id: Floats, n_ood: Floats) -> OnLine:
    with np.errstate(divide="ignore", invalid="ignore"):
        a = with_ones(scale.forward(x))
        eta = (a @ line.coefficients[..., None])[..., 0]
    beta, slope = scale.inverse(eta), scale.inverse_derivative(eta)
    on_line = {"a": a, "eta": eta, "beta": beta, "slope_beta": slope}
    return OnLine(x=x, y=y, n_id=n_id, n_ood=n_ood, **on_line)


def independent_errors(line: Line, scale: Scale, placed: OnLine) -> JointNoise:
    """Noise of ρ if every accuracy were measured on images of its own: an upper bound."""
    w = line.coefficients[..., None, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = placed.slope_beta[..., None] * w * scale.derivative(placed.x)
        var_id = (gain**2 * binomial_variance(placed.x, placed.n_id)).sum(axis=-1)
    cross = np.zeros(w.shape[:-2] + w.shape[-1:])
    corrected, jacobian = attenuation(line, independent_noise(line), cross)
    reach = placed.slope_beta[..., None] * placed.a
    covariance = jacobian @ line.covariance @ transposed(jacobian)
    with np.errstate(invalid="ignore"):
        var_fit = quadratic(reach, covariance)
    rows, p = reach.shape[-2:]
    return JointNoise(
        var_fit=var_fit,
        var_id=var_id,
        var_ood=binomial_variance(placed.y, placed.n_ood),
        coefficients=corrected,
        scatter=line.sigma,
        own=beside(-gain, np.ones(var_id.shape)),
        reach=reach,
        fit_covariance=covariance,
        mixed=np.zeros((*cross.shape[:-1], p, rows, p)),
        diagonal=_diagonal(placed),
        line_noise=np.zeros((*cross.shape[:-1], p, p)),
        carries=np.zeros(var_id.shape),
    )


def _diagonal(placed: OnLine) -> Floats:
    """(…, k+1, k+1, p): the binomial variances of each model's accuracies."""
    sides = beside(placed.x, placed.y), beside(placed.n_id, placed.n_ood)
    own = binomial_variance(*sides)
    return np.asarray(np.einsum("...is,st->...sti", own, np.eye(own.shape[-1])))


def _measurement(
    line: Line,
    scale: Scale,
    placed: OnLine,
    rho: Floats,
    noise: JointNoise,
    conservative: bool,
    level: float,
) -> dict[str, Floats]:
    """ρ − bias ± t·√(var_fit + var_id + var_ood).

    The bias is what noise in the baseline models' x does to the slope. Independent noise is the
    most of it there can be, so the conservative interval covers none to all of that; so does one
    that would otherwise leave out ρ itself, where too few models support the correction. Where a
    size is unknown there is neither an interval nor a share of its variance. With few errors or
    right answers the two sides differ, see ``_few``.
    """
    known = (placed.n_id > 0).all(axis=-1) & (placed.n_ood > 0)
    total = np.where(known, noise.var_fit + noise.var_id + noise.var_ood, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        eta = (placed.a @ noise.coefficients[..., None])[..., 0]
        corrected = rho + placed.beta - scale.inverse(eta)
        # Welch–Satterthwaite: only the fit's variance is estimated from few models.
        dof = line.covariance_dof * (
            np.minimum(total / np.maximum(noise.var_fit, 1e-300), 1e6) ** 2
        )
        shares = [
            np.where(total > 0, v / total, np.nan)
            for v in (noise.var_fit, noise.var_id, noise.var_ood)
        ]
    quantile = t_quantile(np.where(np.isfinite(dof), dof, 1e12), level)
    half = quantile * np.sqrt(total)
    other = rho if conservative else np.where(np.abs(corrected - rho) > half, rho, corrected)
    down, up = _few(line, scale, placed, noise, quantile, half)
    return {
        "low": np.minimum(corrected, other) - down,
        "high": np.maximum(corrected, other) + up,
        **_share_of_gap(placed, noise, rho, known, quantile),
        "fit_share": shares[0],
        "id_share": shares[1],
        "ood_share": shares[2],
    }


def _few(
    line: Line, scale: Scale, placed: OnLine, noise: JointNoise, quantile: Floats, half: Floats
) -> tuple[Floats, Floats]:
    """How far the interval reaches down and up where an accuracy rests on few errors.

    Below 30 errors or right answers an accuracy's own noise is not normal, and S(x) bends within
    it. Each side then takes the distance to the score interval's end in place of t standard
    errors (variance estimates recovered: Zou and Donner 2008): with d_s the distance in ρ that the
    end of setting s makes and e_s the t standard errors it stands for, half² + Σ_s (d_s² − e_s²),
    and never less than half.
    """
    k = placed.x.shape[-1]
    p, n = beside(placed.x, placed.y), beside(placed.n_id, placed.n_ood)
    few = (n > 0) & (np.minimum(p, 1 - p) * n < FEW)
    at = np.nonzero(few.any(axis=-1))
    if not len(at[0]):
        return half, half
    x, beta, coefficients = placed.x[at], placed.beta[at], line.coefficients[at[:-1]]
    quantile, half_here = quantile[at], half[at]
    lower, upper = half_here**2, half_here**2
    ends = wilson(p[at], n[at], quantile[:, None])
    for s in range(k + 1):
        usual = (quantile * noise.own[..., s][at]) ** 2 * noise.diagonal[..., s, s, :][at]
        moved = []
        for end in ends:
            if s == k:
                moved.append(end[:, s] - placed.y[at])
                continue
            other = x.copy()
            other[:, s] = np.clip(end[:, s], 1e-9, 1 - 1e-9)
            moved.append(beta - scale.inverse(dot(with_ones(scale.forward(other)), coefficients)))
        lowest, highest = np.minimum(*moved), np.maximum(*moved)
        here = few[..., s][at]
        lower = lower + np.where(here, lowest**2 - usual, 0.0)
        upper = upper + np.where(here, highest**2 - usual, 0.0)
    down, up = half.copy(), half.copy()
    down[at] = np.sqrt(np.maximum(lower, half_here**2))
    up[at] = np.sqrt(np.maximum(upper, half_here**2))
    return down, up


def _share_of_gap(
    placed: OnLine, noise: JointNoise, rho: Floats, known: Bools, quantile: Floats
) -> dict[str, Floats]:
    """Fieller's interval of ρ/(x − β(x)), whose two parts share the line and the ID images.

    All s with (ρ − s g)² ≤ t² Var(ρ − s g), g = x − β(x): an interval if g differs from 0.
    """
    if placed.x.shape[-1] > 1:
        return {}
    gap, own = placed.x[..., 0] - placed.beta, noise.own
    of_gap = np.stack([1.0 + own[..., 0], np.zeros(gap.shape)], axis=-1)
    t2 = quantile**2
    gaps, both, owns = noise.covariances((of_gap, of_gap), (own, of_gap), (own, own))
    a, b, c = gap**2 - t2 * gaps, rho * gap - t2 * both, rho**2 - t2 * owns
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(b**2 - a * c)
        ends = np.where(known & (a > 0), np.stack([b - half, b + half]) / a, np.nan)
    return {"share_low": ends[0], "share_high": ends[1]}


def _prediction(
    line: Line,
    fit: Stack,
    placed: OnLine,
    where: NDArray[np.int64],
    noise: JointNoise,
    apart: NDArray[np.bool_],
    level: float,
) -> dict[str, Floats]:
    """Where a baseline model's ρ would fall, and the p-value of this model's.

    The variance is that of a new model about the line (``new_model``), or about the fit without
    this model and its family (``leave_out``); the tails are those of the fitted models. A model
    measured on fewer images than the baseline models are is allowed the extra binomial noise; one
    on images of its own also what the line owes to its images, for residuals do not show it.
    """
    scale = fit.scale
    without = leave_out(line)
    tails = line_tails(line)
    centre = placed.eta.copy()
    variance, dof = new_model(line, placed.a)
    at = np.searchsorted(line.fitted, where)  # fitted rows are in ascending order
    found = (at < line.n) & (line.fitted[np.minimum(at, line.n - 1)] == where)
    inside = at[found]
    centre[..., found] = without.centre[..., inside]
    variance[..., found] = without.variance[..., inside]
    dof[..., found] = without.dof[..., inside]
    with np.errstate(divide="ignore", invalid="ignore"):
        extra = _extra_noise(line, fit, placed)
        if apart.any():
            extra = np.where(apart, _own_noise(line, scale, placed, noise), extra)
        variance = variance + extra
        t = (scale.forward(placed.y) - centre) / np.sqrt(variance)
        half = tail_quantile(level, dof, tails) * np.sqrt(variance)
    return {
        "prediction_low": scale.inverse(centre - half) - placed.beta,
        "prediction_high": scale.inverse(centre + half) - placed.beta,
        "p_value": tail_p(t, dof, tails),
    }


def _own_noise(line: Line, scale: Scale, placed: OnLine, noise: JointNoise) -> Floats:
    """Image noise of a model on images of its own and of the line, beyond that in residuals."""
    weights = line.coefficients[..., None, 1:]
    inner = np.clip(placed.beta, 1e-6, 1 - 1e-6)
    on_x = binomial_variance(placed.x, placed.n_id) * scale.derivative(placed.x) ** 2
    on_y = binomial_variance(inner, placed.n_ood) * scale.derivative(inner) ** 2
    of_line = quadratic(placed.a, noise.line_noise)
    known = column(line.sigma) ** 2 - column(noise.scatter) ** 2
    return np.asarray(np.maximum((on_x * weights**2).sum(axis=-1) + on_y + of_line - known, 0.0))


def _extra_noise(line: Line, fit: Stack, placed: OnLine) -> Floats:
    """Binomial variance in scaled space beyond what baseline models have at the same accuracy."""
    usual, known = fit.sizes[..., None, :], beside(placed.n_id, placed.n_ood)
    fewer = (known > 0) & (known < usual)
    if not fewer.any():
        return np.zeros(placed.y.shape)
    inner = beside(placed.x, np.clip(placed.beta, 1e-6, 1 - 1e-6))
    more = binomial_variance(inner, known) - binomial_variance(inner, usual)
    beyond = np.where(fewer, more * fit.scale.derivative(inner) ** 2, 0.0)
    weights = line.coefficients[..., None, 1:]
    return np.asarray((beyond[..., :-1] * weights**2).sum(axis=-1) + beyond[..., -1])


def find_fitted(line: Line, where: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the fitted models, in the line's order."""
    row_of = np.full(max(int(where.max(initial=-1)), int(line.fitted.max())) + 1, -1)
    there = np.flatnonzero(where >= 0)
    row_of[where[there]] = there
    rows = row_of[line.fitted]
    if (rows < 0).any():
        raise InputError("a paired interval needs per-image results of every baseline model")
    return np.asarray(rows)
