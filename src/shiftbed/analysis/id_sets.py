"""Which ID sets to control for, when there are more than two.

shi2023 (Section 4) predicts OOD accuracy from two ID accuracies at once, one per kind of training
data. With k ID sets, S(y) = Σ w_i S(x_i) + b has 2^k − 1 sub-models. Each is judged by its
leave-one-out error, which needs no refitting: with hat values h_i = a_iᵀ(AᵀA)⁻¹a_i the error of
model i when it is left out is e_i/(1 − h_i), and PRESS = Σ (e_i/(1 − h_i))². Ridge shrinks all
weights instead; its path shows which survive. ID sets that say the same are warned about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.baseline import Baseline
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
MOST = 12
"""At most so many ID sets: all their subsets are fitted."""
INFLATION = 10.0
CONDITION = 30.0
ALIKE = 0.95
"""From where on variance inflation, condition number and |r| are warned about."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IdSubset:
    """A fit through some of the ID sets, judged on models it has not seen."""

    id_settings: tuple[str, ...]
    n: int
    press: float
    """Σ of squared leave-one-out errors, in scaled space."""
    loo_r2: float
    """1 − PRESS/Σ(S(y) − mean)²: R² on models left out."""
    loo_mae: float
    """Mean absolute leave-one-out error in accuracy (a fraction)."""
    loo_mae_se: float
    """Its standard error over models."""
    r2: float
    worse: float
    """Mean difference to the best subset's squared leave-one-out errors, per model."""
    worse_se: float
    """Standard error of that difference, paired over models."""
    best: bool
    """The least PRESS."""
    chosen: bool
    """The fewest ID sets not worse than the best by more than one standard error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgePath:
    """Ridge weights over penalties; ID accuracies standardised in scaled space."""

    penalties: Floats
    """(p,): λ of Σe² + λΣw²."""
    weights: Floats
    """(p, k): per standard deviation of S(x_i)."""
    degrees: Floats
    """(p,): effective number of weights, Σ d²/(d² + λ) over singular values d."""
    press: Floats
    """(p,): leave-one-out squared error, the intercept not penalised."""
    best: int
    """Penalty with the least of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Collinearity:
    """How far several ID accuracies say the same."""

    inflation: Floats
    """(k,): VIF = 1/(1 − R²) of each column given the others: by how much its weight's variance
    is larger than it would be if the others were uncorrelated with it."""
    condition: float
    """Largest over smallest singular value of the standardised columns."""
    correlation: Floats
    """(k, k)"""
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class IdSets:
    """What there is to know before choosing ID sets."""

    baseline: Baseline
    """The fit through all of them."""
    subsets: tuple[IdSubset, ...]
    """All of them, the least PRESS first."""
    ridge: RidgePath
    collinearity: Collinearity

    @property
    def best(self) -> IdSubset:
        return self.subsets[0]

    @property
    def chosen(self) -> IdSubset:
        return next(subset for subset in self.subsets if subset.chosen)


def examine(whole: Baseline, penalties: ArrayLike | None = None) -> IdSets:
    """Subsets, ridge path and warnings for the ID settings of a plane.

    All subsets are fitted on the same models: those that have every ID accuracy.

    >>> from shiftbed.analysis.baseline import fit_baseline
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.uniform(0.3, 0.8, (3, 60))
    >>> plane = fit_baseline(np.column_stack([a, b, c]), 0.5 * a + 0.3 * b, scale="linear",
    ...                      id_settings=["a", "b", "c"])
    >>> examine(plane).chosen.id_settings
    ('a', 'b')
    """
    if len(whole.id_settings) < 2:
        raise InputError(f"choosing ID settings needs at least 2, got {len(whole.id_settings)}")
    piece = whole.lines[0]
    if len(whole.lines) > 1 or np.ptp(piece.row_weights) > 1e-12:
        raise InputError("ID settings are chosen for one unweighted fit without a knee")
    if len(whole.id_settings) > MOST:
        raise InputError(
            f"{len(whole.id_settings)} ID settings have too many subsets to try; "
            f"give at most {MOST}"
        )
    target = piece.design @ piece.coefficients + piece.residuals
    if np.ptp(target) < 1e-12:
        raise InputError(f"all {whole.n} models have the same accuracy on {whole.ood_setting!r}")
    hat = np.einsum("ij,jk,ik->i", piece.design, piece.gram_inverse, piece.design)
    if hat.max() > 1 - 1e-9:
        alone = whole.models[int(hat.argmax())]
        raise InputError(f"model {alone!r} alone determines the weight of an ID setting; drop it")
    scaled = piece.design[:, 1:]
    return IdSets(
        baseline=whole,
        subsets=_subsets(whole, scaled, target),
        ridge=ridge_path(scaled, target, penalties),
        collinearity=collinearity(scaled, whole.id_settings),
    )


def press(design: Floats, y: Floats) -> Floats:
    """Leave-one-out errors e_i/(1 − h_i) (m,) of the least-squares fit of y on design (m, p).

    No model may determine a weight alone (h = 1): it cannot be predicted without itself.
    """
    residual, rest = _left(design, y)
    return np.asarray(residual / rest)


def _left(design: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Residuals (m,) of the least-squares fit of y on design, and 1 − h of each model."""
    q, _ = np.linalg.qr(design)
    return y - q @ (q.T @ y), 1.0 - (q**2).sum(axis=1)


def _subsets(whole: Baseline, scaled: Floats, y: Floats) -> tuple[IdSubset, ...]:
    m, k = scaled.shape
    columns = [c for size in range(1, k + 1) for c in combinations(range(k), size)]
    designs = (np.column_stack([np.ones(m), scaled[:, chosen]]) for chosen in columns)
    residuals, rest = np.swapaxes([_left(design, y) for design in designs], 0, 1)
    errors = residuals / rest
    squared = errors**2
    total = squared.sum(axis=1)
    best = int(total.argmin())
    total_y = float(((y - y.mean()) ** 2).sum())
    accuracy = whole.scale.inverse(y)
    off = np.abs(accuracy - whole.scale.inverse(y - errors))
    gap = squared - squared[best]
    gap_se = gap.std(axis=1, ddof=1) / np.sqrt(m)
    near = [i for i in range(len(columns)) if gap[i].mean() <= gap_se[i] or i == best]
    fewest = min(near, key=lambda i: (len(columns[i]), total[i]))
    found = []
    for i in np.argsort(total, kind="stable"):
        found.append(
            IdSubset(
                id_settings=tuple(whole.id_settings[j] for j in columns[i]),
                n=m,
                press=float(total[i]),
                loo_r2=1.0 - float(total[i]) / total_y,
                loo_mae=float(off[i].mean()),
                loo_mae_se=float(off[i].std(ddof=1) / np.sqrt(m)),
                r2=1.0 - float(residuals[i] @ residuals[i]) / total_y,
                worse=float(gap[i].mean()),
                worse_se=float(gap_se[i]),
                best=int(i) == best,
                chosen=int(i) == fewest,
            )
        )
    return tuple(found)


def ridge_path(scaled: Floats, y: Floats, penalties: ArrayLike | None = None) -> RidgePath:
    """Ridge weights of standardised columns (m, k) for each penalty, by singular values.

    With centred and standardised X = UDVᵀ: w(λ) = V D/(D² + λ) Uᵀy; the hat values are
    1/m + Σ u² d²/(d² + λ), and leave-one-out errors e/(1 − h) as for least squares.

    >>> x = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> ridge_path(x, 2 * x[:, 0], [0.0, 4.0]).weights.round(3).tolist()
    [[2.236], [1.118]]
    """
    m, k = scaled.shape
    default = m * np.r_[0.0, np.logspace(-5, 1, 25)]
    grid = default if penalties is None else np.asarray(penalties, np.float64)
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all() or (grid < 0).any():
        raise InputError("ridge penalties must be a list of numbers that are not negative")
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    u, d, v = np.linalg.svd(standard, full_matrices=False)
    shrink = d**2 / (d**2 + grid[:, None])
    centred = y - y.mean()
    weights = (shrink / d * (u.T @ centred)) @ v
    hat = 1.0 / m + shrink @ (u**2).T
    residual = centred - (shrink * (u.T @ centred)) @ u.T
    loo = ((residual / (1.0 - hat)) ** 2).sum(axis=1)
    return RidgePath(
        penalties=grid,
        weights=weights.reshape(len(grid), k),
        degrees=shrink.sum(axis=1),
        press=loo,
        best=int(loo.argmin()),
    )


def collinearity(scaled: Floats, names: Sequence[str]) -> Collinearity:
    """Collinearity of columns (m, k), none of them constant.

    VIF are the diagonal of the inverse correlation matrix.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((2, 50))
    >>> found = collinearity(np.column_stack([a, a + 0.1 * b]), ["a", "b"])
    >>> len(found.warnings)
    3
    """
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    matrix = standard.T @ standard / len(scaled)
    values = np.linalg.svd(standard, compute_uv=False)
    condition = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
    inflation = np.diag(np.linalg.inv(matrix)) if condition < 1e8 else np.full(len(names), np.inf)
    return Collinearity(
        inflation=inflation,
        condition=condition,
        correlation=matrix,
        warnings=tuple(_warnings(names, inflation, condition, matrix)),
    )


def _warnings(
    names: Sequence[str], inflation: Floats, condition: float, matrix: Floats
) -> list[str]:
    found = []
    for i, name in enumerate(names):
        if inflation[i] > INFLATION:
            found.append(
                f"{name}: the other ID sets predict it (VIF {inflation[i]:.0f} > {INFLATION:g}); "
                "its weight is uncertain"
            )
    if condition > CONDITION:
        found.append(
            f"the ID sets together are nearly collinear (condition number {condition:.0f} > "
            f"{CONDITION:g}): predictions hold, single weights mean little"
        )
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            if abs(matrix[i, j]) > ALIKE:
                found.append(f"{names[i]} and {names[j]} correlate by {matrix[i, j]:.3f}")
    return found


def partial_residuals(baseline: Baseline) -> list[dict[str, str | float]]:
    """For every ID set and model: S(x_j), and e + w_j (S(x_j) − mean), what x_j alone explains.

    A row per model and ID set; a curve in these points shows what the plane misses.
    """
    piece = baseline.lines[0]
    rows: list[dict[str, str | float]] = []
    for j, setting in enumerate(baseline.id_settings):
        x = piece.design[:, j + 1]
        partial = piece.residuals + piece.weights[j] * (x - x.mean())
        for i, model in enumerate(baseline.models):
            rows.append(
                {
                    "model": model,
                    "id_setting": setting,
                    "accuracy": float(baseline.scale.inverse(x[i])),
                    "scaled": float(x[i]),
                    "partial_residual": float(partial[i]),
                    "residual": float(piece.residuals[i]),
                }
            )
    return rows
