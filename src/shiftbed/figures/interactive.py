"""Interactive figures: plotly, and one HTML file that works without a network.

What the figures are made of is in ``traces``; here they become a figure or a page.
"""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.figures.charts import Chart, Plane, Scatter
from shiftbed.figures.charts_interactive import chart_figure
from shiftbed.figures.texts import GREY
from shiftbed.figures.traces import FONT, flat, space

CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,  # plotly 7 would else offer to upload the chart
    "plotlyServerURL": "",
    "typesetMath": False,  # a $ in a name is a $
}
"""plotly.js's settings, which keep it from the network."""


def figure(chart: Scatter | Plane | Chart) -> Any:
    """The chart as a ``plotly.graph_objects.Figure``."""
    go = _plotly()
    if isinstance(chart, Plane):
        return space(go, chart)
    return flat(go, chart) if isinstance(chart, Scatter) else chart_figure(go, chart)


def save_html(chart: Scatter | Plane | Chart, path: str | Path) -> None:
    """Write a page with this one chart."""
    page = html_page([chart], title=chart.title)
    with write_atomically(path) as file:
        file.write(page.encode())


def html_page(charts: Sequence[Scatter | Plane | Chart], *, title: str = "shiftbed") -> str:
    """One page with the charts, plotly.js within; nothing is loaded from anywhere."""
    parts = [fragment(chart, f"chart-{i + 1}") for i, chart in enumerate(charts)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 {FONT}; color: #222; max-width: 72rem }}
body {{ margin: 1.5rem auto; padding: 0 1rem }}
figure {{ margin: 0 0 3rem }}
figcaption {{ color: {GREY}; font-size: 13px }}
.chart {{ height: 42rem }}
</style>
<script>{plotly_script()}</script>
</head>
<body>
{"".join(parts)}
</body>
</html>
"""


def plotly_script() -> str:
    """plotly.js itself, for one script element per page."""
    _plotly()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def fragment(chart: Scatter | Plane | Chart, element: str) -> str:
    """The chart as an HTML figure with its small print, for a page that has plotly.js.

    ``element`` is the id of the element drawn into, unique in the page.
    """
    drawn = json.loads(figure(chart).to_json())
    said = (chart.reading, *chart.notes, chart.citation)
    caption = " ".join(html.escape(text) for text in said if text)
    arguments = ", ".join(script_json(drawn[key]) for key in ("data", "layout"))
    return (
        f'<figure>\n<div class="chart" id="{html.escape(element)}"></div>\n'
        f"<figcaption>{caption}</figcaption>\n"
        f"<script>Plotly.newPlot({script_json(element)}, {arguments}, "
        f"{script_json(CONFIG)})</script>\n</figure>\n"
    )


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise InputError("interactive figures need plotly: install shiftbed[report]") from None
    return go
