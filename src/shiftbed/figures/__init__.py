"""Charts: their finished data (``scatter``, ``plane``, ``charts``), and files drawn (``save``).

Nothing here imports matplotlib or plotly before something is drawn.
"""

from pathlib import Path

from shiftbed.errors import InputError
from shiftbed.figures.charts import Chart
from shiftbed.figures.data import Scatter, scatter
from shiftbed.figures.plane import Plane, plane
from shiftbed.figures.trend import Trend

__all__ = ["SUFFIXES", "Chart", "Plane", "Scatter", "Trend", "plane", "save", "scatter"]

SUFFIXES = (".png", ".svg", ".pdf", ".html")


def save(
    chart: Scatter | Plane | Chart, path: str | Path, *, dpi: int = 300, style: str = "paper"
) -> None:
    """Write a chart to a file of the kind its name ends in; ``dpi`` is for .png.

    ``style`` is ``paper`` or ``slides``, for everything but .html.

    A plane is three-dimensional and can only be turned around in .html.
    """
    suffix = Path(path).suffix.lower()
    allowed = (".html",) if isinstance(chart, Plane) else SUFFIXES
    if suffix not in allowed:
        what = "a plane" if isinstance(chart, Plane) else "a figure"
        raise InputError(f"{path}: {what} is written to {', '.join(allowed)}, not {suffix!r}")
    if suffix == ".html":
        from shiftbed.figures.interactive import save_html

        save_html(chart, path)
        return
    from shiftbed.figures.static import save_static

    assert isinstance(chart, Scatter | Chart)
    save_static(chart, path, dpi=dpi, style=style)
