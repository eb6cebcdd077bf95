"""Figures for paper: PNG, SVG and PDF, drawn with matplotlib.

No window system and no global state of pyplot is touched, and the same data make the same bytes.
"""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError, unknown
from shiftbed.figures.charts import Chart
from shiftbed.figures.charts_static import draw_chart, size_of
from shiftbed.figures.data import Scatter
from shiftbed.figures.labels import place_labels, rim, shorten
from shiftbed.figures.palette import OWN, styles, trend_colours
from shiftbed.figures.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


STATIC = (".png", ".svg", ".pdf")
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.hashsalt": "shiftbed",
    "pdf.fonttype": 42,
}
STYLES: dict[str, dict[str, Any]] = {
    "paper": {},
    "slides": {
        "font.size": 10.5,
        "axes.linewidth": 1.0,
        "xtick.major.width": 1.0,
        "ytick.major.width": 1.0,
        "lines.linewidth": 2.2,
        "lines.markersize": 7.0,
    },
}
"""What ``paper`` and ``slides`` change: type and lines that can be read from afar."""
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": "shiftbed"},
    ".pdf": {"CreationDate": None, "Creator": "shiftbed", "Producer": None},
}
_SIZE = (7.2, 5.6)
_GREY = "#555555"
_LEFT: dict[str, Any] = {"x": 0.01, "ha": "left", "parse_math": False}
_CROSS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


def save_static(
    chart: Scatter | Chart, path: str | Path, *, dpi: int = 300, style: str = "paper"
) -> None:
    """Write the figure to a .png, .svg or .pdf file, in one of the ``STYLES``."""
    suffix = Path(path).suffix.lower()
    if suffix not in STATIC:
        raise InputError(f"{path}: expected a name ending in {', '.join(STATIC)}")
    figure = draw(chart, style=style)
    from matplotlib import style as styles_of

    with styles_of.context(["default", _STYLE, STYLES[style]]), write_atomically(path) as file:
        figure.savefig(file, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix])


def draw(
    chart: Scatter | Chart, *, size: tuple[float, float] | None = None, style: str = "paper"
) -> "Figure":
    """The figure, ``size`` inches wide and high."""
    if style not in STYLES:
        raise unknown("style", style, STYLES)
    try:
        from matplotlib import style as styles_of
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise InputError("drawing needs matplotlib: install shiftbed[report]") from None
    with styles_of.context(["default", _STYLE, STYLES[style]]):
        room = ConstrainedLayoutEngine(rect=(0.0, 0.0, 0.985, 1.0))
        if isinstance(chart, Chart):
            figure = Figure(figsize=size or size_of(chart), layout=room)
            draw_chart(figure, chart)
            _small_print(figure, chart)
            return figure
        figure = Figure(figsize=size or _SIZE, layout=room)
        axes = figure.add_subplot()
        _frame(figure, axes, chart)
        _lines(axes, chart)
        _points(axes, chart)
        _legend(axes, chart)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        _names(figure, axes, chart)
    return figure


def _frame(figure: "Figure", axes: "Axes", scatter: Scatter) -> None:
    """Scaled axes with percentages, title, equations, and the small print."""
    x, y = scatter.x_axis, scatter.y_axis
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.set_xticks(x.at(x.ticks), x.tick_labels)
    axes.set_yticks(y.at(y.ticks), y.tick_labels)
    axes.set_xlabel(_wrap(x.title, 75), parse_math=False)
    axes.set_ylabel(_wrap(y.title, 58), parse_math=False)
    axes.grid(color="#E6E6E6", linewidth=0.5)
    axes.set_axisbelow(True)
    figure.suptitle(_wrap(scatter.title, 70), fontsize=11, fontweight="bold", **_LEFT)
    axes.set_title(
        "\n".join(_wrap(line, 95) for line in scatter.equations),
        loc="left",
        fontsize=7.5,
        color=_GREY,
        parse_math=False,
    )
    _small_print(figure, scatter)


def _small_print(figure: "Figure", chart: Scatter | Chart) -> None:
    small = " ".join(filter(None, [chart.reading, *chart.notes, chart.citation]))
    width = round(22 * figure.get_figwidth())
    figure.supxlabel(_wrap(small, width), fontsize=6, color=_GREY, **_LEFT)


def _wrap(text: str, width: int) -> str:
    """Lines of at most that many characters, broken at neither a line's ends nor an '='."""
    lines = text.replace(" = ", "\u00a0=\u00a0").split("\n")
    return "\n".join(textwrap.fill(line, width) for line in lines)


def _lines(axes: "Axes", scatter: Scatter) -> None:
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


def _points(axes: "Axes", scatter: Scatter) -> None:
    """Models with thin bars; hollow if outside the fit, × on an edge, a star if highlighted."""
    x, y = scatter.x_axis, scatter.y_axis
    at, height = x.within(scatter.x), y.within(scatter.y)
    left, right = x.within(scatter.x_low), x.within(scatter.x_high)
    bottom, top = y.within(scatter.y_low), y.within(scatter.y_high)
    area, thin = (16.0, 0.5) if len(at) <= 400 else (9.0, 0.3)
    group = np.array(scatter.group, dtype=object)
    star, edge = scatter.highlighted, scatter.edge & ~scatter.highlighted
    for name, style in styles(scatter.groups).items():
        mine = group == name
        bar: Any = {"color": style.colour, "linewidth": thin, "alpha": 0.45, "zorder": 2.0}
        axes.hlines(height[mine], left[mine], right[mine], **bar)
        axes.vlines(at[mine], bottom[mine], top[mine], **bar)
        plain = mine & ~star & ~edge
        for fitted, named in ((True, False), (False, False), (True, True), (False, True)):
            rows = plain & (scatter.fitted == fitted) & (scatter.labelled == named)
            axes.scatter(
                at[rows],
                height[rows],
                s=area * (1.4 if named else 1.0),
                marker=style.marker,
                facecolors=style.colour if fitted else "white",
                edgecolors=style.colour,
                linewidths=1.4 if named else 0.8,
                zorder=5.5 if named else 5.0,
            )
        special: Any = {"clip_on": False, "edgecolors": "black", "linewidths": 0.7}
        for rows, marker, size in ((mine & edge, "X", 45.0), (mine & star, "*", 190.0)):
            axes.scatter(
                at[rows],
                height[rows],
                s=size,
                marker=marker,
                color=style.colour,
                zorder=6,
                **special,
            )


def _legend(axes: "Axes", scatter: Scatter) -> None:
    """What is what, beside the axes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[tuple[Any, str]] = []
    for name, style in styles(scatter.groups).items():
        rows = [i for i, group in enumerate(scatter.group) if group == name]
        filled = any(scatter.fitted[i] for i in rows) or name == OWN
        mark = Line2D(
            [],
            [],
            linestyle="none",
            marker=style.marker,
            markersize=10 if name == OWN else 5,
            markerfacecolor=style.colour if filled else "white",
            markeredgecolor="black" if name == OWN else style.colour,
            markeredgewidth=0.8,
        )
        entries.append((mark, f"{style.label} ({len(rows):,})"))
    colours = trend_colours([trend.name for trend in scatter.trends], scatter.groups)
    for name, n in scatter.fitted_by_trend.items():
        colour = colours[name]
        swatch = (
            Patch(facecolor=colour, alpha=0.22, linewidth=0),
            Line2D([], [], color=colour, linewidth=1.4),
        )
        entries.append((swatch, f"{name} ({count(n)})"))
    if scatter.diagonal is not None:
        dashed = Line2D([], [], color="#333333", linewidth=0.9, dashes=(5, 3))
        entries.append((dashed, "y = x"))
    for there, marker, size, label in (
        (scatter.edge.any(), "X", 6, "At 0% or 100%"),
        ((scatter.highlighted & (np.array(scatter.group) != OWN)).any(), "*", 10, "Highlighted"),
    ):
        if there:
            entries.append(
                (
                    Line2D(
                        [],
                        [],
                        linestyle="none",
                        marker=marker,
                        markersize=size,
                        markerfacecolor="white",
                        markeredgecolor="black",
                        markeredgewidth=0.7,
                    ),
                    label,
                )
            )
    legend = axes.legend(
        [handle for handle, _ in entries],
        [_shown(textwrap.fill(label, 32)) for _, label in entries],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        fontsize=7.0,
        labelspacing=0.8,
        handlelength=1.6,
        handletextpad=0.6,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _names(figure: "Figure", axes: "Axes", scatter: Scatter) -> None:
    """Names of the labelled models, clear of each other and, if possible, of points and lines."""
    rows = np.flatnonzero(scatter.labelled)
    if not len(rows):
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    renderer, to_pixels = canvas.get_renderer(), axes.transData.transform
    x, y = scatter.x_axis, scatter.y_axis
    points = np.column_stack([x.within(scatter.x), y.within(scatter.y)])
    along = [np.column_stack([x.at(t.x), y.at(t.predicted)])[::4] for t in scatter.trends]
    names = [shorten(scatter.models[i]) for i in rows]
    look: Any = {"fontsize": 6.0, "parse_math": False, "ha": "center", "va": "center"}
    look |= {"linespacing": 1.0, "multialignment": "left"}
    sizes = []
    for name in names:
        text = axes.text(0.5, 0.5, name, **look)
        sizes.append(text.get_window_extent(renderer).size)
        text.remove()
    size, anchors, inside = np.array(sizes), to_pixels(points[rows]), axes.get_window_extent()
    stars = to_pixels(points[scatter.highlighted])[:, None] + 8.0 * _CROSS
    obstacles = np.vstack([to_pixels(np.vstack([points, *along])), stars.reshape(-1, 2)])
    box = np.array(inside.extents) + np.array([4.0, 2.0, -2.0, -2.0])
    centres = place_labels(anchors, size, obstacles, box)
    starts = (rim(anchors, centres, size) - centres) / size + 0.5
    to_axes = axes.transAxes.inverted().transform
    leader = {"arrowstyle": "-", "linewidth": 0.5, "color": _GREY, "shrinkA": 0, "shrinkB": 2.5}
    for i, name in enumerate(names):
        axes.annotate(
            name,
            tuple(points[rows[i]]),
            xytext=tuple(to_axes(centres[i])),
            textcoords="axes fraction",
            arrowprops={**leader, "relpos": tuple(starts[i])},
            bbox={
                "boxstyle": "square,pad=0.1",
                "facecolor": "white",
                "alpha": 0.75,
                "linewidth": 0,
            },
            zorder=7,
            annotation_clip=False,
            in_layout=False,
            **look,
        )


def _shown(label: str) -> str:
    """A label that matplotlib does not take for a private one."""
    return f"\u00a0{label}" if label.startswith("_") else label
