"""How many factors a correlation matrix has, and their loadings before rotation.

A factor model says R ≈ LLᵀ + Ψ: correlations R (p, p) of the metrics, loadings L (p, k), unique
variances Ψ (diagonal). wenzel2022 (Appendix B) keeps the factors whose eigenvalue of R is at
least 1; Horn's parallel analysis asks instead which eigenvalues chance would not have made.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown

Floats = NDArray[np.float64]
EXTRACTIONS = ("principal-axis", "minimum-residual", "components")
LEAST_UNIQUE = 0.005
"""Smallest unique variance allowed; a metric that reaches it is a Heywood case."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Extraction:
    """Unrotated loadings and how they were found."""

    loadings: Floats
    """(p, k)"""
    uniqueness: Floats
    """(p,): ψ, the variance of each metric that no factor explains."""
    heywood: NDArray[np.bool_]
    """(p,): whether ψ ran into its lower bound: the model explains all of this metric, or more."""
    iterations: int
    converged: bool


def correlation(values: Floats) -> Floats:
    """Correlations (p, p) of the columns of values (n, p), without a missing cell or constant."""
    centred = values - values.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    unit = centred / lengths
    found = np.clip(unit.T @ unit, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def eigenvalues(matrix: Floats) -> Floats:
    """Eigenvalues of a symmetric matrix (or of a stack of them), the largest first.

    >>> eigenvalues(np.array([[1.0, 0.5], [0.5, 1.0]])).round(6)
    array([1.5, 0.5])
    """
    return np.asarray(np.linalg.eigvalsh(matrix)[..., ::-1])


def parallel_analysis(
    n: int, p: int, *, draws: int = 500, quantile: float = 0.95, seed: int = 0
) -> Floats:
    """Eigenvalues (p,) that uncorrelated normal data of n rows and p columns reach by chance.

    Horn (1965): a factor is real if its eigenvalue is above the ``quantile`` of the eigenvalue
    of the same rank over ``draws`` random tables. Their scatter matrices are drawn as Wishart
    matrices AAᵀ (Bartlett: A lower triangular, χ on its diagonal, normal below), which has the
    same distribution as drawing the n rows and costs nothing for large n.

    >>> bool(parallel_analysis(100, 5, draws=50)[0] > 1.0)
    True
    """
    if not 0.0 < quantile < 1.0:
        raise InputError(f"quantile must lie between 0 and 1 (such as 0.95), got {quantile!r}")
    if draws < 1:
        raise InputError(f"parallel analysis needs at least 1 draw, got {draws}")
    if n <= p:
        raise InputError(f"parallel analysis needs more rows than columns, got {n} and {p}")
    rng = np.random.default_rng([seed, n, p])
    roots = np.tril(rng.standard_normal((draws, p, p)), -1)
    diagonal = np.arange(p)
    roots[:, diagonal, diagonal] = np.sqrt(rng.chisquare(n - 1 - diagonal, size=(draws, p)))
    roots /= np.sqrt((roots**2).sum(axis=2, keepdims=True))  # of AAᵀ, the correlations
    return np.asarray(np.quantile(eigenvalues(roots @ np.swapaxes(roots, 1, 2)), quantile, axis=0))


def extract(
    matrix: Floats,
    factors: int,
    method: str = "minimum-residual",
    *,
    tolerance: float = 1e-8,
    most: int = 2000,
) -> Extraction:
    """Loadings (p, k) of ``factors`` factors of a correlation matrix (p, p).

    - ``principal-axis``: L = √Λ·V of R with its diagonal replaced by communalities, repeated
      with the communalities that L gives, from the squared multiple correlations on.
    - ``minimum-residual``: the ψ that make Σ over the p − k smallest eigenvalues of (R − Ψ),
      squared, least; where principal axis converges the two agree.
    - ``components``: √Λ·V of R itself (``factor_analyzer`` calls this ``principal``).

    >>> simple = np.array([[0.8], [0.7], [0.6]])
    >>> matrix = simple @ simple.T + np.diag(1 - (simple**2).ravel())
    >>> np.abs(extract(matrix, 1).loadings).round(3).ravel().tolist()
    [0.8, 0.7, 0.6]
    """
    p = len(matrix)
    if method not in EXTRACTIONS:
        raise unknown("extraction", method, EXTRACTIONS)
    if not 1 <= factors <= p:
        raise InputError(f"the number of factors must be between 1 and {p}, got {factors}")
    if method == "components":
        loadings = leading(matrix, factors)
        left = np.clip(1.0 - (loadings**2).sum(axis=1), 0.0, 1.0)
        none = np.zeros(p, dtype=bool)
        return Extraction(
            loadings=loadings, uniqueness=left, heywood=none, iterations=1, converged=True
        )
    psi = _first_uniqueness(matrix)
    if method == "principal-axis":
        psi, iterations, converged = _principal_axis(matrix, factors, psi, tolerance, most)
    else:
        every, iterations, arrived = minimum_residual(matrix[None], factors, psi)
        psi, converged = every[0], bool(arrived[0])
    return Extraction(
        loadings=leading(matrix - np.diag(psi), factors),
        uniqueness=psi,
        heywood=psi <= LEAST_UNIQUE * (1.0 + 1e-6),
        iterations=iterations,
        converged=converged,
    )


def leading(matrix: Floats, factors: int) -> Floats:
    """√Λ·V of the largest eigenvalues of a matrix or of a stack; a negative one counts as 0."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[..., ::-1][..., :factors], vectors[..., ::-1][..., :factors]
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def _first_uniqueness(matrix: Floats) -> Floats:
    """1 − squared multiple correlation = 1/(R⁻¹)_ii, where R can be inverted; else a half."""
    if np.linalg.cond(matrix) > 1e12:
        return np.full(len(matrix), 0.5)
    return np.clip(1.0 / np.diag(np.linalg.inv(matrix)), LEAST_UNIQUE, 1.0)


def _principal_axis(
    matrix: Floats, factors: int, psi: Floats, tolerance: float, most: int
) -> tuple[Floats, int, bool]:
    for step in range(1, most + 1):
        explained = (leading(matrix - np.diag(psi), factors) ** 2).sum(axis=1)
        new = np.clip(1.0 - explained, LEAST_UNIQUE, 1.0)
        moved = float(np.linalg.norm(new - psi))
        psi = new
        if moved < tolerance:
            return psi, step, True
    return psi, most, False


def minimum_residual(
    matrices: Floats, factors: int, start: Floats, *, tolerance: float = 1e-8, most: int = 200
) -> tuple[Floats, int, NDArray[np.bool_]]:
    """ψ (B, p) with the least residual for each of a stack of correlation matrices (B, p, p).

    f(ψ) = ½ Σ_{m>k} θ_m² for the eigenpairs (θ, ω) of R − Ψ, ordered downwards, has

        ∂f/∂ψ_i = −Σ_{m>k} θ_m ω_im²
        ∂²f/∂ψ_i∂ψ_j = (Σ_{m>k} ω_im ω_jm)² + 2 Σ_{m>k≥n} θ_m/(θ_m − θ_n) ω_im ω_jm ω_in ω_jn

    (Jöreskog 1977 gives the first part). Newton steps within [LEAST_UNIQUE, 1], all matrices at
    once; a step is halved until f falls. Also returned: steps, and where the gradient that does
    not push against a bound is below the tolerance.
    """
    psi = np.broadcast_to(np.clip(start, LEAST_UNIQUE, 1.0), matrices.shape[:2]).copy()
    done, stuck = np.zeros((2, len(matrices)), dtype=bool)
    for step in range(1, most + 1):
        todo = np.flatnonzero(~(done | stuck))
        if not len(todo):
            return psi, step - 1, done
        f, gradient, hessian = _misfit(matrices[todo], psi[todo], factors)
        at = psi[todo]
        held = ((at <= LEAST_UNIQUE) & (gradient > 0)) | ((at >= 1.0) & (gradient < 0))
        free = np.where(held, 0.0, gradient)
        flat = np.abs(free).max(axis=1)
        done[todo] = flat < tolerance
        move = _newton(hessian, free, held)
        length = np.ones(len(todo))
        for _ in range(30):
            tried = np.clip(at - length[:, None] * move, LEAST_UNIQUE, 1.0)
            worse = _residual(matrices[todo], tried, factors) > f + 1e-15
            if not worse.any():
                break
            length[worse] /= 2.0
        psi[todo] = np.where(worse[:, None], at, tried)
        stuck[todo] = worse  # no step makes it better: as near as numbers allow, or lost
        done[todo] |= worse & (flat < 1e-5)
    return psi, most, done


def _misfit(matrices: Floats, psi: Floats, factors: int) -> tuple[Floats, Floats, Floats]:
    """f, its gradient and its Hessian, shapes (B,), (B, p) and (B, p, p)."""
    theta, omega = np.linalg.eigh(matrices - psi[:, :, None] * np.eye(psi.shape[1]))
    small = psi.shape[1] - factors
    left, right = theta[:, :small], theta[:, small:]
    a, b = omega[:, :, :small], omega[:, :, small:]
    gradient = -np.einsum("bm,bim->bi", left, a**2)
    apart = np.minimum(left[:, :, None] - right[:, None, :], -1e-9)
    weight = 2.0 * left[:, :, None] / apart
    crossed = np.einsum("bim,bjm,bmn->bijn", a, a, weight, optimize=True)
    hessian = (a @ np.swapaxes(a, 1, 2)) ** 2
    hessian = hessian + np.einsum("bijn,bin,bjn->bij", crossed, b, b, optimize=True)
    return 0.5 * (left**2).sum(axis=1), gradient, hessian


def _residual(matrices: Floats, psi: Floats, factors: int) -> Floats:
    theta = np.linalg.eigvalsh(matrices - psi[:, :, None] * np.eye(psi.shape[1]))
    return np.asarray(0.5 * (theta[:, : psi.shape[1] - factors] ** 2).sum(axis=1))


def _newton(hessian: Floats, gradient: Floats, held: NDArray[np.bool_]) -> Floats:
    """|H|⁻¹g over what is not held at a bound; small or negative curvature counts as positive."""
    free = ~held
    within = hessian * (free[:, :, None] & free[:, None, :])
    values, vectors = np.linalg.eigh(within + held[:, :, None] * np.eye(held.shape[1]))
    steep = np.maximum(np.abs(values), 1e-4)
    inner = np.einsum("bij,bi->bj", vectors, gradient) / steep
    return np.asarray(np.einsum("bij,bj->bi", vectors, inner))
