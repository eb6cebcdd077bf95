"""What a figure shows, finished: everything is computed here, and drawing only draws.

taori2020, Figure 2: accuracy under shift over standard accuracy on logit axes, each model with its
99.5 % Clopper–Pearson intervals, the line through the standard models with its 95 % bootstrap band,
and y = x.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.intervals import benjamini_hochberg, clopper_pearson
from shiftbed.errors import InputError
from shiftbed.figures.axis import Axis, fit_axis
from shiftbed.figures.groups import grouped, split_by
from shiftbed.figures.palette import OWN
from shiftbed.figures.trend import Trend
from shiftbed.figures.trend import trends as trends_of
from shiftbed.figures.words import axis_title, equation, line_name, notes, reading
from shiftbed.records import Shift
from shiftbed.scales import LOGIT, Scale
from shiftbed.scales import scale as find_scale
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_JUDGED = ("predicted", "effective", "low", "high", "prediction_low", "prediction_high", "p_value")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scatter:
    """Models as points, with what is known of each; arrays are in the order of ``models``."""

    title: str
    x_axis: Axis
    y_axis: Axis
    models: tuple[str, ...]
    grouping: str
    """The column that groups come from."""
    group: tuple[str, ...]
    groups: tuple[str, ...]
    """The groups there are, in the order of the legend."""
    x: Floats
    y: Floats
    x_low: Floats
    x_high: Floats
    y_low: Floats
    y_high: Floats
    """Clopper–Pearson intervals; NaN where sizes are unknown."""
    level: float
    """Level of these intervals."""
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
    trends: tuple[Trend, ...]
    band_level: float
    """Level of the band and of the intervals of ρ."""
    equations: tuple[str, ...]
    reading: str
    """What bars, band and filling mean."""
    notes: tuple[str, ...]
    """What is not drawn, or not where it belongs, and how many models that concerns."""
    citation: str

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


def scatter(
    testbed: Testbed,
    shift: str | Shift,
    *,
    scale: str | Scale = LOGIT,
    level: float = 0.995,
    band_level: float = 0.95,
    by: str | None = None,
    colour: str | None = None,
    threshold: float | None = None,
    full_source: bool = False,
    models: Choice = None,
    highlight: Sequence[str] = (),
    label: int = 6,
    fdr: float = 0.05,
    **options: Any,
) -> Scatter:
    """A shift as the finished data of a scatter plot; further options go to ``Testbed.fit``.

    ``by`` fits one line per value of that column of models and judges each model by its own;
    ``colour`` is the column that groups points (default: ``by``, else kind). ``threshold`` leaves
    models with a lower ID accuracy out of the fit and of the figure, as taori2020's figures do.
    ``highlight`` names models to draw as stars, the kind ``own`` always is; besides these at most
    ``label`` models are named: of those out of line (q ≤ fdr) the ones with the smallest p.

    >>> from shiftbed.testbed import published
    >>> chart = scatter(published("imagenet-testbed-2020"), "imagenet-v2")
    >>> len(chart.models), chart.trends[0].n, chart.equations
    (201, 78, ('logit y = 0.922 logit x − 0.495, n = 78, R² = 0.997',))
    """
    found = testbed.shift(shift)
    if full_source and found.full_source:
        found = found.on_full_source()
    if len(found.source) > 1:
        raise InputError(f"shift {found.name!r} has several ID settings; draw it as a plane")
    x, y = testbed.accuracy(found.source[0]), testbed.accuracy(found.target)
    stars = (testbed.models["kind"] == OWN).fill_null(False).to_numpy().copy()
    stars[[testbed.model_index(name) for name in highlight]] = True
    there = np.isfinite(x) & np.isfinite(y)
    below = there & ~(x >= (threshold or 0.0))
    shown = there & (~below | stars)
    if not shown.any():
        raise InputError(f"no model of {testbed.name} has accuracies to draw for {found.name!r}")

    chosen = testbed.fit_set(found, models)
    lines, unserved = split_by(testbed.models, by, chosen & there & ~below)
    options |= {"scale": find_scale(scale), "threshold": threshold}
    judged = _judge(testbed, found, lines, chosen, shown, band_level, options)
    group, groups = grouped(testbed.models, colour or by or "kind", shown)
    x_axis, x_low, x_high = measured_axis(testbed, found.source[0], shown, options["scale"], level)
    y_axis, y_low, y_high = measured_axis(testbed, found.target, shown, options["scale"], level)
    edge = shown & ~(np.isfinite(x_axis.at(x)) & np.isfinite(y_axis.at(y)))
    names = np.array(testbed.model_names, dtype=object)
    bars = bool(np.isfinite([x_low, y_low]).any())
    return Scatter(
        title=found.title or found.name,
        x_axis=x_axis,
        y_axis=y_axis,
        models=tuple(names[shown]),
        grouping=colour or by or "kind",
        group=group,
        groups=groups,
        x=x[shown],
        y=y[shown],
        x_low=x_low,
        x_high=x_high,
        y_low=y_low,
        y_high=y_high,
        level=level,
        fitted=judged.fitted[shown],
        **{name: values[shown] for name, values in judged.columns.items()},
        edge=edge[shown],
        highlighted=stars[shown],
        labelled=(stars | _farthest(judged.columns, shown & ~stars, label, fdr))[shown],
        trends=judged.trends,
        band_level=band_level,
        equations=judged.equations,
        reading=reading(level, bars, band_level, judged.draws, fdr),
        notes=notes(
            missing=names[~there].tolist(),
            starred_missing=names[~there & stars].tolist(),
            below=(int((below & ~stars).sum()), threshold, found.source[0]),
            edge=(names[edge].tolist(), x_axis.scale),
            left_out=[name for name in names[there & ~below] if name in judged.left_out],
            unserved=(int((unserved & shown).sum()), by),
        ),
        citation=testbed.citation,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Judged:
    """All models of a testbed, each against the line that serves it."""

    columns: dict[str, Floats]
    fitted: Bools
    left_out: frozenset[str]
    trends: tuple[Trend, ...]
    equations: tuple[str, ...]
    draws: int


def _judge(
    testbed: Testbed,
    shift: Shift,
    lines: dict[str, Bools],
    chosen: Bools,
    shown: Bools,
    level: float,
    options: dict[str, Any],
) -> _Judged:
    """Fit every line through the chosen models among those it serves, and judge all of these."""
    m = len(testbed.models)
    columns = {name: np.full(m, np.nan) for name in _JUDGED}
    fitted, trends, equations = np.zeros(m, dtype=bool), [], []
    left_out: set[str] = set()
    draws = 0
    for name, rows in lines.items():
        part = testbed if rows.all() else testbed.where(rows)
        baseline = part.fit(shift, models=chosen[rows], **options)
        placed = part.judge(baseline, level=level).columns()
        for column in _JUDGED:
            columns[column][rows] = placed[column]
        fitted[rows] = np.isin(part.model_names, baseline.models)
        left_out.update(baseline.left_out)
        x = testbed.accuracy(shift.source[0])[rows & shown]
        trends += trends_of(baseline, line_name(testbed.line, name), x, level)
        equations.append(f"{name}: {equation(baseline)}" if name else equation(baseline))
        draws = len(baseline.lines[0].draws)
    columns["q_value"] = benjamini_hochberg(columns["p_value"])
    return _Judged(
        columns=columns,
        fitted=fitted,
        left_out=frozenset(left_out),
        trends=tuple(trends),
        equations=tuple(equations),
        draws=draws,
    )


def measured_axis(
    testbed: Testbed, setting: str, shown: Bools, scale: Scale, level: float
) -> tuple[Axis, Floats, Floats]:
    """An axis for the shown models' accuracies in a setting, and the ends of their intervals.

    What is not an accuracy (see ``Testbed.metrics``) has no binomial interval.
    """
    value, n = testbed.accuracy(setting)[shown], testbed.size(setting)[shown]
    low, high = clopper_pearson(value, n * (setting not in testbed.metrics), level)
    axis = fit_axis(
        value,
        low,
        high,
        scale=scale,
        setting=setting,
        title=axis_title(testbed, setting),
        n=testbed.usual_size(setting),
    )
    return axis, low, high


def _farthest(columns: dict[str, Floats], among: Bools, most: int, fdr: float) -> Bools:
    """Models out of line with the smallest p-values; equal ones (0, say) in the order of |ρ|."""
    rows = np.flatnonzero(among & (columns["q_value"] <= fdr))
    order = np.lexsort([-np.abs(columns["effective"][rows]), columns["p_value"][rows]])
    farthest = np.zeros(len(among), dtype=bool)
    farthest[rows[order[: max(most, 0)]]] = True
    return farthest
