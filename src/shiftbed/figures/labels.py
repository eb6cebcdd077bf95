"""Where names of points and keys go so that they cover neither each other nor what is drawn."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

Floats = NDArray[np.float64]
_ANGLES = np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)
_RADII = np.geomspace(0.8, 24.0, 27)
_PASSES = 8
# What it costs to lie over another label, over or across a leader, over one's own point, over
# another point; to lead across a point; to be a line's height away.
_OVER_LABEL, _OVER_LEADER, _OVER_SELF, _OVER_POINT = 1e4, 25.0, 30.0, 100.0
_CROSSED_POINT, _DISTANCE = 0.8, 0.5
_LEAST = 20.0
_ALONG = np.linspace(0.1, 0.9, 9)[:, None]
_CORNERS: tuple[Any, ...] = ("lower right", "upper left", "lower left", "upper right")


def place_labels(anchors: Floats, sizes: Floats, obstacles: Floats, box: Floats) -> Floats:
    """Centres (L, 2) for labels of ``sizes`` (L, 2) that belong to the ``anchors`` (L, 2).

    Every label has places around its anchor, each with a cost of its own (``obstacles`` (P, 2)
    covered or crossed by the leader, distance). Each label in turn takes the cheapest place given
    where the others are, until none moves; in another order if something is covered. Labels stay
    within ``box`` (x₀, y₀, x₁, y₁). All in one unit, such as pixels.

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
    found = []
    for keys in (np.arange(count), -np.arange(count), *anchors.T, *-anchors.T):
        chosen, spent = np.full((count, 2), np.nan), np.full(count, np.inf)
        for _ in range(_PASSES):
            before = chosen.copy()
            for i in np.argsort(keys, kind="stable"):
                cost = alone[i].copy()
                for j in range(count):
                    if j != i and np.isfinite(chosen[j, 0]):
                        other = chosen[j], anchors[j], sizes[j]
                        cost += _beside(places[i], anchors[i], sizes[i], *other, unit)
                best = np.argmin(cost)
                chosen[i], spent[i] = places[i][best], cost[best]
            if np.array_equal(chosen, before):
                break
        if spent.max() < _LEAST:  # nothing is covered or crossed
            return chosen
        found.append((spent.sum(), chosen))
    return min(found, key=lambda one: one[0])[1]


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


def settle_keys(
    figure: "Figure", keys: "list[tuple[Axes, Callable[[int], Legend]]]", *, below: bool
) -> None:
    """Put each key into the corner of its axes where it covers nothing; if there is none, ``below``
    the axes, where the figure grows by as much, or into the corner where it covers least. ``keys``
    has the axes and what makes their legend anew in so many columns."""
    figure.draw_without_rendering()
    lacking = 0.0
    for axes, remake in keys:
        legend = axes.get_legend()
        frame = axes.get_window_extent()
        if legend is None or legend.get_window_extent().x0 > frame.x1 - 1.0:
            continue  # beside the axes already
        drawn = _drawn_on(axes)
        margin = 3.0 * figure.dpi / 72.0
        cost = [_covered(axes, corner, drawn, margin) for corner in _CORNERS]
        best = min(range(len(_CORNERS)), key=lambda i: cost[i])
        legend.set_loc(_CORNERS[best])
        if below and cost[best][0]:
            lacking = max(lacking, _put_below(axes, remake))
    if lacking:
        rows = {round(axes.get_window_extent().y0) for axes, _ in keys}
        figure.set_figheight(figure.get_figheight() + len(rows) * lacking)
        figure.draw_without_rendering()


def _covered(axes: "Axes", corner: Any, drawn: Sequence[Floats], margin: float) -> tuple[int, ...]:
    """How many places of what is drawn a key in that corner covers."""
    legend = axes.get_legend()
    assert legend is not None
    legend.set_loc(corner)
    box = legend.get_window_extent().padded(margin)
    return tuple(int(((at > box.min) & (at < box.max)).all(axis=1).sum()) for at in drawn)


def _put_below(axes: "Axes", remake: "Callable[[int], Legend]") -> float:
    """The key under the axes, as wide as they are; how many inches high it is."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = axes.figure
    old: Any = axes.get_legend()
    old.remove()
    figure.draw_without_rendering()
    frame, whole = axes.get_window_extent(), axes.get_tightbbox()
    assert whole is not None
    down = (whole.y0 - frame.y0) / figure.dpi - 0.04
    left = (whole.x0 - frame.x0) / figure.dpi
    for columns in (3, 2, 1):
        legend = remake(columns)
        if legend.get_window_extent().width <= whole.width or columns == 1:
            break
    legend.set_loc("upper left")
    moved = axes.transAxes + ScaledTranslation(left, down, figure.dpi_scale_trans)
    legend.set_bbox_to_anchor((0.0, 0.0), moved)
    return float(legend.get_window_extent().height / figure.dpi)


def _drawn_on(axes: "Axes") -> list[Floats]:
    """Places in pixels of what a key must not cover (points, curves, bars, names), of what it had
    better not (error bars, bands), and of dashed lines."""
    from matplotlib.collections import LineCollection, PathCollection, PolyCollection

    frame = axes.get_window_extent()
    points, bars, dashes = [np.empty((0, 2))], [np.empty((0, 2))], [np.empty((0, 2))]
    step = axes.figure.dpi / 20.0
    for marks in axes.collections:
        if isinstance(marks, PathCollection):
            points.append(axes.transData.transform(np.ma.getdata(marks.get_offsets())))
        elif isinstance(marks, PolyCollection):
            bands = (axes.transData.transform(path.vertices) for path in marks.get_paths())
            bars += [_dense(band, step) for band in bands]
        elif isinstance(marks, LineCollection):
            bars += [_dense(axes.transData.transform(s), step) for s in marks.get_segments()]
    for line in axes.lines:
        places = _dense(line.get_transform().transform(line.get_xydata()), step)
        (points if line.get_linestyle() == "-" else dashes).append(places)
    for patch in axes.patches:
        points.append(_filling(patch.get_window_extent(), step))
    for text in axes.texts:
        points.append(_filling(text.get_window_extent(), step))
    within = [np.vstack(found) for found in (points, bars, dashes)]
    low, high = np.array(frame.min), np.array(frame.max)
    return [found[((found >= low) & (found <= high)).all(axis=1)] for found in within]


def _dense(way: Floats, step: float) -> Floats:
    """Places along a broken line, about a step apart."""
    way = np.asarray(way, dtype=np.float64).reshape(-1, 2)
    way = way[np.isfinite(way).all(axis=1)]
    parts = [way[:1]]
    for a, b in pairwise(way):
        count = int(min(np.hypot(*(b - a)) / step, 500.0)) + 2
        parts.append(a + np.linspace(0.0, 1.0, count)[:, None] * (b - a))
    return np.vstack(parts)


def _filling(box: Any, step: float) -> Floats:
    """Places all over a box, such as a bar's."""
    across = np.arange(box.x0, box.x1 + step, step).clip(max=box.x1)
    up = np.arange(box.y0, box.y1 + step, step).clip(max=box.y1)
    return np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
