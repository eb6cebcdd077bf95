"""How two columns go together: Pearson's r with an interval, Kendall's τ."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level

Floats = NDArray[np.float64]


def pearson(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> tuple[float, float, float, int]:
    """Pearson's r, the ends of its Fisher interval tanh(artanh r ± z/√(n−3)), and n.

    Pairs with a missing value are left out. All NaN where r is undefined (n < 3, or no spread).

    >>> r, low, high, n = pearson([1, 2, 3, 4], [1, 2, 3, 5])
    >>> round(r, 3), n
    (0.983, 4)
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[both], y[both], int(both.sum())
    nothing = (float("nan"), float("nan"), float("nan"), n)
    if n < 3:
        return nothing
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if scale <= 1e-300:
        return nothing
    r = min(1.0, max(-1.0, float(x @ y) / scale))
    if n < 4 or abs(r) == 1.0:
        return r, float("nan"), float("nan"), n
    half = float(ndtri(0.5 + check_level(level) / 2)) / np.sqrt(n - 3)
    centre = np.arctanh(r)
    return r, float(np.tanh(centre - half)), float(np.tanh(centre + half)), n


def kendall(a: ArrayLike, b: ArrayLike) -> tuple[float, int]:
    """Kendall's τ_b = (C − D)/√((P − T_a)(P − T_b)) and the number of pairs of values used.

    C and D count concordant and discordant pairs, P all pairs, T the ties on either side.

    >>> kendall([1, 2, 3, 4], [1, 3, 2, 4])
    (0.6666666666666666, 4)
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[both], y[both], int(both.sum())
    if n < 2:
        return float("nan"), n
    sign_x, sign_y = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
    upper = np.triu_indices(n, 1)
    sx, sy = sign_x[upper], sign_y[upper]
    scale = float(np.sqrt((sx != 0).sum() * float((sy != 0).sum())))
    return (float((sx * sy).sum()) / scale if scale else float("nan")), n
