"""A shift as a scatter plot or a plane, finished: all is computed here, and drawing only draws.

taori2020, Figure 2: accuracy under shift over standard accuracy on logit axes, each model with its
99.5 % Clopper–Pearson intervals, the line through the standard models with its 95 % bootstrap band,
and y = x. shi2023, Section 4.2: two ID accuracies predict an OOD one, S(y) = w₁·S(x₁) + w₂·S(x₂)
+ b; a model's height above that plane is its effective robustness given both.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Baseline, Line
from shiftbed.analysis.intervals import benjamini_hochberg, clopper_pearson
from shiftbed.display import counted
from shiftbed.errors import InputError, unknown
from shiftbed.figures.axis import Axis, fit_axis, percent
from shiftbed.figures.charts import Plane, Scatter, Trend
from shiftbed.figures.palette import KINDS, MOST, OTHER, OWN
from shiftbed.records import Shift
from shiftbed.results.caveats import line_caveats
from shiftbed.scales import LINEAR, LOGIT, Scale
from shiftbed.scales import scale as find_scale
from shiftbed.testbed.labels import labels
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FEWEST = 3
"""A line needs this many models."""
_JUDGED = ("predicted", "effective", "low", "high", "prediction_low", "prediction_high", "p_value")
_STEPS = 201
_NOT_GIVEN = "not given"


def scatter(
    testbed: Testbed,
    shift: str | Shift,
    *,
    level: float = 0.995,
    by: str | None = None,
    colour: str | None = None,
    full_source: bool = False,
    fdr: float = 0.05,
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None,
    **options: Any,
) -> Scatter:
    """A shift as the finished data of a scatter plot.

    ``options`` are scale, threshold, models, highlight, label, band_level and those of
    ``Testbed.fit``. ``by`` fits one line per value of that column of models and judges each model
    by its own; ``colour`` is the column that groups points (default: ``by``, else kind).
    ``threshold`` leaves models with a lower ID accuracy out of the fit and of the figure, as
    taori2020's figures do. ``highlight`` names models to draw as stars, the kind ``own`` always
    is; besides these at most ``label`` models are named: of those out of line (q ≤ fdr) the ones
    with the smallest p. ``drawn`` (models,) says which models are in the figure, ``xlim`` and
    ``ylim`` between which accuracies; the fit is the same whatever is drawn.

    >>> from shiftbed.testbed import published
    >>> chart = scatter(published("imagenet-testbed-2020"), "imagenet-v2")
    >>> len(chart.models), chart.trends[0].n, chart.equations
    (201, 78, ('logit y = 0.922 logit x − 0.495, n = 78, R² = 0.997',))
    """
    found = testbed.shift(shift)
    if full_source:
        found = found.on_full_source()
    if len(found.source) > 1:
        raise InputError(f"shift {found.name!r} has several ID settings; draw it as a plane")
    options |= {"fdr": fdr, "by": by, "colour": colour or by, "limits": (xlim, ylim)}
    fits = _fit(testbed, found, level, **options)
    band_level = fits.fields["band_level"]
    (x_axis, x_low, x_high), (y_axis, y_low, y_high) = fits.measured
    trends: list[Trend] = []
    for name, (baseline, rows) in fits.lines.items():
        x = testbed.accuracy(found.source[0])[rows & fits.shown]
        called = f"{name} line" if name else testbed.line[:1].upper() + testbed.line[1:]
        trends += _trends(baseline, called, x, band_level)
    bars = bool(np.isfinite([x_low, y_low]).any())
    draws = len(baseline.lines[0].draws) if baseline.band_kind == "bootstrap" else 0
    return Scatter(
        title=found.title or found.name,
        **fits.fields,
        x=fits.x[:, 0],
        x_axis=x_axis,
        y_axis=y_axis,
        x_low=x_low,
        x_high=x_high,
        y_low=y_low,
        y_high=y_high,
        level=level,
        trends=tuple(trends),
        reading=_reading(level, bars, band_level, draws, fdr),
    )


def on_linear_axes(chart: Scatter) -> Scatter:
    """The same models and lines, which were fitted on another scale, on axes of accuracies.

    andreassen2021, Figure 2b: a line of logits is a curve there.

    >>> from shiftbed.testbed import published
    >>> chart = on_linear_axes(scatter(published("imagenet-testbed-2020"), "imagenet-v2"))
    >>> chart.x_axis.scale.name, chart.equations
    ('linear', ('logit y = 0.922 logit x − 0.495, n = 78, R² = 0.997',))
    """

    def axis(old: Axis, value: Floats, low: Floats, high: Floats) -> Axis:
        said = {"setting": old.setting, "title": old.title, "n": old.n}
        return fit_axis(value, low, high, scale=LINEAR, **said)  # type: ignore[arg-type]

    return replace(
        chart,
        x_axis=axis(chart.x_axis, chart.x, chart.x_low, chart.x_high),
        y_axis=axis(chart.y_axis, chart.y, chart.y_low, chart.y_high),
        edge=np.zeros_like(chart.edge),
    )


def plane(testbed: Testbed, shift: str | Shift, **options: Any) -> Plane:
    """A shift from two ID settings as the plane that predicts it.

    ``options`` are colour, fdr and those of ``scatter``.

    >>> from shiftbed.testbed import published
    >>> ids = ("ImageNet 1k", "CIFAR-10")
    >>> shift = Shift(name="r", kind="natural-dataset", source=ids, target="ImageNet-R")
    >>> chart = plane(published("openclip"), shift)
    >>> [round(weight, 3) for weight in chart.weights], len(chart.models)
    ([0.887, 0.303], 121)
    """
    found = testbed.shift(shift)
    if len(found.source) != 2:
        raise InputError(f"a plane needs two ID settings, got {len(found.source)}")
    fits = _fit(testbed, found, **{"bootstrap": 0, **options})
    first, second, up = (axis for axis, _, _ in fits.measured)
    baseline = fits.lines[""][0]
    line = baseline.lines[0]
    return Plane(
        title=" given ".join(map(testbed.title_of, (found.target, found.source[0])))
        + f" and {testbed.title_of(found.source[1])}",
        **fits.fields,
        x=fits.x,
        axes=(first, second, up),
        weights=(line.weights[0], line.weights[1]),
        intercept=line.intercept,
        reading=f"Surface: the plane through {counted(baseline.n, 'model')}. Stems show each ρ.",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fits:
    """The models of a testbed, each against the baseline that serves it."""

    lines: dict[str, tuple[Baseline, Bools]]
    """Baselines by group, with the models that each serves."""
    shown: Bools
    x: Floats
    """(shown models, ID settings)"""
    measured: list[tuple[Axis, Floats, Floats]]
    """An axis of each setting, and the ends of the shown models' intervals."""
    fields: dict[str, Any]
    """What scatters and planes have in common."""


def _fit(
    testbed: Testbed,
    shift: Shift,
    level: float = 0.95,
    *,
    by: str | None = None,
    colour: str | None = None,
    highlight: Sequence[str] = (),
    label: int = 6,
    fdr: float = 0.05,
    band_level: float = 0.95,
    scale: str | Scale = LOGIT,
    threshold: float | None = None,
    models: Choice = None,
    drawn: Bools | None = None,
    limits: Sequence[tuple[float, float] | None] = (),
    **options: Any,
) -> _Fits:
    """Fit every line through the chosen models among those it serves, and judge all of these."""
    on, settings = find_scale(scale), (*shift.source, shift.target)
    values = np.stack([testbed.accuracy(setting) for setting in settings])
    names = np.array(testbed.model_names, dtype=object)
    stars = (testbed.models["kind"] == OWN).fill_null(False).to_numpy().copy()
    stars[[testbed.model_index(name) for name in highlight]] = True
    there: Bools = np.asarray(np.isfinite(values).all(axis=0))
    below = there & ~(values[0] >= (threshold or 0.0))
    wanted = np.ones_like(there) if drawn is None else drawn
    beyond = np.zeros_like(there)
    for value, ends in zip(values, limits, strict=False):
        if ends is not None:
            beyond |= there & wanted & ((value < ends[0]) | (value > ends[1]))
    shown = there & (~below | stars) & wanted & ~beyond
    if not shown.any():
        raise InputError(f"no model of {testbed.name} has accuracies to draw for {shift.name!r}")
    chosen = testbed.fit_set(shift, models)
    serving, unserved = _split_by(testbed.models, by, chosen & there & ~below)
    columns = {name: np.full(len(there), np.nan) for name in _JUDGED}
    fitted: Bools = np.zeros(len(there), dtype=bool)
    extrapolated: Bools = np.zeros(len(there), dtype=bool)
    lines: dict[str, tuple[Baseline, Bools]] = {}
    caveats: list[str] = []
    for name, rows in serving.items():
        part = testbed if rows.all() else testbed.where(rows)
        line = part.fit(shift, scale=on, threshold=threshold, models=chosen[rows], **options)
        placed = part.judge(line, level=band_level).columns()
        for column in _JUDGED:
            columns[column][rows] = placed[column]
        fitted[rows] = np.isin(part.model_names, line.models)
        lines[name] = (line, rows)
        extrapolated[rows] = placed["extrapolated"]
        said_of = f"{name}: " if name else ""
        known = line_caveats(testbed, shift, line, testbed.trust(line))
        caveats += [f"{said_of}{text[:1].upper()}{text[1:]}." for text in known]
    columns["q_value"] = benjamini_hochberg(columns["p_value"])
    measured = [
        _measured(testbed, s, shown, on, level, ends) for s, ends in zip_longest(settings, limits)
    ]
    placed_at = [m[0].at(v) for m, v in zip(measured, values, strict=True)]
    edge = shown & ~np.isfinite(placed_at).all(axis=0)
    group, groups = grouped(testbed.models, colour or "kind", shown)
    left_out = {name for line, _ in lines.values() for name in line.left_out}
    missed = f", among them {_listed(names[~there & stars])}" if (~there & stars).any() else ""
    outside = [name for name in names[there & ~below] if name in left_out]
    said = [
        (int((~there).sum()), f"without an accuracy on every axis: not drawn{missed}."),
        (int((~wanted & there).sum()), "not asked for: not drawn."),
        (int(beyond.sum()), "beyond the limits of the axes: not drawn."),
        (int((extrapolated & shown).sum()), "beyond the fitted range: ρ is extrapolated."),
        (
            int((below & ~stars).sum()),
            f"below {percent(threshold or 0.0)} on {testbed.title_of(shift.source[0])}: "
            "not fitted, not drawn.",
        ),
        (
            int(edge.sum()),
            f"at exactly 0% or 100%, where the {on.name} is infinite, drawn on the edge (×): "
            f"{_listed(names[edge])}.",
        ),
        (
            len(outside),
            f"chosen for the fit but not in it, at 0% or 100% or on the knee: {_listed(outside)}.",
        ),
        (
            int((unserved & shown).sum()),
            f"whose {by} has fewer than {FEWEST} models to fit: no line, so no ρ.",
        ),
    ]
    fields = {
        "models": tuple(names[shown]),
        "names": tuple(np.array(labels(testbed.models), dtype=object)[shown]),
        "grouping": colour or "kind",
        "group": group,
        "groups": groups,
        "y": values[-1, shown],
        "fitted": fitted[shown],
        **{name: values_[shown] for name, values_ in columns.items()},
        "edge": edge[shown],
        "highlighted": stars[shown],
        "labelled": (stars | _farthest(columns, shown & ~stars, label, fdr))[shown],
        "band_level": band_level,
        "equations": tuple(
            f"{name}: {_equation(line)}" if name else _equation(line)
            for name, (line, _) in lines.items()
        ),
        "notes": (*(f"{counted(n, 'model')} {what}" for n, what in said if n), *caveats),
        "citation": testbed.citation,
    }
    return _Fits(lines=lines, shown=shown, x=values[:-1, shown].T, measured=measured, fields=fields)


def _measured(
    testbed: Testbed,
    setting: str,
    shown: Bools,
    scale: Scale,
    level: float,
    ends: tuple[float, float] | None = None,
) -> tuple[Axis, Floats, Floats]:
    """An axis for the shown models' accuracies in a setting, and the ends of their intervals.

    ``ends`` are those of the axis where they are asked for.

    What is not an accuracy (see ``Testbed.metrics``) has no binomial interval.
    """
    value, n = testbed.accuracy(setting)[shown], testbed.size(setting)[shown]
    low, high = clopper_pearson(value, n * (setting not in testbed.metrics), level)
    title, usual = _axis_title(testbed, setting), testbed.usual_size(setting)
    axis = fit_axis(value, low, high, scale=scale, setting=setting, title=title, n=usual)
    return axis if ends is None else axis.between(*ends), low, high


def _farthest(columns: dict[str, Floats], among: Bools, most: int, fdr: float) -> Bools:
    """Models out of line with the smallest p-values; equal ones (0, say) in the order of |ρ|."""
    rows = np.flatnonzero(among & (columns["q_value"] <= fdr))
    order = np.lexsort([-np.abs(columns["effective"][rows]), columns["p_value"][rows]])
    farthest = np.zeros(len(among), dtype=bool)
    farthest[rows[order[: max(most, 0)]]] = True
    return farthest


def _trends(baseline: Baseline, name: str, x: Floats, level: float) -> list[Trend]:
    """The baseline's pieces over the range of the accuracies x, each on its side of a knee."""
    scale = baseline.scale
    inside = x[np.isfinite(x)] if scale.bounded else x[(x > 0.0) & (x < 1.0)]
    reach = np.append(inside, baseline.support[0])
    pieces = []
    for line in baseline.lines:
        ends = scale.forward(
            [max(reach.min(), line.low), min(reach.max(), np.nextafter(line.high, 0.0))]
        )
        grid = np.linspace(ends[0], ends[1], _STEPS)
        grid = np.unique(np.append(grid, np.clip(scale.forward(baseline.support[0]), *ends)))
        at = np.clip(scale.inverse(grid), line.low, np.nextafter(line.high, 0.0))
        band = baseline.band(at, level)
        pieces.append(
            Trend(
                name=name,
                x=at,
                predicted=baseline.predict(at),
                low=band[0],
                high=band[1],
                extrapolated=baseline.extrapolated(at),
                n=line.n,
                slope=line.weights[0],
                intercept=line.intercept,
            )
        )
    return pieces


# --- groups: what is drawn alike, and what gets a line of its own ---------------------------------


def grouped(
    models: pl.DataFrame, column: str, shown: Bools
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The group of each shown model, and the groups in the order of the legend.

    Known kinds come first, then larger groups before smaller ones; those beyond the colours there
    are become ``other``. Models a user added are a group of their own whatever the column.
    """
    values = _values(models, column)
    own = [kind == OWN for kind in models["kind"].to_list()]
    mine = [OWN if o else v for v, o, s in zip(values, own, shown, strict=True) if s]
    counts = Counter(group for group in mine if group not in (OWN, OTHER))
    rank = {kind: i for i, kind in enumerate(KINDS)}
    order = sorted(counts, key=lambda g: (rank.get(g, len(rank)), -counts[g], g))
    kept = sorted(order, key=lambda g: -counts[g])[:MOST]
    order = [group for group in order if group in kept]
    final = tuple(group if group in (*order, OWN) else OTHER for group in mine)
    return final, (*order, *(group for group in (OTHER, OWN) if group in final))


def _split_by(
    models: pl.DataFrame, column: str | None, fit: Bools
) -> tuple[dict[str, Bools], Bools]:
    """Masks of the models that each line serves, by name, and of those no line serves.

    Without a column one line serves all. With one, each of its values that at least three of the
    models to ``fit`` have gets a line.
    """
    if column is None:
        return {"": np.ones(len(models), dtype=bool)}, np.zeros(len(models), dtype=bool)
    values = np.array(_values(models, column), dtype=object)
    counts = Counter(values[fit].tolist())
    names = sorted(
        (v for v, count in counts.items() if count >= FEWEST and v != _NOT_GIVEN),
        key=lambda v: (-counts[v], v),
    )
    if not names:
        raise InputError(f"no value of {column!r} has the {FEWEST} models to fit that a line needs")
    if len(names) > MOST:
        raise InputError(
            f"{len(names)} values of {column!r} would each get a line, of which {MOST} can be told "
            "apart; choose fewer models"
        )
    return {name: values == name for name in names}, ~np.isin(values.astype(str), names)


def _values(models: pl.DataFrame, column: str) -> list[str]:
    if column not in models.columns:
        raise unknown("column of models", column, models.columns)
    return [_text(value) for value in models[column].to_list()]


def _text(value: object) -> str:
    if value is None or value == "":
        return _NOT_GIVEN
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- words in and under the figure ----------------------------------------------------------------


def _listed(names: Iterable[Any], most: int = 3) -> str:
    """Names, or the first of them and how many more there are.

    >>> _listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def _equation(baseline: Baseline) -> str:
    """The fitted line in scaled space, its n and R²; a line of text per piece at a knee."""
    lines, r2 = baseline.lines, f"R² = {baseline.r2:.3f}"
    if len(lines) == 1:
        return f"{_line(baseline, lines[0])}, n = {baseline.n:,}, {r2}"
    below, above = (f"{_line(baseline, line)}, n = {line.n:,}" for line in lines)
    knee = percent(lines[0].high, 1)
    return f"{below} for x < {knee}\n{above} for x > {knee}, {r2} for both"


def _line(baseline: Baseline, line: Line) -> str:
    of = "" if baseline.scale.name == "linear" else baseline.scale.name + " "
    k = len(line.weights)
    names = ["x"] if k == 1 else [f"x{'₁₂₃₄₅₆₇₈₉'[i]}" for i in range(k)]
    terms = [
        f"{_signed(weight, first=i == 0)} {of}{names[i]}" for i, weight in enumerate(line.weights)
    ]
    return f"{of}y = {' '.join(terms)} {_signed(line.intercept)}"


def _signed(value: float, first: bool = False) -> str:
    """A term of a sum.

    >>> _signed(-0.4947), _signed(0.9217, first=True)
    ('− 0.495', '0.922')
    """
    sign = ("−" if first else "− ") if value < 0 else ("" if first else "+ ")
    return f"{sign}{abs(value):.3f}"


def _axis_title(testbed: Testbed, setting: str) -> str:
    """What is measured on what, and on how many images."""
    title = testbed.axis_title(setting)
    sizes = testbed.size(setting)
    n = testbed.usual_size(setting)
    if not n:
        return title
    most = " for most models" if len(set(sizes[sizes > 0].tolist())) > 1 else ""
    return f"{title} (n = {n:,}{most})"


def _reading(level: float, bars: bool, band_level: float, draws: int, fdr: float) -> str:
    """What bars, band, dashes and filling mean."""
    said = [f"Bars: {percent(level)} Clopper–Pearson intervals."] if bars else []
    how = (
        f"{draws:,} bootstrap resamples of the models"
        if draws
        else "from the scatter of models or families"
    )
    said.append(f"Band: {percent(band_level)} confidence band of the line, {how}.")
    said.append("Filled markers: models the line is fitted through. Dotted: extrapolated.")
    said.append(f"Named: models farthest out of line (q ≤ {fdr:g}), or highlighted.")
    return " ".join(said)
