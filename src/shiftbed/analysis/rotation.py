"""Orthogonal rotations of factor loadings, and how two sets of loadings are laid over each other.

The orthomax family turns loadings L (p, k) to the L·T, T orthogonal, that maximises

    Q(L) = Σ_j [ Σ_i l_ij⁴ − (γ/p) (Σ_i l_ij²)² ]

with γ = 0 quartimax, γ = 1 varimax, γ = k/2 equamax (wenzel2022, Appendix B, names these three).
The best angle in the plane of two factors has a closed form (Kaiser 1958), so planes are turned in
turn until none moves. ``factor_analyzer`` minimises the Crawford–Ferguson form, for which equamax
is κ = k/(2p); its default κ = 0 makes what it calls equamax a quartimax.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from shiftbed.errors import unknown

Floats = NDArray[np.float64]
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
