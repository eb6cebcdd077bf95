"""Where the names of points go so that they cover neither each other nor the points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_ANGLES = np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)
_RADII = np.geomspace(0.8, 18.0, 24)
_PASSES = 8
# What it costs to lie over another label, over or across a leader, over one's own point, over
# another point; to lead across a point; to be a line's height away.
_OVER_LABEL, _OVER_LEADER, _OVER_SELF, _OVER_POINT = 1e4, 100.0, 30.0, 40.0
_CROSSED_POINT, _DISTANCE = 0.8, 0.15
_ALONG = np.linspace(0.1, 0.9, 9)[:, None]


def place_labels(anchors: Floats, sizes: Floats, obstacles: Floats, box: Floats) -> Floats:
    """Centres (L, 2) for labels of ``sizes`` (L, 2) that belong to the ``anchors`` (L, 2).

    Every label has places around its anchor, each with a cost of its own (``obstacles`` (P, 2)
    covered or crossed by the leader, distance). Each label in turn takes the cheapest place given
    where the others are, until none moves. Labels stay within ``box`` (x₀, y₀, x₁, y₁). All in one
    unit, such as pixels.

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
    places = [_places(*pair, box, unit) for pair in zip(anchors, sizes, strict=True)]
    alone = [_alone(places[i], anchors[i], sizes[i], obstacles, unit) for i in range(count)]
    chosen = np.full((count, 2), np.nan)
    for _ in range(_PASSES):
        before = chosen.copy()
        for i in range(count):
            cost = alone[i].copy()
            for j in range(count):
                if j != i and np.isfinite(chosen[j, 0]):
                    other = chosen[j], anchors[j], sizes[j]
                    cost += _beside(places[i], anchors[i], sizes[i], *other, unit)
            chosen[i] = places[i][np.argmin(cost)]
        if np.array_equal(chosen, before):
            break
    return chosen


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
    covered = np.abs(places[:, None] - obstacles) < size / 2.0 + 0.3 * unit
    cost += _OVER_POINT * covered.all(axis=-1).sum(axis=1)
    way = way / np.maximum(length, 1e-9)[:, None]
    along = way @ to.T
    crossed = np.abs(way[:, :1] * to[:, 1] - way[:, 1:] * to[:, 0]) < 0.35 * unit
    crossed &= (along > 0.5 * unit) & (along < length[:, None])
    return np.asarray(cost + _CROSSED_POINT * crossed.sum(axis=1))


def _beside(
    places: Floats,
    anchor: Floats,
    size: Floats,
    other: Floats,
    other_anchor: Floats,
    other_size: Floats,
    unit: float,
) -> Floats:
    """Cost (C,) of each place (C, 2) beside a label that has its place."""
    margin = np.array([0.4, 0.2]) * unit
    over = (np.abs(places - other) < (size + other_size) / 2.0 + margin).all(axis=-1)
    ends, end = rim(anchor, places, size), rim(other_anchor, other, other_size)
    lead = anchor + _ALONG[:, None] * (ends - anchor)  # (9, C, 2) along our leaders
    theirs = other_anchor + _ALONG * (end - other_anchor)  # (9, 2) along theirs
    ours: NDArray[Any] = np.abs(lead - other) < (other_size + margin) / 2.0
    across: NDArray[Any] = np.abs(places[:, None] - theirs) < (size + margin) / 2.0
    under = np.any(ours.all(axis=-1), axis=0) | np.any(across.all(axis=-1), axis=1)
    under |= _cross(anchor, ends, other_anchor, end)
    return np.asarray(_OVER_LABEL * over + _OVER_LEADER * under)


def _cross(a: Floats, b: Floats, c: Floats, d: Floats) -> NDArray[np.bool_]:
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
