"""Charts as finished data, and drawing them with matplotlib. Nothing here computes or opens a file.

A result draws itself with one line, ``return draw(self.chart(), ax)``:

>>> import numpy as np
>>> from matplotlib.figure import Figure
>>> bars = Bars(title="R²", categories=("a", "b"), series=("r",), values=np.array([[0.5, 0.9]]))
>>> axes = Figure().subplots(1, 2)
>>> draw(bars, axes[0]) is axes[0]
True

Without axes ``draw`` makes a figure of pyplot's; ``save_static`` writes .png, .svg and .pdf files,
and ``shiftbed.page.save`` these and interactive .html. Importing this loads no matplotlib.
"""

from shiftbed.figures.axis import Axis, fit_axis
from shiftbed.figures.charts import (
    Bars,
    Chart,
    Curve,
    Curves,
    Dots,
    Heatmap,
    Panels,
    Plane,
    Reference,
    Scatter,
    Trend,
)
from shiftbed.figures.drawing import STYLES, SUFFIXES, draw, figure_of, save_static

__all__ = [
    "STYLES",
    "SUFFIXES",
    "Axis",
    "Bars",
    "Chart",
    "Curve",
    "Curves",
    "Dots",
    "Heatmap",
    "Panels",
    "Plane",
    "Reference",
    "Scatter",
    "Trend",
    "draw",
    "figure_of",
    "fit_axis",
    "save_static",
]
