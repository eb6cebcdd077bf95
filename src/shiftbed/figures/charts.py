"""Plain charts as finished data: a heat map, curves, dots, bars, and several of them together.

Whoever computes fills them in; ``static`` and ``interactive`` drawing only draw. ``reading`` says
how to read the chart, ``notes`` what is not in it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """What every chart has."""

    title: str
    reading: str = ""
    notes: tuple[str, ...] = ()
    citation: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Heatmap(Chart):
    """A matrix of numbers, its first row on top; NaN is left blank."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(rows, columns)"""
    row_title: str = ""
    column_title: str = ""
    value_title: str = ""
    digits: int = 2
    """Decimals written into the cells, where there is room."""
    low: float | None = None
    high: float | None = None
    """Ends of the colour scale; default: of the values."""
    diverging: bool = False
    """Two colours that meet in white halfway between the ends."""
    marked: NDArray[np.bool_] | None = None
    """Cells to set apart, such as the best of a row or what is significant."""

    def __post_init__(self) -> None:
        _shape("values", self.values, (len(self.rows), len(self.columns)))
        if self.marked is not None:
            _shape("marked", self.marked, self.values.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One curve with, perhaps, a band or error bars: NaN breaks it."""

    name: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dashed: bool = False
    points: bool = True
    """Whether each point is marked, or only the line is drawn."""

    def __post_init__(self) -> None:
        for name in ("y", "low", "high"):
            value = getattr(self, name)
            if value is not None:
                _shape(name, value, self.x.shape)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A straight reference line: y = slope·x + intercept; an infinite slope is x = intercept."""

    name: str
    slope: float = 0.0
    intercept: float = 0.0
    group: str = ""
    """The group of dots whose line it is, and whose colour it has; none: grey and dashed."""
    opacity: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves(Chart):
    """Curves over a shared x axis."""

    x_title: str
    y_title: str
    curves: tuple[Curve, ...]
    x_labels: tuple[str, ...] = ()
    """Names of x = 0, 1, …, where x is a category."""
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Dots(Chart):
    """Named points in groups, with error bars where there are intervals, and reference lines."""

    x_title: str
    y_title: str
    names: tuple[str, ...]
    x: Floats
    y: Floats
    groups: tuple[str, ...] = ()
    """Group of each point; none: all are alike."""
    x_low: Floats | None = None
    x_high: Floats | None = None
    y_low: Floats | None = None
    y_high: Floats | None = None
    lines: tuple[Line, ...] = ()
    labelled: tuple[str, ...] = ()
    """Points whose name is written beside them."""

    def __post_init__(self) -> None:
        size = (len(self.names),)
        for name in ("x", "y", "x_low", "x_high", "y_low", "y_high"):
            value = getattr(self, name)
            if value is not None:
                _shape(name, value, size)
        if self.groups and len(self.groups) != len(self.names):
            raise InputError(f"{len(self.groups)} groups for {len(self.names)} points")


@dataclass(frozen=True, kw_only=True, eq=False)
class Bars(Chart):
    """Bars of one or more series over named categories."""

    categories: tuple[str, ...]
    series: tuple[str, ...]
    values: Floats
    """(series, categories)"""
    low: Floats | None = None
    high: Floats | None = None
    stacked: bool = False
    y_title: str = ""

    def __post_init__(self) -> None:
        size = (len(self.series), len(self.categories))
        for name in ("values", "low", "high"):
            value = getattr(self, name)
            if value is not None:
                _shape(name, value, size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Panels(Chart):
    """Several charts in rows of ``columns``, each with a title of its own."""

    panels: tuple[Heatmap | Curves | Dots | Bars, ...] = field()
    columns: int = 2


def _shape(name: str, value: NDArray[np.generic], wanted: tuple[int, ...]) -> None:
    if value.shape != wanted:
        raise InputError(f"{name} must have shape {wanted}, has {value.shape}")
