"""Where the names of points go so that they cover neither each other nor the points."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["place_labels"]

Floats = NDArray[np.float64]
_ANGLES = np.linspace(0.0, 2.0 * np.pi, 36, endpoint=False)
_RADII = np.array([0.8, 1.2, 1.7, 2.3, 3.0, 3.8, 4.7, 5.7, 6.8, 8.0, 9.5, 11.0, 13.0, 15.0])
_ORDERS, _PASSES = 8, 3
_OVER_LABEL, _OVER_LEADER, _OVER_SELF, _OVER_POINT, _CROSSED_POINT, _DISTANCE = (
    1e4,
    100.0,
    30.0,
    4.0,
    0.6,
    0.35,
)


def place_labels(anchors: Floats, sizes: Floats, obstacles: Floats, box: Floats) -> Floats:
    """Centres (L, 2) for labels of ``sizes`` (L, 2) that belong to the ``anchors`` (L, 2).

    Each label in turn takes the cheapest of some places around its anchor, the others staying
    where they are, a few times over; of several orders to go through them the cheapest outcome is
    kept. Lying over another label costs most, then leaders that cross, then ``obstacles`` (P, 2)
    covered or crossed, then distance. Labels stay within ``box`` (x₀, y₀, x₁, y₁). All in one
    unit, such as pixels.

    >>> box = np.array([0.0, 0.0, 100.0, 100.0])
    >>> anchors, sizes = np.array([[50.0, 50.0], [51.0, 50.0]]), np.array([[30.0, 8.0]] * 2)
    >>> a, b = place_labels(anchors, sizes, anchors, box)
    >>> bool(abs(a[0] - b[0]) >= 30 or abs(a[1] - b[1]) >= 8)
    True
    """
    count = len(anchors)
    places = [_places(anchors[i], sizes[i], box) for i in range(count)]
    alone = [_alone(places[i], anchors[i], sizes[i], obstacles) for i in range(count)]
    rng = np.random.default_rng(0)
    best, least = np.empty((0, 2)), np.inf
    for _ in range(_ORDERS if count else 0):
        order, centres = rng.permutation(count), anchors.copy()
        settled: list[int] = []
        for _ in range(_PASSES):
            total = 0.0
            for i in order:
                cost = alone[i].copy()
                for j in settled:
                    if j != i:
                        cost += _beside(
                            places[i], anchors[i], sizes[i], anchors[j], centres[j], sizes[j]
                        )
                centres[i] = places[i][int(np.argmin(cost))]
                total += float(cost.min())
                settled = [*settled, int(i)] if i not in settled else settled
        if total < least:
            best, least = centres, total
    return best


def _places(anchor: Floats, size: Floats, box: Floats) -> Floats:
    """Candidate centres around an anchor, moved into the box."""
    radius = _RADII[:, None] * size[1]
    dx = np.cos(_ANGLES) * (radius + size[0] / 2.0)
    dy = np.sin(_ANGLES) * (radius + size[1] / 2.0)
    places = anchor + np.stack([dx, dy], axis=-1).reshape(-1, 2)
    return np.asarray(np.clip(places, box[:2] + size / 2.0, box[2:] - size / 2.0))


def _alone(places: Floats, anchor: Floats, size: Floats, obstacles: Floats) -> Floats:
    """Cost of each place as far as other labels do not matter."""
    half, height = size / 2.0, float(size[1])
    gap = np.maximum(np.abs(places - anchor) - half, 0.0)
    cost = _DISTANCE * np.hypot(gap[:, 0], gap[:, 1]) / height
    cost += _OVER_SELF * (gap.max(axis=1) < 0.3 * height)
    covered = (np.abs(places[:, None] - obstacles) < half + 0.3 * height).all(axis=2)
    cost += _OVER_POINT * covered.sum(axis=1)
    # Points within a third of a line's height of the leader, which ends at the label's rim.
    end = np.clip(anchor, places - half, places + half)
    way, to = end - anchor, obstacles - anchor
    length = np.maximum(np.hypot(way[:, 0], way[:, 1]), 1e-9)[:, None]
    along = (way @ to.T) / length
    across = np.abs(way[:, :1] * to[:, 1] - way[:, 1:] * to[:, 0]) / length
    crossed = (along > 0.5 * height) & (along < length) & (across < 0.35 * height)
    return np.asarray(cost + _CROSSED_POINT * crossed.sum(axis=1))


def _beside(
    places: Floats, anchor: Floats, size: Floats, other_anchor: Floats, other: Floats, its: Floats
) -> Floats:
    """What another label, already placed, adds to the cost of each place."""
    half, height = size / 2.0, float(size[1])
    reach = half + its / 2.0 + np.array([0.4, 0.2]) * height
    cost = _OVER_LABEL * (np.abs(places - other) < reach).all(axis=1)
    steps = np.linspace(0.0, 1.0, 40)[:, None]
    leader = other_anchor + steps * (other - other_anchor)
    under = (np.abs(places[:, None] - leader) < half + 0.15 * height).all(axis=2).any(axis=1)
    mine = anchor + steps[:, None] * (places - anchor)
    near = np.abs(mine - other) < its / 2.0 + 0.15 * height
    over = np.asarray(near.all(axis=2)).any(axis=0)
    crossing = _crosses(anchor, places, other_anchor, other)
    return np.asarray(cost + _OVER_LEADER * (1.0 * under + over + crossing))


def _crosses(a: Floats, places: Floats, c: Floats, d: Floats) -> NDArray[np.bool_]:
    """Whether each segment a–place crosses the segment c–d."""

    def side(p: Floats, q: Floats, r: Floats) -> Floats:
        one, two = q - p, r - p
        return np.asarray(one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0])

    apart = side(a, places, c) * side(a, places, d) < 0
    return np.asarray(apart & (side(c, d, a) * side(c, d, places) < 0))
