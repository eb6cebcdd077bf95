"""Plain charts as plotly figures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.figures.charts import Bars, Chart, Curves, Dots, Heatmap, Panels, Reference
from shiftbed.figures.palette import looks
from shiftbed.figures.texts import GREY, safe
from shiftbed.figures.traces import FONT, MANY, rgba

_GRID = "#E6E6E6"
_FORMAT = {"gridcolor": _GRID, "zeroline": False}
_CELLS = 600
"""Above so many cells a heat map shows numbers on hover only."""


def chart_figure(go: Any, chart: Chart) -> Any:
    """The chart as a ``plotly.graph_objects.Figure``."""
    if isinstance(chart, Panels):
        from plotly.subplots import make_subplots

        wide = min(chart.columns, len(chart.panels))
        rows = -(-len(chart.panels) // wide)
        drawn = make_subplots(rows, wide, subplot_titles=[safe(p.title) for p in chart.panels])
        for i, panel in enumerate(chart.panels):
            _add(go, drawn, panel, i // wide + 1, i % wide + 1, legend=False)
        drawn.update_layout(height=max(450, 340 * rows))
        drawn.update_annotations(font={"size": 12})
    else:
        drawn = go.Figure()
        _add(go, drawn, chart, None, None, legend=True)
    drawn.update_layout(
        title={"text": safe(chart.title), "x": 0, "xref": "paper", "font": {"size": 16}},
        template="none",
        font={"family": FONT},
        hovermode="closest",
        hoverlabel={"align": "left", "bgcolor": "white"},
        margin={"l": 75, "r": 20, "t": 70, "b": 60},
    )
    return drawn


def _add(
    go: Any, drawn: Any, chart: Chart, row: int | None, column: int | None, *, legend: bool
) -> None:
    place = {} if row is None else {"row": row, "col": column}
    if isinstance(chart, Heatmap):
        drawn.add_trace(_heatmap(go, chart, legend), **place)
        drawn.update_xaxes(type="category", title=_title(chart.column_title), **place)
        drawn.update_yaxes(
            type="category", autorange="reversed", title=_title(chart.row_title), **place
        )
        drawn.update_yaxes(automargin=True, **place)
        return
    if isinstance(chart, Curves):
        for trace in _curves(go, chart, legend):
            drawn.add_trace(trace, **place)
        ticks: dict[str, Any] = {}
        if chart.x_labels:
            ticks = {
                "tickvals": list(range(len(chart.x_labels))),
                "ticktext": [safe(label) for label in chart.x_labels],
            }
        drawn.update_xaxes(title=_title(chart.x_title), **ticks, **_FORMAT, **place)
        drawn.update_yaxes(title=_title(chart.y_title), **_FORMAT, **place)
    elif isinstance(chart, Dots):
        for trace in _dots(go, chart, legend):
            drawn.add_trace(trace, **place)
        drawn.update_xaxes(title=_title(chart.x_title), **_FORMAT, **place)
        drawn.update_yaxes(title=_title(chart.y_title), **_FORMAT, **place)
    elif isinstance(chart, Bars):
        for trace in _bars(go, chart, legend):
            drawn.add_trace(trace, **place)
        drawn.update_layout(barmode="stack" if chart.stacked else "group")
        drawn.update_xaxes(type="category", automargin=True, **place)
        drawn.update_yaxes(title=_title(chart.y_title), **_FORMAT, **place)
    if isinstance(chart, Curves | Dots):
        for trace in _lines(go, chart, legend):
            drawn.add_trace(trace, **place)


def _title(text: str) -> dict[str, Any]:
    return {"text": safe(text), "font": {"size": 13}}


def _heatmap(go: Any, chart: Heatmap, bar: bool) -> Any:
    texts = [[f"{v:.{chart.digits}f}" if np.isfinite(v) else "" for v in r] for r in chart.values]
    if chart.marked is not None:
        texts = [
            [f"<b>{t}</b>" if m and t else t for t, m in zip(text, marks, strict=True)]
            for text, marks in zip(texts, chart.marked, strict=True)
        ]
    return go.Heatmap(
        z=np.where(np.isfinite(chart.values), chart.values, np.nan),
        x=[safe(name) for name in chart.columns],
        y=[safe(name) for name in chart.rows],
        zmin=chart.low,
        zmax=chart.high,
        colorscale="RdBu" if chart.diverging else "Cividis",
        reversescale=chart.diverging,
        showscale=bar,
        colorbar={"title": {"text": safe(chart.value_title)}},
        text=texts if chart.values.size <= _CELLS else None,
        texttemplate="%{text}" if chart.values.size <= _CELLS else None,
        hovertemplate="%{y}<br>%{x}<br>%{z:.4g}<extra></extra>",
    )


def _curves(go: Any, chart: Curves, legend: bool) -> list[Any]:
    traces = []
    for curve, look in zip(chart.curves, looks([c.name for c in chart.curves]), strict=True):
        if curve.low is not None and curve.high is not None:
            there = np.isfinite(curve.low) & np.isfinite(curve.high)
            traces.append(
                go.Scatter(
                    x=np.concatenate([curve.x[there], curve.x[there][::-1]]),
                    y=np.concatenate([curve.high[there], curve.low[there][::-1]]),
                    fill="toself",
                    fillcolor=rgba(look.colour, 0.18),
                    line={"width": 0},
                    mode="lines",
                    hoverinfo="skip",
                    showlegend=False,
                    legendgroup=curve.name,
                )
            )
        traces.append(
            go.Scatter(
                x=curve.x,
                y=curve.y,
                name=safe(curve.name),
                legendgroup=curve.name,
                mode="lines+markers" if curve.points else "lines",
                line={"color": look.colour, "dash": "dash" if curve.dashed else "solid"},
                marker={"symbol": look.symbol, "size": 6},
                showlegend=legend and len(chart.curves) > 1,
            )
        )
    return traces


def _dots(go: Any, chart: Dots, legend: bool) -> list[Any]:
    groups = chart.groups or ("",) * len(chart.names)
    names = list(dict.fromkeys(groups))
    group = np.array(groups, dtype=object)
    trace = go.Scattergl if len(chart.names) > MANY else go.Scatter
    traces = []
    for name, look in zip(names, looks(names), strict=True):
        rows = np.flatnonzero(group == name)
        written = [safe(chart.names[i]) if chart.names[i] in chart.labelled else "" for i in rows]
        traces.append(
            trace(
                x=chart.x[rows],
                y=chart.y[rows],
                error_x=_reach(chart.x, chart.x_low, chart.x_high, rows, look.colour),
                error_y=_reach(chart.y, chart.y_low, chart.y_high, rows, look.colour),
                mode="markers+text" if any(written) else "markers",
                text=written,
                textposition="top center",
                textfont={"size": 10, "color": GREY},
                customdata=[safe(chart.names[i]) for i in rows],
                hovertemplate="<b>%{customdata}</b><br>%{x:.4g}, %{y:.4g}<extra></extra>",
                marker={"color": look.colour, "symbol": look.symbol, "size": 7},
                name=safe(name),
                showlegend=legend and bool(chart.groups),
            )
        )
    return traces


def _reach(
    middle: NDArray[np.float64],
    low: NDArray[np.float64] | None,
    high: NDArray[np.float64] | None,
    rows: NDArray[np.int64],
    colour: str,
) -> dict[str, Any] | None:
    if low is None or high is None:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": np.nan_to_num(high[rows] - middle[rows]),
        "arrayminus": np.nan_to_num(middle[rows] - low[rows]),
        "thickness": 0.7,
        "width": 0,
        "color": rgba(colour, 0.45),
    }


def _lines(go: Any, chart: Curves | Dots, legend: bool) -> list[Any]:
    """Reference lines, cut to the range of the data."""
    if isinstance(chart, Dots):
        x, y = chart.x, chart.y
    else:
        x = np.concatenate([curve.x for curve in chart.curves]) if chart.curves else np.zeros(1)
        y = np.concatenate([curve.y for curve in chart.curves]) if chart.curves else np.zeros(1)
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    if not x.size or not y.size:
        return []
    names = list(dict.fromkeys(chart.groups)) if isinstance(chart, Dots) else []
    colours = {name: look.colour for name, look in zip(names, looks(names), strict=True)}
    return [
        go.Scatter(
            x=ends,
            y=heights,
            mode="lines",
            name=safe(line.name),
            opacity=line.opacity,
            line={"color": colours[line.group], "width": 1.8}
            if line.group in colours
            else {"color": GREY, "width": 1.2, "dash": "dash"},
            hoverinfo="skip",
            showlegend=legend and bool(line.name),
        )
        for line in chart.lines
        for ends, heights in [_ends(line, x, y)]
    ]


def _ends(
    line: Reference, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    if np.isinf(line.slope):
        return [line.intercept, line.intercept], [float(y.min()), float(y.max())]
    ends = [float(x.min()), float(x.max())]
    return ends, [line.slope * at + line.intercept for at in ends]


def _bars(go: Any, chart: Bars, legend: bool) -> list[Any]:
    traces = []
    for i, (name, look) in enumerate(zip(chart.series, looks(chart.series), strict=True)):
        error = None
        if chart.low is not None and chart.high is not None:
            rows = np.arange(len(chart.categories))
            error = _reach(chart.values[i], chart.low[i], chart.high[i], rows, "#222222")
        traces.append(
            go.Bar(
                x=[safe(category) for category in chart.categories],
                y=chart.values[i],
                error_y=error,
                marker={"color": look.colour},
                name=safe(name),
                showlegend=legend and len(chart.series) > 1,
            )
        )
    return traces
