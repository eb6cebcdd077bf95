"""Charts as finished data: scatters, planes, heat maps, curves, dots, bars, and panels of these.

Whoever computes fills them in; drawing only draws. ``reading`` says how to read the chart,
``notes`` what is not in it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.figures.axis import Axis

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
    marked: Bools | None = None
    """Cells to set apart, such as the best of a row or what is significant."""

    def __post_init__(self) -> None:
        _check_shapes(self, "values marked", (len(self.rows), len(self.columns)))


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
    group: str = ""
    """Curves of one group have one colour; none: each has its own; dashed without points: grey."""
    bold: bool = False
    """A thicker line, for what is highlighted."""

    def __post_init__(self) -> None:
        _check_shapes(self, "y low high", self.x.shape)

    @property
    def reference(self) -> bool:
        """Whether it is there to compare with, and no data."""
        return self.dashed and not self.points


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A straight line to compare with: y = slope·x + intercept, x = intercept if infinite."""

    name: str
    slope: float = 0.0
    intercept: float = 0.0
    group: str = ""
    """The group of dots whose line it is, and whose colour it has; none: grey and dashed."""
    fitted: bool = False
    """Whether it is the line that ρ is counted from, which has the same colour in every chart."""
    opacity: float = 1.0
    band: tuple[tuple[float, float, float], ...] = ()
    """(x, low, high) in the order of x: the confidence band of a fitted line."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves(Chart):
    """Curves over a shared x axis."""

    x_title: str
    y_title: str
    curves: tuple[Curve, ...]
    x_labels: tuple[str, ...] = ()
    """Names of x = 0, 1, …, where x is a category."""
    lines: tuple[Reference, ...] = ()
    behind: "Dots | None" = None
    """Points under the curves, in grey."""


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
    lines: tuple[Reference, ...] = ()
    labelled: tuple[str, ...] = ()
    """Points whose name is written beside them."""

    def __post_init__(self) -> None:
        _check_shapes(self, "x y x_low x_high y_low y_high", (len(self.names),))
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
        _check_shapes(self, "values low high", (len(self.series), len(self.categories)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Panels(Chart):
    """Several charts in rows of ``columns``, each with a title of its own."""

    panels: tuple[Chart, ...]
    columns: int = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Trend:
    """A fitted line over a grid of ID accuracies; a line with a knee makes two."""

    name: str
    """What the testbed calls its line, or the group the line was fitted on and "line"."""
    x: Floats
    predicted: Floats
    low: Floats
    high: Floats
    """Confidence band of the line."""
    extrapolated: Bools
    """Where x is outside the fitted models' range."""
    n: int
    slope: float
    intercept: float


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedChart(Chart):
    """Models against what was fitted through some of them; arrays follow ``models``."""

    models: tuple[str, ...]
    names: tuple[str, ...] = ()
    """What to call the models; their own names if empty."""
    grouping: str
    """The column that groups come from."""
    group: tuple[str, ...]
    groups: tuple[str, ...]
    """The groups there are, in the order of the legend."""
    x: Floats
    """ID accuracies: (M,), of a plane (M, 2)."""
    y: Floats
    fitted: Bools
    predicted: Floats
    effective: Floats
    """ρ; NaN, as all that follows from it, for models that no line serves."""
    low: Floats
    high: Floats
    """Measurement interval of ρ."""
    prediction_low: Floats
    prediction_high: Floats
    """Where ρ of a baseline model would fall."""
    p_value: Floats
    q_value: Floats
    """Over all models of the testbed, drawn or not."""
    edge: Bools
    """An accuracy of 0 or 1 that the scale has no finite place for: drawn on the axis' end."""
    highlighted: Bools
    labelled: Bools
    band_level: float
    """Level of the intervals of ρ, and of a line's band."""
    equations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scatter(JudgedChart):
    """Models over one ID accuracy with their error bars, and the lines through some of them."""

    x_axis: Axis
    y_axis: Axis
    x_low: Floats
    x_high: Floats
    y_low: Floats
    y_high: Floats
    """Clopper–Pearson intervals; NaN where sizes are unknown."""
    level: float
    """Level of these intervals."""
    trends: tuple[Trend, ...]

    @property
    def diagonal(self) -> tuple[float, float] | None:
        """Ends of y = x in the positions both axes show, None where it is out of sight."""
        low = max(self.x_axis.low, self.y_axis.low)
        high = min(self.x_axis.high, self.y_axis.high)
        return (low, high) if low < high else None

    @property
    def fitted_by_trend(self) -> dict[str, int]:
        """How many models each line was fitted through, by its name."""
        names = dict.fromkeys(trend.name for trend in self.trends)
        return {name: sum(t.n for t in self.trends if t.name == name) for name in names}


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane(JudgedChart):
    """Models over two ID accuracies, and the plane through some of them."""

    axes: tuple[Axis, Axis, Axis]
    """Of both ID settings and the OOD one."""
    weights: tuple[float, float]
    intercept: float
    """S(y) = w₁·S(x₁) + w₂·S(x₂) + b: a plane in the positions of the axes."""


def _check_shapes(record: object, names: str, wanted: tuple[int, ...]) -> None:
    """Refuse the first array that is there and has another shape."""
    for name in names.split():
        value = getattr(record, name)
        if value is not None and value.shape != wanted:
            raise InputError(f"{name} must have shape {wanted}, has {value.shape}")
