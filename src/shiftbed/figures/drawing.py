"""Charts drawn with matplotlib: onto axes, or into PNG, SVG and PDF files for paper.

Files touch no window system and no global state of pyplot, and the same data make the same bytes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.atomic import write_atomically
from shiftbed.display import middle
from shiftbed.errors import InputError, plain_lines, unknown
from shiftbed.figures.charts import Bars, Chart, Dots, Heatmap, JudgedChart, Panels, Plane, Scatter
from shiftbed.figures.labels import settle_keys
from shiftbed.figures.plain import ROOM, cut, draw_plain, key
from shiftbed.figures.scatters import GREY, draw_plane, draw_scatter, wrap, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

    Keys = list[tuple[Axes, Chart, Callable[[int], Legend]]]
    """Axes with a key, what is drawn on them, and what makes the key anew in so many columns."""


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
_DPI = 300
"""Dots an inch that places are found at: letters have other widths at other resolutions."""


def draw(chart: Chart, ax: "Axes | None" = None) -> "Axes":
    """Draw a chart onto matplotlib axes and return them; without axes, onto a figure of its own.

    Onto given axes go the data, axis titles, legend and title; a figure of its own (pyplot's, so
    that a notebook shows it) also has the small print: how to read it, what is left out, what to
    cite. Panels divide the place of the given axes; a plane needs three-dimensional ones.
    """
    chart = _harmless(chart)
    if ax is not None:
        top: Any = ax.get_figure(root=True)
        _settle(top, _draw(ax, chart, alone=False), own=False)
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
        figure = Figure(figsize=(wide, high), dpi=_DPI)
        _fill(figure, _harmless(chart), bare=style in WIDTHS)
    return figure


def save_static(chart: Chart, path: str | Path, *, dpi: int = _DPI, style: str = "paper") -> None:
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
    keys = _draw(axes, chart, alone=True, bare=bare)
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
    _settle(figure, keys, own=True)
    return axes


def _settle(figure: "Figure", keys: "Keys", *, own: bool) -> None:
    """Keys and names of models where they cover nothing; our own figure may grow for that."""
    settle_keys(figure, [(axes, remake) for axes, _, remake in keys], below=own)
    named = [
        (axes, chart)
        for axes, chart, _ in keys
        if isinstance(chart, Scatter) or (isinstance(chart, Dots) and chart.labelled)
    ]
    if own and named:
        figure.set_layout_engine("none")
    for axes, chart in named:
        write_names(axes, chart)


def _draw(axes: "Axes", chart: Chart, *, alone: bool, bare: bool = False) -> "Keys":
    """The chart on axes, which are the only ones of our own figure if it is ``alone``; its keys."""
    titled: dict[str, Any] = {"loc": "left", "parse_math": False}
    if bare:
        pass
    elif isinstance(chart, JudgedChart):
        said = "\n".join(wrap(line, 95) for line in chart.equations)
        title = said if alone else f"{chart.title}\n{said}"
        axes.set_title(title, fontsize=7.5, color=GREY, **titled)
    elif not (alone and isinstance(chart, Panels)):
        above = 18.0 if isinstance(chart, Panels) else None  # panels have titles of their own
        axes.set_title(chart.title, fontsize=9, wrap=True, pad=above, **titled)
    if isinstance(chart, Panels):
        return _panels(axes, chart)
    if isinstance(chart, Scatter):
        return [(axes, chart, draw_scatter(axes, chart, beside=alone and not bare))]
    if isinstance(chart, Plane):
        draw_plane(axes, chart)
        return []
    return _plain_chart(axes, chart)


def _plain_chart(axes: "Axes", chart: Chart) -> "Keys":
    draw_plain(axes, chart)
    return [(axes, chart, partial(key, axes))]


def _panels(axes: "Axes", chart: Panels) -> "Keys":
    """Axes for every panel in the place of the given ones, which are left empty."""
    place = axes.get_subplotspec()
    if place is None:
        raise InputError("panels need axes of a grid, such as those of matplotlib's subplots()")
    wide = min(chart.columns, len(chart.panels))
    grid = place.subgridspec(-(-len(chart.panels) // wide), wide)
    axes.set_axis_off()
    keys: Keys = []
    for i, panel in enumerate(chart.panels):
        place_of = axes.figure.add_subplot(grid[i // wide, i % wide])
        if len(chart.panels) > _LARGE:
            keys += _multiple(place_of, panel, first=not i)
        else:
            keys += _draw(place_of, panel, alone=False)
    return keys


def _multiple(axes: "Axes", panel: Chart, *, first: bool) -> "Keys":
    """One of many small charts: its title, data, lines and a few ticks; the first says the rest."""
    keys: Keys = []
    if isinstance(panel, Scatter):
        draw_scatter(axes, panel, beside=None)
        axes.set_ylabel("")  # its title says what it is
    else:
        keys = _plain_chart(axes, panel)
        if (legend := axes.get_legend()) is not None:
            legend.remove()
            if first:
                key(axes)
    axes.set_title(wrap(panel.title, 24), fontsize=6.5, loc="left", parse_math=False)
    for axis, room in ((axes.xaxis, 26), (axes.yaxis, 20)):
        text = axis.get_label().get_text().replace("-\n", "-").replace("\n", " ")
        text = middle(text.partition(", top-1")[0], 3 * room - 6)
        axis.set_label_text(wrap(text, room), fontsize=6)
        axis.set_tick_params(labelsize=6)
        ticks, names = axis.get_majorticklocs(), [t.get_text() for t in axis.get_ticklabels()]
        if isinstance(panel, Scatter) and len(ticks) > _TICKS:
            every = -(-len(ticks) // _TICKS)
            axis.set_ticks(ticks[::every], names[::every])
    return keys


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
        rows, columns = min(len(chart.rows), ROOM), min(len(chart.columns), ROOM)
        longest = max((len(cut(name, 36)) for name in chart.rows), default=0)
        width, height = min(0.42 * columns, 7.0), min(0.26 * rows, 7.5)
        return max(4.8, 0.075 * longest + width + 1.6), max(3.6, height + 2.2)
    if isinstance(chart, Bars):
        return max(5.2, 0.42 * len(chart.categories) + 1.8), 3.8
    return 5.6, 4.2


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
