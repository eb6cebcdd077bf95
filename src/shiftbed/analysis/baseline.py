"""Baselines: what OOD accuracy the ID accuracy of ordinary models predicts.

taori2020, Section 2: β(x) = S⁻¹(w·S(x) + b), ordinary least squares in scaled space over the
baseline models only. shi2023, Section 4.2: the same with several ID accuracies,
β(x₁…x_k) = expit(Σ wᵢ logit xᵢ + b), a plane.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from shiftbed.analysis.estimators import huber_weights, resample, theil_sen
from shiftbed.analysis.families import Families, family_flags, leave_families_out
from shiftbed.analysis.intervals import (
    PerLine,
    beside,
    binomial_variance,
    check_fractions,
    check_level,
    column,
    off_boundary,
    quadratic,
    with_ones,
)
from shiftbed.errors import InputError
from shiftbed.scales import LOGIT, Scale, scale

Floats = NDArray[np.float64]
_ENOUGH = 30
"""Models (families) that a percentile band needs."""
OnBoundary = Literal["raise", "drop", "clip"]
Estimator = Literal["least-squares", "huber", "theil-sen"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """One least-squares line (plane, hyperplane) in scaled space, for x in [low, high).

    With design A (rows (1, S(x)), shape (m, k+1)) and weights W: θ = (b, w) = G AᵀW S(y),
    G = (AᵀWA)⁻¹, σ² = Σ Wᵢ rᵢ² / (m − k − 1). Several lines through the same models are the same
    record with a further axis in front of every array (``analysis.stacks``).
    """

    low: float
    high: float
    coefficients: Floats
    """θ = (intercept, weights…), shape (k+1,)."""
    gram_inverse: Floats
    """G, shape (k+1, k+1)."""
    sigma: PerLine
    """Residual standard deviation about the line, in scaled space."""
    design: Floats
    residuals: Floats
    row_weights: Floats
    """Fit weights, scaled to mean 1; all 1 for ordinary least squares."""
    noise: Floats
    """(m, k): binomial variance of S(x), taken as independent; 0 where sizes are unknown."""
    fitted: NDArray[np.int64]
    """Positions of this line's rows among the rows given to ``fit_baseline``."""
    draws: Floats
    """Bootstrap coefficients, shape (B, k+1); B = 0 if none were asked for."""
    families: Families | None = None
    """What leaving out each family does, where models have families."""

    @property
    def intercept(self) -> float:
        return float(self.coefficients[0])

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(float(w) for w in self.coefficients[1:])

    @property
    def n(self) -> int:
        return int(self.residuals.shape[-1])

    @property
    def dof(self) -> int:
        """Residual degrees of freedom, m − k − 1."""
        return self.n - int(self.coefficients.shape[-1])

    @property
    def covariance(self) -> Floats:
        """Covariance of (intercept, weights…): by family where families are known, else σ²G."""
        return self.independent_covariance if self.families is None else self.families.covariance

    @property
    def covariance_dof(self) -> int:
        """Its degrees of freedom: families − 1, or m − k − 1."""
        return self.dof if self.families is None else self.families.dof

    @property
    def independent_covariance(self) -> Floats:
        """σ²G, right if models were independent of each other."""
        return np.asarray(column(column(self.sigma)) ** 2 * self.gram_inverse)


@dataclass(frozen=True, kw_only=True, eq=False)
class Baseline:
    """A fitted baseline. ``lines`` has one entry, or two where there is a knee."""

    shift: str
    scale: Scale
    id_settings: tuple[str, ...]
    ood_setting: str
    lines: tuple[Line, ...]
    models: tuple[str, ...]
    """Names of the fitted models."""
    left_out: tuple[str, ...]
    """Models that were chosen but could not be fitted (missing, boundary, or on the knee)."""
    r2: float
    """Coefficient of determination in scaled space."""
    mae: float
    """Mean absolute error in accuracy (a fraction) over the fitted models."""
    support: Floats
    """(k, 2): lowest and highest fitted accuracy on each ID setting."""
    sizes: Floats
    """(k+1,): usual (median) test-set size of the fitted models, OOD last; 0 if unknown."""
    families: int | None = None
    """Families among the fitted models: the effective number of them. None if not known."""
    flags: tuple[str, ...] = ()
    """What a reader must know of the statistics of this fit."""

    @property
    def n(self) -> int:
        return len(self.models)

    @property
    def weights(self) -> tuple[float, ...]:
        return self.lines[0].weights

    @property
    def intercept(self) -> float:
        return self.lines[0].intercept

    @property
    def covariance(self) -> Floats:
        return self.lines[0].covariance

    def line_of(self, x: ArrayLike) -> NDArray[np.int64]:
        """Index of the line that serves each row of x (decided by the first ID accuracy)."""
        return serving(self.lines, _matrix(x, len(self.id_settings)))

    def predict(self, x: ArrayLike) -> Floats:
        """β(x) for ID accuracies of shape (n,) or (n, k); shape (n,)."""
        points = check_fractions(_matrix(x, len(self.id_settings)))
        which = self.line_of(points)
        predicted = np.full(len(points), np.nan)
        for i, line in enumerate(self.lines):
            rows = which == i
            with np.errstate(divide="ignore", invalid="ignore"):
                eta = with_ones(self.scale.forward(points[rows])) @ line.coefficients
            predicted[rows] = self.scale.inverse(eta)
        return predicted

    @property
    def band_kind(self) -> Literal["bootstrap", "analytic"]:
        """``bootstrap`` where models were resampled and there are 30 (families) or more."""
        enough = all(
            len(line.draws) and (line.n if line.families is None else line.families.n) >= _ENOUGH
            for line in self.lines
        )
        return "bootstrap" if enough else "analytic"

    def band(
        self,
        x: ArrayLike,
        level: float = 0.95,
        kind: Literal["auto", "bootstrap", "analytic"] = "auto",
    ) -> tuple[Floats, Floats]:
        """Confidence band of the line at x: percentiles over resampled models, or analytic.

        By default ``band_kind``: percentiles of few models (families) are too narrow.
        The analytic band is S⁻¹(η ± t √(aᵀVa)), a = (1, S(x)), V the line's covariance.
        """
        points = check_fractions(_matrix(x, len(self.id_settings)))
        which, tail = self.line_of(points), (1.0 - check_level(level)) / 2.0
        kind = self.band_kind if kind == "auto" else kind
        low, high = np.full(len(points), np.nan), np.full(len(points), np.nan)
        for i, line in enumerate(self.lines):
            rows = which == i
            if not rows.any():
                continue
            a = with_ones(self.scale.forward(points[rows]))
            if kind == "bootstrap":
                if not len(line.draws):
                    raise InputError("this baseline was fitted without bootstrap draws")
                etas = a @ line.draws.T
                low[rows], high[rows] = self.scale.inverse(
                    np.nanquantile(etas, [tail, 1.0 - tail], axis=1)
                )
            else:
                eta = a @ line.coefficients
                spread = np.sqrt(quadratic(a, line.covariance))
                half = float(stdtrit(line.covariance_dof, 1.0 - tail)) * spread
                low[rows], high[rows] = self.scale.inverse(np.stack([eta - half, eta + half]))
        return low, high

    def extrapolated(self, x: ArrayLike) -> NDArray[np.bool_]:
        """Whether a row of x lies outside the fitted range on any ID setting."""
        return outside(self.support, _matrix(x, len(self.id_settings)))


def serving(lines: Sequence[Line], x: Floats) -> NDArray[np.int64]:
    """Which line serves each row of x (…, n, k), decided by the first ID accuracy."""
    index = np.zeros(x.shape[:-1], dtype=np.int64)
    for i, line in enumerate(lines[1:], 1):
        index[x[..., 0] >= line.low] = i
    return index


def outside(support: Floats, x: Floats) -> NDArray[np.bool_]:
    """Whether a row of x (…, n, k) lies outside the support (…, k, 2) in any column."""
    low, high = support[..., None, :, 0] - 1e-12, support[..., None, :, 1] + 1e-12
    return np.asarray(((x < low) | (x > high)).any(axis=-1))


def fit_baseline(
    x: ArrayLike,
    y: ArrayLike,
    *,
    models: Sequence[str] | None = None,
    shift: str = "",
    id_settings: Sequence[str] | None = None,
    ood_setting: str = "ood",
    scale: str | Scale = LOGIT,
    knee: float | None = None,
    sizes: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    families: Sequence[str | None] | None = None,
    estimator: Estimator = "least-squares",
    on_boundary: OnBoundary = "raise",
    bootstrap: int = 1000,
    seed: int = 0,
) -> Baseline:
    """Fit a baseline through models with ID accuracies x (m,) or (m, k) and OOD accuracies y.

    Rows with a missing (NaN) accuracy are left out and named in ``left_out``. Accuracies of
    exactly 0 or 1 have no finite probit or logit: ``on_boundary`` raises, drops the model (it is
    named in ``left_out``), or clips to (k+½)/(n+1). ``sizes`` (m, k+1) are the test-set sizes of
    x… and y; with them the noise of x is known and attenuation of the slope can be allowed for.
    ``knee`` splits the models at that x into two separate lines; a model exactly on it belongs
    to neither. ``weights`` makes it weighted least squares. ``families`` (m,) says which models
    are related (see ``analysis.families``; None is a family of its own): the line stays as it
    is, its uncertainty is taken by family, and so is the bootstrap. ``estimator`` is a choice
    to see how far single models matter: huber (least squares with Huber's weights, k = 1.345) or
    theil-sen (the median of the slopes between all pairs of models; one ID setting); intervals
    are then those of least squares about that line.

    >>> line = fit_baseline([0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.61, 0.72])
    >>> line.n, round(line.weights[0], 3), round(line.r2, 3)
    (4, 0.976, 0.999)
    """
    chosen = _scale(scale)
    given = np.asarray(x, dtype=np.float64)
    k = 1 if given.ndim == 1 else given.shape[1]
    points, target = check_fractions(_matrix(given, k)), check_fractions(y)
    if len(points) != len(target):
        raise InputError(f"x has {len(points)} models but y has {len(target)}")
    if on_boundary not in get_args(OnBoundary):
        raise InputError(f"on_boundary must be raise, drop or clip, got {on_boundary!r}")
    if estimator not in get_args(Estimator):
        options = ", ".join(get_args(Estimator))
        raise InputError(f"estimator must be one of {options}, got {estimator!r}")
    if estimator == "theil-sen" and k > 1:
        raise InputError("estimator theil-sen is defined for one ID setting only")
    if bootstrap < 0:
        raise InputError(f"bootstrap must not be negative, got {bootstrap}")
    names = tuple(models) if models is not None else tuple(f"model {i}" for i in range(len(target)))
    settings = tuple(id_settings) if id_settings else tuple(f"id {i + 1}" for i in range(k))
    if families is not None and len(families) != len(target):
        raise InputError(f"families must have {len(target)} entries, got {len(families)}")
    related = None if families is None else _named(families)
    if knee is not None and k > 1:
        raise InputError("a knee is defined for one ID setting only")

    table = beside(points, target)
    images = np.zeros(table.shape) if sizes is None else np.asarray(sizes, np.float64)
    images = np.broadcast_to(images, table.shape)
    if on_boundary == "clip" and not chosen.bounded:
        if sizes is None:
            raise InputError("clipping accuracies of 0 or 1 needs the test-set sizes")
        table = off_boundary(table, images)
    usable = np.asarray(np.isfinite(table).all(axis=1), dtype=bool)
    if knee is not None:
        usable &= np.abs(points[:, 0] - knee) > 1e-9
    if not chosen.bounded:
        edge = usable & np.asarray((table <= 0.0) | (table >= 1.0)).any(axis=1)
        if edge.any() and on_boundary != "drop":
            found, some = int(edge.sum()), f"{names[int(np.flatnonzero(edge)[0])]!r}"
            some += f" and {found - 1} more have" if found > 1 else " has"
            raise InputError(
                f"{shift or ood_setting}: {some} an accuracy of exactly 0 or 1 ({found} of "
                f"{int(usable.sum())} models to fit), which has no finite {chosen.name}; "
                "on_boundary drop or clip (--on-boundary), or the linear scale, can fit them"
            )
        usable &= ~edge
    row_weights = np.ones(len(table)) if weights is None else np.asarray(weights, np.float64)
    scaled = chosen.forward(np.where(usable[:, None], table, 0.5))
    edges = [0.0, 1.0 + 1e-9] if knee is None else [0.0, knee, 1.0 + 1e-9]
    where = f" for {shift or ood_setting}"
    lines = []
    for low, high in pairwise(edges):
        rows = np.flatnonzero(usable & (points[:, 0] >= low) & (points[:, 0] < high))
        side = "" if knee is None else f" with x between {low:g} and {min(high, 1.0):g}"
        a = with_ones(scaled[rows, :k])
        _check_design(a, [settings[i] for i in range(k)], where + side)
        noise = binomial_variance(table[rows, :k], images[rows, :k])
        noise = noise * chosen.derivative(table[rows, :k]) ** 2
        weigh = row_weights[rows]
        if estimator == "huber":
            weigh = huber_weights(a, scaled[rows, k], weigh)
        solved = _solve(a, scaled[rows, k], weigh)
        if estimator == "theil-sen":
            solved |= theil_sen(a, scaled[rows, k], weigh)
        clusters = None
        if related is not None and len(set(related[rows])) < len(rows):
            fit = solved["residuals"], solved["row_weights"], solved["gram_inverse"]
            clusters = leave_families_out(a, *fit, related[rows].tolist())
        lines.append(
            Line(
                low=low,
                high=min(high, 1.0),
                **solved,
                noise=noise,
                fitted=rows,
                draws=resample(a, scaled[rows, k], weigh, bootstrap, seed, clusters),
                families=clusters,
            )
        )
    fitted = np.concatenate([line.fitted for line in lines])
    residual = np.concatenate([line.residuals for line in lines])
    total = scaled[fitted, k] - scaled[fitted, k].mean()
    predicted = chosen.inverse(scaled[fitted, k] - residual)
    sst = float(total @ total)
    return Baseline(
        shift=shift,
        scale=chosen,
        id_settings=settings,
        ood_setting=ood_setting,
        lines=tuple(lines),
        models=tuple([names[i] for i in fitted.tolist()]),
        left_out=tuple(names[i] for i in sorted(set(range(len(names))) - set(fitted.tolist()))),
        r2=1.0 - float(residual @ residual) / sst if sst > 0 else float("nan"),
        mae=float(np.abs(table[fitted, k] - predicted).mean()),
        support=np.stack([table[fitted, :k].min(axis=0), table[fitted, :k].max(axis=0)], axis=-1),
        sizes=_usual(images[fitted]),
        families=None if related is None else len(set(related[fitted])),
        flags=() if related is None else _family_flags(lines, related),
    )


def _usual(images: Floats) -> Floats:
    """The median of each column."""
    if (images == images[0]).all():
        return np.array(images[0], dtype=np.float64)
    return np.asarray(np.median(images, axis=0))


def _named(families: Sequence[str | None]) -> NDArray[np.object_]:
    """The families' names; a model without one is a family of its own."""
    return np.array(
        [f"\0{i}" if name is None else name for i, name in enumerate(families)], dtype=object
    )


def _family_flags(lines: Sequence[Line], related: NDArray[np.object_]) -> tuple[str, ...]:
    said = (family_flags(related[one.fitted].tolist(), one.families is not None) for one in lines)
    return tuple(dict.fromkeys(text for flags in said for text in flags))


def _solve(a: Floats, y: Floats, w: Floats) -> dict[str, Any]:
    """Weighted least squares of y (m,) on a (m, p)."""
    w = w / w.mean()
    weighted = a * w[:, None]
    gram_inverse = np.linalg.inv(a.T @ weighted)
    theta = gram_inverse @ (weighted.T @ y)
    theta += gram_inverse @ (weighted.T @ (y - a @ theta))  # one step of refinement
    residuals = y - a @ theta
    return {
        "coefficients": theta,
        "gram_inverse": gram_inverse,
        "sigma": float(np.sqrt((w * residuals) @ residuals / (len(y) - a.shape[1]))),
        "design": a,
        "residuals": residuals,
        "row_weights": w,
    }


def _check_design(a: Floats, settings: list[str], where: str) -> None:
    """Refuse what cannot be fitted, saying why."""
    models, p = a.shape
    if models < p + 1:
        raise InputError(
            f"too few models{where}: a fit through {p - 1} ID "
            f"setting{'s' if p > 2 else ''} needs at least {p + 1}, got {models}"
        )
    for i, setting in enumerate(settings):
        if np.ptp(a[:, i + 1]) < 1e-12:
            raise InputError(f"all {models} models have the same accuracy on {setting!r}{where}")
    if p > 2 and np.linalg.matrix_rank(a - np.r_[0.0, a.mean(axis=0)[1:]]) < p:
        raise InputError(f"ID settings {', '.join(settings)} are collinear{where}")


def _matrix(x: ArrayLike, k: int) -> Floats:
    array = np.asarray(x, dtype=np.float64)
    if array.ndim == 0:
        array = array[None]
    if array.ndim == 1:
        array = array[:, None] if k == 1 else array[None, :]
    if array.ndim != 2 or array.shape[1] != k:
        raise InputError(f"expected {k} ID accuracies per model, got an array of {array.shape}")
    return array


_scale = scale
