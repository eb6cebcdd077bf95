"""Heat maps, curves, dots and bars drawn with matplotlib."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.display import middle
from shiftbed.figures.charts import Bars, Chart, Curves, Dots, Heatmap, Reference
from shiftbed.figures.palette import LINE, Style, looks
from shiftbed.figures.scatters import GREY, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

_DASHES = ((5, 3), (1, 2), (6, 2, 1, 2), (2, 1))
"""Of grey lines, so that the legend tells them apart."""
_COUNTS = 8
"""So many whole numbers on an axis of curves are its ticks."""
ROOM = 40
"""Above so many rows or columns a heat map has no numbers in its cells and fewer names."""


def draw_plain(axes: "Axes", chart: Chart) -> None:
    """Any chart but scatters, planes and panels."""
    draws: dict[type[Chart], Any] = {
        Heatmap: _heatmap,
        Curves: _curves,
        Dots: _dots,
        Bars: _bars,
    }
    draws[type(chart)](axes, chart)


def key(axes: "Axes", columns: int = 1) -> "Legend":
    """The legend of all that has a name."""
    look: Any = {"edgecolor": "none", "framealpha": 0.85, "columnspacing": 1.0}
    return axes.legend(fontsize=6.5, ncols=columns, **look)


def _heatmap(axes: "Axes", chart: Heatmap) -> None:
    finite = chart.values[np.isfinite(chart.values)]
    low = chart.low if chart.low is not None else float(finite.min()) if finite.size else 0.0
    high = chart.high if chart.high is not None else float(finite.max()) if finite.size else 1.0
    colours = "RdBu_r" if chart.diverging else "cividis"
    image = axes.imshow(chart.values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    place, figure = axes.get_position(), axes.figure
    across = place.width * figure.get_figwidth()  # type: ignore[union-attr]
    up = place.height * figure.get_figheight()  # type: ignore[union-attr]
    for names, ticks, room in (
        (chart.columns, axes.set_xticks, across),
        (chart.rows, axes.set_yticks, up),
    ):
        most = max(2, min(ROOM, int(0.55 * room / 0.11)))  # names and bars take their part
        every = max(1, -(-len(names) // most)) if room < 3.0 else max(1, -(-len(names) // ROOM))
        shown = [cut(name, 36 if room >= 3.0 else 24) for name in names[::every]]
        ticks(range(0, len(names), every), shown, fontsize=7)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.tick_params(length=0)
    for label in axes.get_xticklabels():
        label.set_rotation(90 if max(map(len, chart.columns), default=0) > 3 else 0)
    axes.set_xlabel(chart.column_title, parse_math=False)
    axes.set_ylabel(chart.row_title, parse_math=False)
    for side in axes.spines.values():
        side.set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(chart.value_title, parse_math=False)
    _numbers(axes, chart, low, high)


def _numbers(axes: "Axes", chart: Heatmap, low: float, high: float) -> None:
    """The numbers in the cells, in whichever of black and white can be read; marks in bold."""
    if max(chart.values.shape) > ROOM // 2:
        return
    span = (high - low) or 1.0
    for (row, column), value in np.ndenumerate(chart.values):
        if not np.isfinite(value):
            continue
        at = (value - low) / span
        dark = abs(at - 0.5) > 0.33 if chart.diverging else at < 0.5
        marked = chart.marked is not None and bool(chart.marked[row, column])
        text = f"{value:.{chart.digits}f}".replace("-", "−")
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=6,
            color="white" if dark else "black",
            fontweight="bold" if marked else "normal",
        )


def _curves(axes: "Axes", chart: Curves) -> None:
    if chart.behind is not None:
        every = np.ones(len(chart.behind.names), dtype=bool)
        _marks(axes, chart.behind, every, Style(label="", colour="#9A9A9A", marker="o"))
    keys = [c.group or c.name for c in chart.curves if not c.reference]
    unique = list(dict.fromkeys(keys))
    look_of = dict(zip(unique, looks(unique), strict=True))
    for curve in chart.curves:
        grey = Style(label=curve.name, colour=GREY, marker="")
        look = grey if curve.reference else look_of[curve.group or curve.name]
        axes.plot(
            curve.x,
            curve.y,
            color=look.colour,
            linestyle=(0, _DASHES[0]) if curve.dashed else "-",
            marker=look.marker if curve.points else "",
            markersize=3.5,
            linewidth=2.4 if curve.bold else 1.2,
            label=_plain(cut(look.label if curve.name in unique else curve.name, 60)),
        )
        if curve.low is not None and curve.high is not None:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=look.colour, alpha=0.18, linewidth=0
            )
            if len(curve.x) == 1:  # no area
                axes.vlines(curve.x, curve.low, curve.high, color=look.colour, linewidth=0.8)
    values = np.unique([float(x) for curve in chart.curves for x in curve.x])
    if 0 < len(values) <= _COUNTS and (values == np.round(values)).all():
        axes.set_xticks(values)  # severities and stages have nothing in between
    if chart.x_labels:
        axes.set_xticks(range(len(chart.x_labels)), [_plain(t) for t in chart.x_labels])
        if max(map(len, chart.x_labels)) > 4:
            axes.tick_params(axis="x", rotation=45)
    _finish(axes, chart, len(chart.curves))


def _dots(axes: "Axes", chart: Dots) -> None:
    groups = chart.groups or ("",) * len(chart.names)
    names = list(dict.fromkeys(groups))
    group = np.array(groups, dtype=object)
    for name, look in zip(names, looks(names), strict=True):
        rows = group == name
        _marks(axes, chart, rows, look)
    _finish(axes, chart, len(names) if chart.groups else 0)


def _marks(axes: "Axes", chart: Dots, rows: NDArray[np.bool_], look: Style) -> None:
    """Some of the points with their error bars."""
    x, y = chart.x[rows], chart.y[rows]
    bar: Any = {"color": look.colour, "linewidth": 0.5, "alpha": 0.45}
    if chart.x_low is not None and chart.x_high is not None:
        axes.hlines(y, chart.x_low[rows], chart.x_high[rows], **bar)
    if chart.y_low is not None and chart.y_high is not None:
        axes.vlines(x, chart.y_low[rows], chart.y_high[rows], **bar)
    axes.scatter(
        x, y, s=12, color=look.colour, marker=look.marker, linewidth=0, label=_plain(look.label)
    )


def _finish(axes: "Axes", chart: Curves | Dots, entries: int) -> None:
    """Reference lines within the limits of the data, titles, grid, legend."""
    low, high = axes.get_xlim(), axes.get_ylim()
    names = list(dict.fromkeys(chart.groups)) if isinstance(chart, Dots) else []
    colours = {name: look.colour for name, look in zip(names, looks(names), strict=True)}
    taken = sum(c.reference for c in chart.curves) if isinstance(chart, Curves) else 0
    axes.set_xlim(low)
    axes.set_ylim(high)
    named = _lines(axes, chart.lines, colours, taken)
    axes.set_xlim(low)
    axes.set_ylim(high)
    axes.set_xlabel(wrap(chart.x_title, 56), parse_math=False)
    axes.set_ylabel(wrap(chart.y_title, 44), parse_math=False)
    axes.grid(color="#E6E6E6", linewidth=0.5)
    axes.set_axisbelow(True)
    if entries > 1 or named:
        key(axes, 1 + (entries > 8))


def _lines(
    axes: "Axes", lines: tuple[Reference, ...], colours: dict[str, str], taken: int = 0
) -> int:
    """How many of them have a name in the legend; grey ones have dashes of their own each, but the
    first ``taken``, which curves have."""
    greys = dict.fromkeys(
        line.name for line in lines if line.group not in colours and not line.fitted
    )
    dashes = {name: _DASHES[(i + taken) % len(_DASHES)] for i, name in enumerate(greys)}
    for line in filter(partial(_in_sight, axes), lines):
        style: Any = {"color": GREY, "linewidth": 0.9, "zorder": 1.5}
        if line.group in colours or line.fitted:
            style |= {"color": colours.get(line.group, LINE), "linestyle": "-", "linewidth": 1.4}
        else:
            style["linestyle"] = (0, dashes[line.name])
        style["alpha"] = line.opacity
        if line.band:
            x, lower, upper = np.array(line.band).T
            shade: Any = {"alpha": 0.18 * line.opacity, "linewidth": 0}
            axes.fill_between(x, lower, upper, color=style["color"], **shade)
        if line.name:
            style["label"] = _plain(line.name)
        if np.isinf(line.slope):
            axes.axvline(line.intercept, **style)
        else:
            axes.axline((0.0, line.intercept), slope=line.slope, **style)
    return sum(bool(line.name) and _in_sight(axes, line) for line in lines)


def _in_sight(axes: "Axes", line: Reference) -> bool:
    """Whether a reference line passes between the limits of the axes."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    if np.isinf(line.slope):
        return left <= line.intercept <= right
    ends = [line.slope * x + line.intercept for x in (left, right)]
    return min(ends) <= top and max(ends) >= bottom


def _bars(axes: "Axes", chart: Bars) -> None:
    at: NDArray[np.float64] = np.arange(len(chart.categories), dtype=float)
    count = len(chart.series)
    width = 0.8 if chart.stacked else 0.8 / count
    bottom = np.zeros(len(at))
    for i, (name, look) in enumerate(zip(chart.series, looks(chart.series), strict=True)):
        values = chart.values[i]
        x = at if chart.stacked else at + (i - (count - 1) / 2) * width
        base: Any = bottom if chart.stacked else 0.0
        axes.bar(x, values, width, bottom=base, color=look.colour, label=_plain(name))
        if chart.low is not None and chart.high is not None:
            axes.vlines(x, chart.low[i], chart.high[i], color="#222222", linewidth=0.8)
        bottom = bottom + np.nan_to_num(values)
    axes.set_xticks(at, [_plain(cut(name, 28)) for name in chart.categories])
    if max(map(len, chart.categories), default=0) > 8:
        for label in axes.get_xticklabels():
            label.set_rotation(45)
            label.set_horizontalalignment("right")
    axes.set_xlim(-0.5, len(at) - 0.5)
    axes.set_ylabel(chart.y_title, parse_math=False)
    axes.axhline(0.0, color="#222222", linewidth=0.6)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.5)
    axes.set_axisbelow(True)
    if count > 1:
        axes.legend(fontsize=6.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def cut(name: str, most: int) -> str:
    """A name on one line, its middle left out where it is too long."""
    return middle(" ".join(name.split()), most)


def _plain(text: str) -> str:
    """Text that neither mathematics nor the legend's underscore rule changes."""
    escaped = text.replace("$", r"\$")
    return f"\u200b{escaped}" if escaped.startswith("_") else escaped
