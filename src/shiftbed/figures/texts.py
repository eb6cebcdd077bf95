"""Titles, ticks and hover texts of interactive figures.

plotly reads a small HTML dialect of its own in all of them, so whatever comes from data is escaped.
"""

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shiftbed.figures.axis import Axis, percent
from shiftbed.figures.charts import Plane, Scatter

GREY, _GRID = "#555555", "#E6E6E6"


def safe(text: str) -> str:
    """Text from data as plotly shows it literally, on one line."""
    return html.escape(" ".join(text.split()), quote=False)


def title(chart: Scatter | Plane) -> dict[str, Any]:
    lines = [safe(line) for text in chart.equations for line in text.split("\n")]
    return {
        "text": safe(chart.title),
        "x": 0,
        "xref": "paper",
        "font": {"size": 18},
        "subtitle": {"text": "<br>".join(lines), "font": {"size": 12, "color": GREY}},
    }


def ticks(axis: Axis) -> dict[str, Any]:
    return {
        "title": {"text": safe(axis.title), "font": {"size": 13}},
        "range": [axis.low, axis.high],
        "tickvals": axis.at(axis.ticks),
        "ticktext": axis.tick_labels,
        "gridcolor": _GRID,
        "zeroline": False,
    }


def sparse(axis: Axis) -> dict[str, Any]:
    """Fewer ticks and a shorter title, as 3-D has less room for them."""
    kept: list[float] = []
    for tick in axis.ticks:
        if not kept or axis.at(tick) - axis.at(kept[-1]) >= (axis.high - axis.low) / 8:
            kept.append(tick)
    return {
        **ticks(axis),
        "title": {"text": safe(axis.setting)},
        "tickvals": axis.at(kept),
        "ticktext": [percent(tick) for tick in kept],
    }


def hover_text(chart: Scatter | Plane, i: int, accuracies: Sequence[str], level: float) -> str:
    """All that is known of a model."""
    measured = interval(chart.low[i], chart.high[i])
    usual = interval(chart.prediction_low[i], chart.prediction_high[i])
    lines = [
        f"<b>{safe(chart.models[i])}</b>",
        f"{safe(chart.grouping)}: {safe(chart.group[i])}"
        + (", fitted" if chart.fitted[i] else ", not fitted"),
        *accuracies,
    ]
    if np.isfinite(chart.effective[i]):
        lines += [
            f"predicted: {percent(chart.predicted[i], 2)}",
            f"ρ = {points(chart.effective[i])} points"
            + (f", {percent(level)} interval {measured}" if measured else ""),
            f"ρ of {percent(level)} of baseline models: {usual or '–'}",
            f"p = {_short(chart.p_value[i])}, q = {_short(chart.q_value[i])}",
        ]
    return "<br>".join(lines)


def accuracy_text(axis: Axis, value: float, low: float, high: float) -> str:
    around = f" [{percent(low, 2)}, {percent(high, 2)}]" if np.isfinite(low + high) else ""
    return f"{safe(axis.setting)}: {percent(value, 2)}{around}"


def _short(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "–"


def points(value: float) -> str:
    """A difference of accuracies in percentage points, with its sign.

    >>> points(0.0213), points(-0.004), points(float("nan"))
    ('+2.13', '−0.40', '–')
    """
    return f"{100 * value:+.2f}".replace("-", "−") if math.isfinite(value) else "–"


def interval(low: float, high: float) -> str:
    """An interval of differences in percentage points, empty where there is none."""
    return f"[{points(low)}, {points(high)}]" if math.isfinite(low + high) else ""
