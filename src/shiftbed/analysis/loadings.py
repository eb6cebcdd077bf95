"""Loadings of a factor model: how many factors, their extraction, their rotation.

A factor model says R ≈ LLᵀ + Ψ: correlations R (p, p) of the metrics, loadings L (p, k), unique
variances Ψ (diagonal). wenzel2022 (Appendix B) keeps the factors whose eigenvalue of R is at
least 1; Horn's parallel analysis asks instead which eigenvalues chance would not have made.

The orthomax family turns loadings L (p, k) to the L·T, T orthogonal, that maximises

    Q(L) = Σ_j [ Σ_i l_ij⁴ − (γ/p) (Σ_i l_ij²)² ]

with γ = 0 quartimax, γ = 1 varimax, γ = k/2 equamax (wenzel2022, Appendix B, names these three).
The best angle in the plane of two factors has a closed form (Kaiser 1958), so planes are turned in
turn until none moves. ``factor_analyzer`` minimises the Crawford–Ferguson form, for which equamax
is κ = k/(2p); its default κ = 0 makes what it calls equamax a quartimax.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

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


ROTATIONS = ("varimax", "quartimax", "equamax", "none")


def gamma_of(rotation: str, factors: int) -> float:
    """γ of the orthomax family for a rotation of that name.

    >>> gamma_of("varimax", 4), gamma_of("quartimax", 4), gamma_of("equamax", 4)
    (1.0, 0.0, 2.0)
    """
    gammas = {"varimax": 1.0, "quartimax": 0.0, "equamax": factors / 2.0}
    if rotation not in gammas:
        raise unknown("rotation", rotation, ROTATIONS)
    return gammas[rotation]


def criterion(loadings: Floats, gamma: float) -> float:
    """Q(L), what an orthomax rotation makes as large as it can.

    >>> criterion(np.eye(2), 1.0), criterion(np.full((2, 2), 0.5**0.5), 1.0)
    (1.0, 0.0)
    """
    squares = loadings**2
    return float((squares**2).sum() - gamma / len(squares) * (squares.sum(axis=0) ** 2).sum())


def rotate(
    loadings: Floats,
    rotation: str,
    *,
    kaiser: bool = True,
    starts: int = 8,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Rotated loadings L·T and T, shapes (p, k) and (k, k).

    ``kaiser`` gives all rows length 1 while turning, so that metrics with a small communality
    count as much as others. Q can have several maxima: besides the loadings as they are,
    ``starts − 1`` seeded random orientations are tried and the best kept.

    >>> simple = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.7], [0.0, 0.6]])
    >>> turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> np.abs(in_order(rotate(simple @ turn, "varimax")[0])).round(6)
    array([[0.9, 0. ],
           [0.8, 0. ],
           [0. , 0.7],
           [0. , 0.6]])
    """
    p, k = loadings.shape
    identity = np.eye(k)
    if rotation not in ROTATIONS:
        raise unknown("rotation", rotation, ROTATIONS)
    if rotation == "none" or k < 2:
        return loadings.copy(), identity
    gamma = gamma_of(rotation, k)
    rows = unit_rows(loadings) if kaiser else loadings
    rng = np.random.default_rng([seed, p, k])
    best, turned = -np.inf, identity
    for start in range(max(starts, 1)):
        first = identity if start == 0 else np.linalg.qr(rng.standard_normal((k, k)))[0]
        turn = turn_planes(rows, first, gamma)
        found = criterion(rows @ turn, gamma)
        if found > best + 1e-9 * max(1.0, abs(best)) or start == 0:
            best, turned = found, turn
    return loadings @ turned, turned


def unit_rows(loadings: Floats) -> Floats:
    """Rows (…, p, k) of length 1 (Kaiser's normalisation); a row of zeros stays."""
    lengths = np.sqrt((loadings**2).sum(axis=-1, keepdims=True))
    return np.asarray(loadings / np.where(lengths > 1e-12, lengths, 1.0))


def turn_planes(
    rows: Floats, first: Floats, gamma: float, *, tolerance: float = 1e-10, most: int = 1000
) -> Floats:
    """T (…, k, k) for rows (…, p, k), from ``first`` on: turn pairs of columns by the angle that
    is best for them until no angle is left to turn.

    With u = x² − y², v = 2xy: tan 4φ = (2Σuv − 2γ ΣuΣv/p) / (Σ(u² − v²) − γ((Σu)² − (Σv)²)/p).
    """
    p, k = rows.shape[-2:]
    turn = np.broadcast_to(first, (*rows.shape[:-2], k, k)).copy()
    turned = rows @ turn
    for _ in range(most):
        largest = 0.0
        for a in range(k - 1):
            for b in range(a + 1, k):
                angle = _best_angle(turned[..., a], turned[..., b], gamma / p)
                c, s = np.cos(angle)[..., None], np.sin(angle)[..., None]
                for each in (turned, turn):
                    x, y = each[..., a].copy(), each[..., b].copy()
                    each[..., a], each[..., b] = c * x + s * y, c * y - s * x
                largest = max(largest, float(np.abs(angle).max(initial=0.0)))
        if largest < tolerance:
            break
    return turn


def _best_angle(x: Floats, y: Floats, share: float) -> Floats:
    u, v = x**2 - y**2, 2.0 * x * y
    su, sv = u.sum(axis=-1), v.sum(axis=-1)
    top = 2.0 * (u * v).sum(axis=-1) - 2.0 * share * su * sv
    bottom = (u**2 - v**2).sum(axis=-1) - share * (su**2 - sv**2)
    flat = np.hypot(top, bottom) < 1e-15  # every angle is as good
    return np.where(flat, 0.0, np.arctan2(top, bottom) / 4.0)


def in_order(loadings: Floats) -> Floats:
    """The same factors, the one with most variance first, each with a positive sum of loadings.

    Signs and order of factors are arbitrary; so fixed, runs agree. Where a sum is 0 the largest
    loading is made positive; factors of equal variance stay as they were.

    >>> in_order(np.array([[0.1, -0.9], [0.2, -0.8]]))
    array([[0.9, 0.1],
           [0.8, 0.2]])
    """
    order = np.argsort(-(loadings**2).sum(axis=0).round(10), kind="stable")
    sorted_ = loadings[:, order]
    sums = sorted_.sum(axis=0)
    largest = sorted_[np.abs(sorted_).argmax(axis=0), np.arange(sorted_.shape[1])]
    signs = np.where(np.where(np.abs(sums) > 1e-9, sums, largest) < 0, -1.0, 1.0)
    return np.asarray(sorted_ * signs)


def procrustes(loadings: Floats, target: Floats) -> Floats:
    """The orthogonal T that brings L·T nearest to the target B: T = UVᵀ for LᵀB = UΣVᵀ.

    L may be a stack (…, p, k).

    >>> turn = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> procrustes(np.array([[1.0, 0.0], [0.0, 2.0]]) @ turn, np.array([[1.0, 0.0], [0.0, 2.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    u, _, v = np.linalg.svd(np.swapaxes(loadings, -1, -2) @ target)
    return np.asarray(u @ v)


def match(loadings: Floats, target: Floats) -> Floats:
    """The factors reordered and signed so that they are most alike the target's.

    Likeness is Tucker's congruence Σab/√(Σa²Σb²); the pairing makes the sum of its sizes largest.

    >>> match(np.array([[0.1, -0.9], [0.8, 0.0]]), np.array([[0.9, 0.0], [0.0, 0.9]]))
    array([[ 0.9,  0.1],
           [-0. ,  0.8]])
    """
    lengths = np.sqrt(np.outer((loadings**2).sum(axis=0), (target**2).sum(axis=0)))
    congruence = loadings.T @ target / np.where(lengths > 1e-12, lengths, 1.0)
    rows, columns = linear_sum_assignment(-np.abs(congruence))
    matched = np.empty_like(loadings)
    matched[:, columns] = loadings[:, rows] * np.where(congruence[rows, columns] < 0, -1.0, 1.0)
    return matched
