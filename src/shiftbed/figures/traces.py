"""What interactive figures are made of: plotly's traces and layout, from finished charts.

plotly has no logit or probit axes, so positions are scaled values and ticks say the accuracies.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.figures.axis import Axis
from shiftbed.figures.charts import Plane, Scatter
from shiftbed.figures.labels import place_labels, shorten
from shiftbed.figures.palette import LINE, OWN, Style, styles, trend_colours
from shiftbed.figures.texts import GREY, accuracy_text, hover_text, safe, sparse, ticks, title

MANY = 1000
"""Above so many points WebGL draws them."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_NOMINAL = np.array([800.0, 440.0])
"""Size of the plotting area, in pixels, that labels are placed for."""


def flat(go: Any, chart: Scatter) -> Any:
    """A scatter plot: y = x, the bands and lines, then the models group by group."""
    x, y = chart.x_axis, chart.y_axis
    drawn = go.Figure()
    if chart.diagonal is not None:
        drawn.add_scatter(
            x=chart.diagonal,
            y=chart.diagonal,
            mode="lines",
            name="y = x",
            line={"color": "#333333", "width": 1.2, "dash": "dash"},
            hoverinfo="skip",
        )
    colours = trend_colours([trend.name for trend in chart.trends], chart.groups)
    fitted = chart.fitted_by_trend
    for i, trend in enumerate(chart.trends):
        colour, at = colours[trend.name], x.at(trend.x)
        shared: dict[str, Any] = {"legendgroup": trend.name, "hoverinfo": "skip", "mode": "lines"}
        drawn.add_scatter(
            x=np.concatenate([at, at[::-1]]),
            y=np.concatenate([y.at(trend.high), y.at(trend.low)[::-1]]),
            fill="toself",
            fillcolor=rgba(colour, 0.22),
            line={"width": 0},
            showlegend=False,
            **shared,
        )
        drawn.add_scatter(
            x=at,
            y=y.at(trend.predicted),
            line={"color": colour, "width": 1.2, "dash": "dot"},
            showlegend=False,
            **shared,
        )
        drawn.add_scatter(
            x=at,
            y=np.where(trend.extrapolated, np.nan, y.at(trend.predicted)),
            line={"color": colour, "width": 2},
            name=safe(f"{trend.name} ({fitted[trend.name]:,} models)"),
            showlegend=trend.name not in [t.name for t in chart.trends[:i]],
            **shared,
        )
    trace = go.Scattergl if len(chart.models) > MANY else go.Scatter
    group = np.array(chart.group, dtype=object)
    for name, style in styles(chart.groups).items():
        drawn.add_trace(trace(**_group(chart, style, np.flatnonzero(group == name))))
    drawn.update_layout(
        title=title(chart),
        xaxis=ticks(x),
        yaxis=ticks(y),
        annotations=_labels(chart),
        template="none",
        font={"family": FONT},
        hovermode="closest",
        hoverlabel={"align": "left", "bgcolor": "white"},
        margin={"l": 75, "r": 20, "t": 80 + 15 * len(chart.equations), "b": 60},
        legend={"font": {"size": 12}},
    )
    return drawn


def _group(chart: Scatter, style: Style, rows: NDArray[np.int64]) -> dict[str, Any]:
    """The models of a group: open if outside the fit, × on an edge, a star if highlighted."""
    x, y = chart.x_axis, chart.y_axis
    symbols, sizes, rims = [], [], []
    for i in rows:
        plain = style.symbol if chart.fitted[i] else f"{style.symbol}-open"
        special = "star" if chart.highlighted[i] else "x" if chart.edge[i] else ""
        symbols.append(special or plain)
        sizes.append(16 if special == "star" else 10 if special else 7)
        rims.append(1 if special else 0 if chart.fitted[i] else 1.3)
    hover = [
        hover_text(
            chart,
            i,
            [
                accuracy_text(x, chart.x[i], chart.x_low[i], chart.x_high[i]),
                accuracy_text(y, chart.y[i], chart.y_low[i], chart.y_high[i]),
            ],
            chart.band_level,
        )
        for i in rows
    ]
    at, height = x.within(chart.x[rows]), y.within(chart.y[rows])
    bar = {"type": "data", "symmetric": False, "thickness": 0.7, "width": 0}
    bar["color"] = rgba(style.colour, 0.45)

    def reach(axis: Axis, end: NDArray[np.float64], middle: NDArray[np.float64]) -> Any:
        return np.nan_to_num(np.abs(axis.within(end) - middle))

    return {
        "x": at,
        "y": height,
        "error_x": {
            **bar,
            "array": reach(x, chart.x_high[rows], at),
            "arrayminus": reach(x, chart.x_low[rows], at),
        },
        "error_y": {
            **bar,
            "array": reach(y, chart.y_high[rows], height),
            "arrayminus": reach(y, chart.y_low[rows], height),
        },
        "mode": "markers",
        "name": safe(f"{style.label} ({len(rows):,})"),
        "marker": {
            "symbol": symbols,
            "size": sizes,
            "color": style.colour,
            "opacity": 1,
            "line": {"width": rims, "color": "black"},
        },
        "hovertext": hover,
        "hoverinfo": "text",
        **({} if len(chart.models) > MANY else {"cliponaxis": False}),
    }


def _labels(chart: Scatter) -> list[dict[str, Any]]:
    """Names beside the labelled models, placed for a plotting area of the usual size."""
    rows = np.flatnonzero(chart.labelled)
    x, y = chart.x_axis, chart.y_axis
    low, span = np.array([x.low, y.low]), np.array([x.high - x.low, y.high - y.low])

    def pixels(a: Any, b: Any) -> NDArray[np.float64]:
        return np.asarray((np.column_stack([a, b]) - low) / span * _NOMINAL)

    at, height = x.within(chart.x), y.within(chart.y)
    obstacles = [pixels(at, height)]
    obstacles += [pixels(x.at(t.x), y.at(t.predicted))[::4] for t in chart.trends]
    names = [shorten(chart.models[i]).split("\n") for i in rows]
    sizes = np.array([[6.2 * max(map(len, lines)) + 4, 13.0 * len(lines) + 2] for lines in names])
    centres = place_labels(
        obstacles[0][rows], sizes, np.vstack(obstacles), np.array([0.0, 0.0, *_NOMINAL])
    )
    offsets = centres - obstacles[0][rows]
    return [
        {
            "x": float(at[i]),
            "y": float(height[i]),
            "ax": float(dx),
            "ay": -float(dy),
            "text": "<br>".join(safe(line) for line in lines),
            "align": "left",
            "font": {"size": 11},
            "bgcolor": "rgba(255,255,255,0.75)",
            "borderpad": 0,
            "arrowhead": 0,
            "arrowwidth": 0.7,
            "arrowcolor": GREY,
            "standoff": 4,
        }
        for i, lines, (dx, dy) in zip(rows, names, offsets, strict=True)
    ]


def space(go: Any, chart: Plane) -> Any:
    """A 3-D figure: the plane, the models, and a stem from each to the plane, which is ρ."""
    one, two, up = chart.axes
    drawn = go.Figure()
    drawn.add_surface(
        x=one.at(chart.grid[0]),
        y=two.at(chart.grid[1]),
        z=up.at(chart.surface),
        colorscale=[[0, LINE], [1, LINE]],
        opacity=0.35,
        showscale=False,
        hoverinfo="skip",
        name="Plane",
    )
    across, along = one.within(chart.x[:, 0]), two.within(chart.x[:, 1])
    height, foot = up.within(chart.y), up.within(chart.predicted)
    gap = np.full(len(height), np.nan)
    drawn.add_scatter3d(
        x=np.column_stack([across, across, gap]).ravel(),
        y=np.column_stack([along, along, gap]).ravel(),
        z=np.column_stack([height, foot, gap]).ravel(),
        mode="lines",
        line={"color": "#999999", "width": 1},
        hoverinfo="skip",
        name="ρ",
    )
    group = np.array(chart.group, dtype=object)
    for name, style in styles(chart.groups).items():
        rows = np.flatnonzero(group == name)
        values = zip(chart.axes, (*chart.x.T, chart.y), strict=True)
        lines = [[accuracy_text(a, float(v[i]), np.nan, np.nan) for i in rows] for a, v in values]
        drawn.add_scatter3d(
            x=across[rows],
            y=along[rows],
            z=height[rows],
            mode="markers",
            name=safe(f"{style.label} ({len(rows):,})"),
            marker={
                "size": 6 if name == OWN else 3.5,
                "color": style.colour,
                "symbol": ["x" if chart.edge[i] else "circle" for i in rows],
                "line": {"width": 0.5, "color": "black"},
            },
            hovertext=[
                hover_text(chart, i, list(said), chart.band_level)
                for i, *said in zip(rows, *lines, strict=True)
            ],
            hoverinfo="text",
        )
    drawn.update_layout(
        title=title(chart),
        scene={
            **{f"{axis}axis": sparse(of) for axis, of in zip("xyz", chart.axes, strict=True)},
            "aspectmode": "cube",
            "camera": {
                "center": {"x": 0, "y": 0, "z": -0.15},
                "eye": {"x": -1.4, "y": -1.75, "z": 0.75},
            },
        },
        template="none",
        font={"family": FONT},
        hoverlabel={"align": "left", "bgcolor": "white"},
        margin={"l": 20, "r": 20, "t": 90, "b": 20},
    )
    return drawn


def rgba(colour: str, alpha: float) -> str:
    """A colour such as #0072B2 made translucent."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"
