"""Charts drawn with matplotlib: onto axes, or into PNG, SVG and PDF files for paper.

Files touch no window system and no global state of pyplot, and the same data make the same bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.atomic import write_atomically
from shiftbed.display import middle
from shiftbed.errors import InputError, plain_lines, unknown
from shiftbed.figures.charts import (
    Bars,
    Chart,
    Curves,
    Dots,
    Heatmap,
    JudgedChart,
    Panels,
    Plane,
    Reference,
    Scatter,
)
from shiftbed.figures.palette import Style, looks
from shiftbed.figures.scatters import GREY, draw_plane, draw_scatter, wrap, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SUFFIXES = (".png", ".svg", ".pdf")
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.hashsalt": "shiftbed",
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
}
STYLES: dict[str, dict[str, Any]] = {
    "paper": {},
    "column": {"font.size": 7.0, "xtick.labelsize": 6.5, "ytick.labelsize": 6.5},
    "columns": {"font.size": 7.5},
    "slides": {
        "font.size": 10.5,
        "axes.linewidth": 1.0,
        "xtick.major.width": 1.0,
        "ytick.major.width": 1.0,
        "lines.linewidth": 2.2,
        "lines.markersize": 7.0,
    },
}
"""What each style changes. ``slides`` has type and lines that can be read from afar; ``column``
and ``columns`` are as wide as one and two columns of a paper, with type of 6 to 9 points and no
title or small print, for the paper has a caption."""
WIDTHS = {"column": 3.35, "columns": 6.9}
"""Inches, of the styles that have a width of their own."""
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": "shiftbed"},
    ".pdf": {"CreationDate": None, "Creator": "shiftbed", "Producer": None},
}
_LEFT: dict[str, Any] = {"x": 0.01, "ha": "left", "parse_math": False}
_LARGE = 4
"""Of more panels than this each is a small multiple."""
_TICKS = 4
"""Ticks of a small multiple."""
_SECOND = 0.15
"""Inches that the second line of a title takes where there is one column."""
_COUNTS = 8
"""So many whole numbers on an axis of curves are its ticks."""
_ROOM = 40
"""Above so many rows or columns a heat map has no numbers in its cells and fewer names."""


def draw(chart: Chart, ax: "Axes | None" = None) -> "Axes":
    """Draw a chart onto matplotlib axes and return them; without axes, onto a figure of its own.

    Onto given axes go the data, axis titles, legend and title; a figure of its own (pyplot's, so
    that a notebook shows it) also has the small print: how to read it, what is left out, what to
    cite. Panels divide the place of the given axes; a plane needs three-dimensional ones.
    """
    chart = _harmless(chart)
    if ax is not None:
        _draw(ax, chart, alone=False)
        return ax
    with _styled("paper"):
        import matplotlib.pyplot as plt

        return _fill(plt.figure(figsize=_size(chart)), chart)


def figure_of(chart: Chart, *, style: str = "paper") -> "Figure":
    """A figure with the chart, its title and small print, unknown to pyplot."""
    with _styled(style):
        from matplotlib.figure import Figure

        wide, high = _size(chart)
        if style in WIDTHS:
            high *= (WIDTHS[style] / wide) ** 0.8
            wide = WIDTHS[style]
            if isinstance(chart, Scatter):
                high = min(high, 0.66 * wide) if wide > 5 else high + _SECOND
        figure = Figure(figsize=(wide, high))
        _fill(figure, _harmless(chart), bare=style in WIDTHS)
    return figure


def save_static(chart: Chart, path: str | Path, *, dpi: int = 300, style: str = "paper") -> None:
    """Write the figure to a .png, .svg or .pdf file, in one of the ``STYLES``; text is text."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a name ending in {', '.join(SUFFIXES)}")
    figure = figure_of(chart, style=style)
    with _styled(style), write_atomically(path) as file:
        figure.savefig(file, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix])


@contextmanager
def _styled(style: str) -> Iterator[None]:
    if style not in STYLES:
        raise unknown("style", style, STYLES)
    try:
        from matplotlib import style as styles_of
    except ImportError:
        raise InputError("drawing needs matplotlib: pip install 'shiftbed[report]'") from None
    with styles_of.context(["default", _STYLE, STYLES[style]]):
        yield


def _fill(figure: "Figure", chart: Chart, *, bare: bool = False) -> "Axes":
    """The chart on an empty figure, its title and small print around it unless it is ``bare``."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0.0, 0.0, 0.985, 1.0)))
    axes = figure.add_subplot(projection="3d" if isinstance(chart, Plane) else None)
    _draw(axes, chart, alone=True, bare=bare)
    if bare:
        pass
    elif isinstance(chart, JudgedChart):
        figure.suptitle(wrap(chart.title, 70), fontsize=11, fontweight="bold", **_LEFT)
    elif isinstance(chart, Panels):
        figure.suptitle(chart.title, fontsize=10, **_LEFT)
    if not bare:
        small = " ".join(filter(None, [chart.reading, *chart.notes, chart.citation]))
        width = round(20.5 * figure.get_figwidth())
        figure.supxlabel(wrap(small, width), fontsize=6, color=GREY, **_LEFT)
    if isinstance(chart, Scatter):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        write_names(axes, chart)
    return axes


def _draw(axes: "Axes", chart: Chart, *, alone: bool, bare: bool = False) -> None:
    """The chart on axes, which are the only ones of our own figure if it is ``alone``."""
    titled: dict[str, Any] = {"loc": "left", "parse_math": False}
    if bare:
        pass
    elif isinstance(chart, JudgedChart):
        said = "\n".join(wrap(line, 95) for line in chart.equations)
        title = said if alone else f"{chart.title}\n{said}"
        axes.set_title(title, fontsize=7.5, color=GREY, **titled)
    elif not (alone and isinstance(chart, Panels)):
        axes.set_title(chart.title, fontsize=9, wrap=True, **titled)
    if isinstance(chart, Panels):
        _panels(axes, chart)
    elif isinstance(chart, Scatter):
        draw_scatter(axes, chart, beside=alone and not bare)
        if not alone:
            axes.figure.draw_without_rendering()  # type: ignore[union-attr]
            write_names(axes, chart)
    elif isinstance(chart, Plane):
        draw_plane(axes, chart)
    else:
        _PLAIN[type(chart)](axes, chart)


def _panels(axes: "Axes", chart: Panels) -> None:
    """Axes for every panel in the place of the given ones, which are left empty."""
    place = axes.get_subplotspec()
    if place is None:
        raise InputError("panels need axes of a grid, such as those of matplotlib's subplots()")
    wide = min(chart.columns, len(chart.panels))
    grid = place.subgridspec(-(-len(chart.panels) // wide), wide)
    axes.set_axis_off()
    for i, panel in enumerate(chart.panels):
        place_of = axes.figure.add_subplot(grid[i // wide, i % wide])
        if len(chart.panels) > _LARGE:
            _multiple(place_of, panel, first=not i)
        else:
            _draw(place_of, panel, alone=False)


def _multiple(axes: "Axes", panel: Chart, *, first: bool) -> None:
    """One of many small charts: its title, data, lines and a few ticks; the first says the rest."""
    if isinstance(panel, Scatter):
        draw_scatter(axes, panel, beside=None)
        axes.set_ylabel("")  # its title says what it is
    else:
        _PLAIN[type(panel)](axes, panel)
        if (legend := axes.get_legend()) is not None:
            legend.remove()
            if first:
                axes.legend(fontsize=6, loc="lower right")
    axes.set_title(wrap(panel.title, 24), fontsize=6.5, loc="left", parse_math=False)
    for axis in (axes.xaxis, axes.yaxis):
        text = axis.get_label().get_text().partition(", top-1")[0]
        axis.set_label_text(wrap(middle(text.replace("\n", " "), 44), 26), fontsize=6)
        axis.set_tick_params(labelsize=6)
        ticks, names = axis.get_majorticklocs(), [t.get_text() for t in axis.get_ticklabels()]
        if isinstance(panel, Scatter) and len(ticks) > _TICKS:
            every = -(-len(ticks) // _TICKS)
            axis.set_ticks(ticks[::every], names[::every])


def _size(chart: Chart) -> tuple[float, float]:
    """Inches wide and high."""
    if isinstance(chart, Panels):
        sizes = [_size(panel) for panel in chart.panels]
        wide = min(chart.columns, len(sizes))
        rows = -(-len(sizes) // wide)
        part = 0.62 if len(sizes) > 6 else 0.8
        return (
            max(6.0, wide * part * max(s[0] for s in sizes)),
            rows * part * max(s[1] for s in sizes) + 0.6,
        )
    if isinstance(chart, JudgedChart):
        return 7.2, 5.6
    if isinstance(chart, Heatmap):
        rows, columns = min(len(chart.rows), _ROOM), min(len(chart.columns), _ROOM)
        longest = max((len(_cut(name, 36)) for name in chart.rows), default=0)
        width, height = min(0.42 * columns, 7.0), min(0.26 * rows, 7.5)
        return max(4.8, 0.075 * longest + width + 1.6), max(3.6, height + 2.2)
    if isinstance(chart, Bars):
        return max(5.2, 0.42 * len(chart.categories) + 1.8), 3.8
    return 5.6, 4.2


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
        most = max(2, min(_ROOM, int(0.55 * room / 0.11)))  # names and bars take their part
        every = max(1, -(-len(names) // most)) if room < 3.0 else max(1, -(-len(names) // _ROOM))
        shown = [_cut(name, 36 if room >= 3.0 else 24) for name in names[::every]]
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
    if max(chart.values.shape) > _ROOM // 2:
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
            linestyle="--" if curve.dashed else "-",
            marker=look.marker if curve.points else "",
            markersize=3.5,
            linewidth=2.4 if curve.bold else 1.2,
            label=_plain(_cut(look.label if curve.name in unique else curve.name, 40)),
        )
        if curve.low is not None and curve.high is not None:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=look.colour, alpha=0.18, linewidth=0
            )
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
    for i in (chart.names.index(name) for name in chart.labelled if name in chart.names):
        axes.annotate(
            _plain(_cut(chart.names[i], 30)),
            (chart.x[i], chart.y[i]),
            (3, 3),
            textcoords="offset points",
            fontsize=6,
            color=GREY,
        )
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
    named = _lines(axes, chart.lines, colours)
    axes.set_xlim(low)
    axes.set_ylim(high)
    axes.set_xlabel(chart.x_title, parse_math=False)
    axes.set_ylabel(chart.y_title, parse_math=False)
    axes.grid(color="#E6E6E6", linewidth=0.5)
    axes.set_axisbelow(True)
    if entries > 1 or named:
        look: Any = {"edgecolor": "none", "framealpha": 0.85, "ncols": 1 + (entries > 8)}
        axes.legend(fontsize=6.5, **look)


def _lines(axes: "Axes", lines: tuple[Reference, ...], colours: dict[str, str]) -> int:
    """How many of them have a name in the legend."""
    for line in lines:
        style: Any = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (5, 3)), "zorder": 1.5}
        if line.group in colours:
            style |= {"color": colours[line.group], "linestyle": "-", "linewidth": 1.4}
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
    return sum(bool(line.name) for line in lines)


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
    axes.set_xticks(at, [_plain(_cut(name, 28)) for name in chart.categories])
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


def _cut(name: str, most: int) -> str:
    """A name on one line, its middle left out where it is too long."""
    return middle(" ".join(name.split()), most)


def _harmless(value: Any) -> Any:
    """A chart whose texts, which may be anybody's names, hide nothing and turn nothing around."""
    if isinstance(value, str):
        return plain_lines(value)
    if isinstance(value, tuple):
        return tuple(map(_harmless, value))
    if is_dataclass(value) and type(value).__module__ == Chart.__module__:
        one: Any = value
        own = {field.name: _harmless(getattr(one, field.name)) for field in fields(one)}
        return replace(one, **own)
    return value


def _plain(text: str) -> str:
    """Text that neither mathematics nor the legend's underscore rule changes."""
    escaped = text.replace("$", r"\$")
    return f"\u200b{escaped}" if escaped.startswith("_") else escaped


_PLAIN: dict[type[Chart], Any] = {Heatmap: _heatmap, Curves: _curves, Dots: _dots, Bars: _bars}
