"""Where the names of points go so that they cover neither each other nor the points."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_ANGLES = np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)
_RADII = np.geomspace(0.8, 18.0, 24)
_KEPT, _STARTS, _PASSES = 5, 40, 20
# What it costs to lie over another label, over or across a leader, over one's own point, over
# another point, beside another label's point; to lead across a point; to be a line's height away.
_OVER_LABEL, _OVER_LEADER, _OVER_SELF, _OVER_POINT = 1e4, 100.0, 30.0, 4.0
_NEAR_OTHER, _CROSSED_POINT, _DISTANCE = 15.0, 0.8, 0.15


def place_labels(anchors: Floats, sizes: Floats, obstacles: Floats, box: Floats) -> Floats:
    """Centres (L, 2) for labels of ``sizes`` (L, 2) that belong to the ``anchors`` (L, 2).

    Every label has some places around its anchor, each with a cost of its own (``obstacles``
    (P, 2) covered or crossed by the leader, distance) and with a cost beside every place of every
    other label (lying over it, leaders that cross). From several starts, each label in turn takes
    the cheapest place given the others until none moves; the cheapest outcome is kept. Labels
    stay within ``box`` (x₀, y₀, x₁, y₁). All in one unit, such as pixels.

    >>> box = np.array([0.0, 0.0, 100.0, 100.0])
    >>> anchors, sizes = np.array([[50.0, 50.0], [51.0, 50.0]]), np.array([[30.0, 8.0]] * 2)
    >>> a, b = place_labels(anchors, sizes, anchors, box)
    >>> bool(abs(a[0] - b[0]) >= 30 or abs(a[1] - b[1]) >= 8)
    True
    """
    count = len(anchors)
    if not count:
        return np.empty((0, 2))
    unit = float(sizes[:, 1].min())
    cell = 0.25 * unit
    obstacles = np.unique(np.round(obstacles / cell), axis=0) * cell  # a crowd counts once
    places, alone = [], []
    for anchor, size in zip(anchors, sizes, strict=True):
        all_places = _places(anchor, size, box, unit)
        cost = _alone(all_places, anchor, size, obstacles, unit)
        cheap = np.argsort(cost.reshape(len(_RADII), -1), axis=0, kind="stable")[:_KEPT]
        kept = (cheap * len(_ANGLES) + np.arange(len(_ANGLES))).ravel()
        kept = kept[np.argsort(cost[kept], kind="stable")]
        places.append(all_places[kept])
        alone.append(cost[kept])
    beside = {}
    for i, j in combinations(range(count), 2):
        cost = _beside(places[i], anchors[i], sizes[i], places[j], anchors[j], sizes[j], unit)
        beside[i, j], beside[j, i] = cost, cost.T
    chosen = _cheapest(alone, beside)
    return np.array([places[i][chosen[i]] for i in range(count)])


def _cheapest(alone: list[Floats], beside: dict[tuple[int, int], Floats]) -> list[int]:
    """The place of each label in the cheapest arrangement found."""
    rng, count = np.random.default_rng(0), len(alone)
    best, least = [0] * count, np.inf
    for start in range(_STARTS):
        now = [0 if start == 0 else int(rng.integers(len(cost))) for cost in alone]
        for _ in range(_PASSES):
            before = list(now)
            for i in rng.permutation(count).tolist():
                cost = alone[i] + sum(beside[i, j][:, now[j]] for j in range(count) if j != i)
                now[i] = int(np.argmin(cost))
            if now == before:
                break
        total = sum(float(alone[i][now[i]]) for i in range(count))
        total += sum(float(beside[i, j][now[i], now[j]]) for i, j in combinations(range(count), 2))
        if total < least:
            best, least = now, total
    return best


def rim(anchor: Floats, centre: Floats, size: Floats) -> Floats:
    """Where a leader from the anchor meets the label: the nearest point of it."""
    return np.asarray(np.clip(anchor, centre - size / 2.0, centre + size / 2.0))


def _places(anchor: Floats, size: Floats, box: Floats, unit: float) -> Floats:
    """Candidate centres around an anchor, moved into the box."""
    radius = _RADII[:, None] * unit
    dx = np.cos(_ANGLES) * (radius + size[0] / 2.0)
    dy = np.sin(_ANGLES) * (radius + size[1] / 2.0)
    places = anchor + np.stack([dx, dy], axis=-1).reshape(-1, 2)
    return np.asarray(np.clip(places, box[:2] + size / 2.0, box[2:] - size / 2.0))


def _alone(places: Floats, anchor: Floats, size: Floats, obstacles: Floats, unit: float) -> Floats:
    """Cost of each place (C, 2) as far as other labels do not matter."""
    way, to = rim(anchor, places, size) - anchor, obstacles - anchor
    length = np.hypot(way[:, 0], way[:, 1])
    cost = _DISTANCE * length / unit + _OVER_SELF * (length < 0.6 * unit)
    half = size / 2.0 + 0.3 * unit
    covered = np.abs(places[:, :1] - obstacles[:, 0]) < half[0]
    covered &= np.abs(places[:, 1:] - obstacles[:, 1]) < half[1]
    cost += _OVER_POINT * covered.sum(axis=1)
    way = way / np.maximum(length, 1e-9)[:, None]
    along = way @ to.T
    crossed = np.abs(way[:, :1] * to[:, 1] - way[:, 1:] * to[:, 0]) < 0.35 * unit
    crossed &= (along > 0.5 * unit) & (along < length[:, None])
    return np.asarray(cost + _CROSSED_POINT * crossed.sum(axis=1))


def _beside(
    ours: Floats,
    our_anchor: Floats,
    our_size: Floats,
    theirs: Floats,
    their_anchor: Floats,
    their_size: Floats,
    unit: float,
) -> Floats:
    """Cost (C, D) of each of our places (C, 2) beside each of theirs (D, 2)."""
    ours, theirs = ours[:, None], theirs[None, :]
    margin = np.array([0.4, 0.2]) * unit
    reach = (our_size + their_size) / 2.0 + margin
    over = np.abs(ours[..., 0] - theirs[..., 0]) < reach[0]
    over &= np.abs(ours[..., 1] - theirs[..., 1]) < reach[1]
    our_end, their_end = rim(our_anchor, ours, our_size), rim(their_anchor, theirs, their_size)
    met = _hits(their_anchor, their_end, ours, (our_size + margin) / 2.0).astype(np.float64)
    met += _hits(our_anchor, our_end, theirs, (their_size + margin) / 2.0)
    met += _crosses(our_anchor, our_end, their_anchor, their_end)
    near = 1.0 * _holds(ours, our_size / 2.0 + 1.6 * unit, their_anchor)
    near = near + _holds(theirs, their_size / 2.0 + 1.6 * unit, our_anchor)
    return np.asarray(_OVER_LABEL * over + _OVER_LEADER * met + _NEAR_OTHER * near)


def _holds(centre: Floats, half: Floats, point: Floats) -> NDArray[np.bool_]:
    """Whether boxes around the centres hold a point."""
    return np.asarray((np.abs(centre - point) < half).all(axis=-1))


def _hits(start: Floats, end: Floats, centre: Floats, half: Floats) -> NDArray[np.bool_]:
    """Whether segments start–end go through boxes around the centres (slab method)."""
    enter: Floats | float = 0.0
    leave: Floats | float = 1.0
    for axis in (0, 1):
        way = end[..., axis] - start[..., axis]
        way = np.where(np.abs(way) < 1e-9, 1e-9, way)
        to = centre[..., axis] - start[..., axis]
        one, two = (to - half[axis]) / way, (to + half[axis]) / way
        enter = np.maximum(enter, np.minimum(one, two))
        leave = np.minimum(leave, np.maximum(one, two))
    return np.asarray(enter <= leave)


def _crosses(a: Floats, b: Floats, c: Floats, d: Floats) -> NDArray[np.bool_]:
    """Whether segments a–b cross segments c–d."""

    def side(p: Floats, q: Floats, r: Floats) -> Floats:
        one, two = q - p, r - p
        return np.asarray(one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0])

    apart = side(a, b, c) * side(a, b, d) < 0
    return np.asarray(apart & (side(c, d, a) * side(c, d, b) < 0))


def shorten(name: str, line: int = 28) -> str:
    r"""A name on at most two lines, its middle left out where it is longer than both.

    >>> shorten("resnetv2_50x3_bit.goog_in21k_ft_in1k@448-1")
    'resnetv2_50x3_bit.goog_\nin21k_ft_in1k@448-1'
    """
    name = " ".join(name.split())
    if len(name) > 2 * line - 6:
        name = f"{name[: line - 3]}…{name[4 - line :]}"
    if len(name) <= line:
        return name
    breaks = [i + 1 for i, c in enumerate(name) if c in " _-./@…"] or [len(name) // 2]
    at = min(breaks, key=lambda i: abs(i - len(name) / 2))
    return f"{name[:at].rstrip()}\n{name[at:]}"
