"""Scatters and planes drawn with matplotlib."""

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shiftbed.errors import InputError
from shiftbed.figures.axis import percent
from shiftbed.figures.charts import Bools, Dots, Plane, Scatter
from shiftbed.figures.labels import Floats, place_labels, rim, shorten
from shiftbed.figures.palette import LINE, OWN, styles, trend_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

GREY = "#555555"
_CROSS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


def draw_scatter(
    axes: "Axes", scatter: Scatter, *, beside: bool | None
) -> "Callable[[int], Legend]":
    """Everything but the names of models; the legend is put ``beside`` the axes, or into them, or
    (None) left out. Returns what makes the legend anew in so many columns."""
    x, y = scatter.x_axis, scatter.y_axis
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    place, figure = axes.get_position(), axes.figure
    for axis, room, put in (
        (x, place.width * figure.get_figwidth() / 0.42, axes.set_xticks),  # type: ignore[union-attr]
        (y, place.height * figure.get_figheight() / 0.2, axes.set_yticks),  # type: ignore[union-attr]
    ):
        few = axis.thinned(int(room))
        put(few.at(few.ticks), few.tick_labels)
    letter = 0.6 * float(axes.xaxis.label.get_fontsize()) / 72.0
    across = place.width * figure.get_figwidth() / letter  # type: ignore[union-attr]
    up = place.height * figure.get_figheight() / letter  # type: ignore[union-attr]
    axes.set_xlabel(wrap(x.title, min(75, int(across))), parse_math=False)
    axes.set_ylabel(wrap(y.title, min(58, int(up))), parse_math=False)
    axes.grid(color="#E6E6E6", linewidth=0.5)
    axes.set_axisbelow(True)
    _trends(axes, scatter)
    _points(axes, scatter, small=beside is None)
    if beside is not None:
        _legend(axes, scatter, beside)
    return partial(_legend, axes, scatter, False)


def draw_plane(axes: "Axes", plane: Plane) -> None:
    """The plane within the axes, and a stem from each model to it, which is ρ."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    if axes.name != "3d":
        raise InputError(
            "a plane needs three-dimensional axes, such as figure.add_subplot(projection='3d')"
        )
    space: Any = axes
    one, two, up = plane.axes
    space.add_collection3d(Poly3DCollection([_sheet(plane)], color=LINE, alpha=0.25, linewidth=0))
    at = np.column_stack([one.within(plane.x[:, 0]), two.within(plane.x[:, 1]), up.within(plane.y)])
    foot = up.within(plane.predicted)
    for (across, along, top), bottom in zip(at, foot, strict=True):
        space.plot([across] * 2, [along] * 2, [top, bottom], color="#999999", linewidth=0.5)
    group = np.array(plane.group, dtype=object)
    for name, style in styles(plane.groups).items():
        for fitted in (True, False):
            rows = (group == name) & (plane.fitted == fitted)
            space.scatter(
                *at[rows].T,
                s=np.where(plane.highlighted[rows], 120.0, 14.0),
                marker="*" if name == OWN else style.marker,
                facecolors=style.colour if fitted or name == OWN else "white",
                edgecolors=style.colour,
                linewidths=0.8,
                depthshade=False,
            )
        space.plot([], [], [], style.marker, color=style.colour, label=shown(f"{style.label}"))
    for i in np.flatnonzero(plane.labelled):
        space.text(
            *at[i], f"  {shorten((plane.names or plane.models)[i])}", fontsize=6, parse_math=False
        )
    for name, axis in zip("xyz", plane.axes, strict=True):
        ticks = axis.ticks[:: 1 + len(axis.ticks) // 7]
        getattr(space, f"set_{name}lim")(axis.low, axis.high)
        getattr(space, f"set_{name}ticks")(axis.at(ticks), [percent(tick) for tick in ticks])
        title = axis.title.partition(", top-1")[0]
        pad = {"x": 5.0, "y": 12.0, "z": 1.0}[name]
        getattr(space, f"set_{name}label")(wrap(title, 24), parse_math=False, labelpad=pad)
        getattr(space, f"{name}axis").set_tick_params(pad=0.0)
    space.zaxis.set_rotate_label(False)
    space.zaxis.label.set_rotation(90.0)
    space.view_init(elev=18, azim=-125)
    space.set_box_aspect(None, zoom=0.86)  # room for the titles
    look: Any = {"frameon": False, "fontsize": 6.5, "ncols": 2, "columnspacing": 1.0}
    legend = space.legend(loc="upper left", **look)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _sheet(plane: Plane) -> Floats:
    """Corners (k, 3) of the plane, cut off where it leaves the axes above or below."""
    one, two, up = plane.axes
    ends = [(one.low, two.low), (one.high, two.low), (one.high, two.high), (one.low, two.high)]
    corners = [np.array([*end, np.dot(plane.weights, end) + plane.intercept]) for end in ends]
    for side, level in ((1.0, up.low), (-1.0, up.high)):
        kept = []
        for a, b in zip(corners, [*corners[1:], *corners[:1]], strict=True):
            inside = [side * (point[2] - level) >= 0 for point in (a, b)]
            kept += [a] if inside[0] else []
            kept += [a + (b - a) * (level - a[2]) / (b[2] - a[2])] if inside[0] != inside[1] else []
        corners = kept
    return np.array(corners).reshape(-1, 3)


def _trends(axes: "Axes", scatter: Scatter) -> None:
    """y = x, and the fitted lines: solid where models were fitted, dotted beyond."""
    x, y = scatter.x_axis, scatter.y_axis
    ends = scatter.diagonal
    if ends is not None:
        axes.plot(ends, ends, color="#333333", linewidth=0.9, dashes=(5, 3), zorder=1.5)
    colours = trend_colours([trend.name for trend in scatter.trends], scatter.groups)
    for trend in scatter.trends:
        colour, at, height = colours[trend.name], x.at(trend.x), y.at(trend.predicted)
        axes.fill_between(
            at, y.at(trend.low), y.at(trend.high), color=colour, alpha=0.22, linewidth=0, zorder=3
        )
        axes.plot(at, height, color=colour, linewidth=1.0, linestyle=":", zorder=4)
        solid = np.where(trend.extrapolated, np.nan, height)
        axes.plot(at, solid, color=colour, linewidth=1.4, zorder=4)


def _points(axes: "Axes", scatter: Scatter, *, small: bool = False) -> None:
    """Models with thin bars; hollow if outside the fit, × on an edge, a star if highlighted."""
    x, y = scatter.x_axis, scatter.y_axis
    at, height = x.within(scatter.x), y.within(scatter.y)
    left, right = x.within(scatter.x_low), x.within(scatter.x_high)
    bottom, top = y.within(scatter.y_low), y.within(scatter.y_high)
    area, thin = (16.0, 0.5) if len(at) <= 400 else (9.0, 0.3)
    area = 5.0 if small else area
    group = np.array(scatter.group, dtype=object)
    star, edge = scatter.highlighted, scatter.edge & ~scatter.highlighted
    for name, style in styles(scatter.groups).items():
        mine = group == name
        bar: Any = {"color": style.colour, "linewidth": thin, "alpha": 0.45, "zorder": 2.0}
        axes.hlines(height[mine], left[mine], right[mine], **bar)
        axes.vlines(at[mine], bottom[mine], top[mine], **bar)
        plain = np.flatnonzero(mine & ~star & ~edge)
        plain = plain[np.argsort(scatter.labelled[plain], kind="stable")]
        named = scatter.labelled[plain]
        axes.scatter(
            at[plain],
            height[plain],
            s=area * np.where(named, 1.4, 1.0),
            marker=style.marker,
            facecolors=[style.colour if fitted else "white" for fitted in scatter.fitted[plain]],
            edgecolors=style.colour,
            linewidths=np.where(named, 1.4, 0.5 if small else 0.8).tolist(),
            zorder=5,
        )
        special: Any = {"color": style.colour, "clip_on": False, "edgecolors": "black"}
        for rows, marker, size in ((mine & edge, "X", 3 * area), (mine & star, "*", 12 * area)):
            axes.scatter(
                at[rows], height[rows], s=size, marker=marker, zorder=6, linewidths=0.7, **special
            )


def _legend(axes: "Axes", scatter: Scatter, beside: bool, columns: int = 1) -> "Legend":
    """What is what, beside the axes or where they have room."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def mark(marker: str, size: float, face: str, edge: str) -> Line2D:
        look: Any = {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.8}
        return Line2D([], [], linestyle="none", marker=marker, markersize=size, **look)

    group, entries = np.array(scatter.group, dtype=object), dict[str, Any]()
    for name, style in styles(scatter.groups).items():
        mine = group == name
        face = style.colour if scatter.fitted[mine].any() or name == OWN else "white"
        own = name == OWN
        entries[f"{style.label} ({mine.sum():,})"] = mark(
            style.marker, 10 if own else 5, face, "black" if own else style.colour
        )
    colours = trend_colours([trend.name for trend in scatter.trends], scatter.groups)
    for name, n in scatter.fitted_by_trend.items():
        band = Patch(facecolor=colours[name], alpha=0.22, linewidth=0)
        line = Line2D([], [], color=colours[name], linewidth=1.4)
        entries[f"{name} ({n:,} models)"] = (band, line)
    if scatter.diagonal is not None:
        entries["y = x"] = Line2D([], [], color="#333333", linewidth=0.9, dashes=(5, 3))
    if scatter.edge.any():
        entries["At 0% or 100%"] = mark("X", 6, "white", "black")
    if (scatter.highlighted & (group != OWN)).any():
        entries["Highlighted"] = mark("*", 10, "white", "black")
    legend = axes.legend(
        list(entries.values()),
        [shown(textwrap.fill(label, 32)) for label in entries],
        loc="upper left" if beside else "lower right",
        bbox_to_anchor=(1.01, 1.0) if beside else None,
        frameon=not beside,
        edgecolor="none",
        framealpha=0.8,
        fontsize=7.0 if beside else 6.0,
        labelspacing=0.8 if beside else 0.35,
        handlelength=1.6,
        handletextpad=0.6,
        columnspacing=1.0,
        ncols=columns,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def write_names(axes: "Axes", chart: Scatter | Dots) -> None:
    """Names of the labelled models or points, clear of each other, of points, lines and the key.

    Places depend on the size of the axes, which must be final.
    """
    if isinstance(chart, Dots):
        points = np.column_stack([chart.x, chart.y])
        named = np.isin(chart.names, chart.labelled) & np.isfinite(points).all(axis=1)
        _name(axes, points, named, chart.names)
        return
    x, y = chart.x_axis, chart.y_axis
    points = np.column_stack([x.within(chart.x), y.within(chart.y)])
    along = [np.column_stack([x.at(t.x), y.at(t.predicted)])[::4] for t in chart.trends]
    stars = axes.transData.transform(points[chart.highlighted])[:, None]
    reach = 6.0 * axes.figure.dpi / 72.0 * _CROSS
    around = axes.transData.inverted().transform((stars + reach).reshape(-1, 2))
    called = chart.names or chart.models
    _name(axes, points, chart.labelled, called, np.vstack([around, *along]))


def _name(
    axes: "Axes", points: Floats, named: Bools, called: Sequence[str], more: Floats | None = None
) -> None:
    """Write the names of some points; ``more`` are further places that none may cover."""
    rows = np.flatnonzero(named)
    if not len(rows):
        return
    to_pixels, to_axes = axes.transData.transform, axes.transAxes.inverted().transform
    names = [shorten(called[int(i)]) for i in rows]
    look: Any = {"fontsize": 6.0, "parse_math": False, "ha": "center", "va": "center"}
    look |= {"linespacing": 1.0, "multialignment": "left"}
    dot = axes.figure.dpi / 72.0
    size = np.array([_extent(name, look["fontsize"]) for name in names]) * dot
    anchors, inside = to_pixels(points[rows]), axes.get_window_extent()
    there = points[np.isfinite(points).all(axis=1)]
    if more is not None:
        there = np.vstack([there, more])
    obstacles = np.vstack([to_pixels(there), _key(axes)])
    box = np.array(inside.extents) + dot * np.array([2.0, 1.5, -1.5, -1.5])
    centres = place_labels(anchors, size, obstacles, box)
    starts = (rim(anchors, centres, size) - centres) / size + 0.5
    leader = {"arrowstyle": "-", "linewidth": 0.5, "color": GREY, "shrinkA": 0, "shrinkB": 2.5}
    paper = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
    for i, name in enumerate(names):
        axes.annotate(
            name,
            tuple(points[rows[i]]),
            xytext=tuple(to_axes(centres[i])),
            textcoords="axes fraction",
            arrowprops={**leader, "relpos": tuple(starts[i])},
            bbox=paper,
            zorder=7,
            annotation_clip=False,
            in_layout=False,
            **look,
        )


def _extent(text: str, size: float) -> tuple[float, float]:
    """Width and height in points, whatever the resolution, which bends letters by a few percent."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    lines = text.split("\n")
    paths = [TextPath((0, 0), line, prop=FontProperties(size=size), usetex=False) for line in lines]
    return 1.05 * max(path.get_extents().width for path in paths), 1.2 * size * len(lines)


def _key(axes: "Axes") -> Floats:
    """The area of the legend, as places that names keep clear of."""
    legend = axes.get_legend()
    if legend is None:
        return np.empty((0, 2))
    box = legend.get_window_extent()
    step = axes.figure.dpi / 12.0
    across, up = np.arange(box.x0, box.x1, step), np.arange(box.y0, box.y1, step)
    return np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)


def wrap(text: str, width: int) -> str:
    """Lines of at most that many characters, broken at neither a line's ends nor an '='."""
    lines = text.replace(" = ", "\u00a0=\u00a0").replace(" % (", "\u00a0% (").split("\n")
    return "\n".join(textwrap.fill(line, width) for line in lines).replace("\u00a0%", " %")


def shown(label: str) -> str:
    """A label that matplotlib does not take for a private one."""
    return f"\u00a0{label}" if label.startswith("_") else label
