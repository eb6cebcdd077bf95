"""Charts of what predicts OOD accuracy, and of effects (wenzel2022, Figs. 3–5, S1, S10, S11).

fridovich2022, Figures 2 and 3: ID against OOD accuracy, a line per architecture, the fainter the
worse it fits; 10 to 13: the same over the most predictive metric.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.figures.charts import Bars, Curve, Curves, Dots, Heatmap, Panels, Reference
from shiftbed.testbed.labels import natural, size_title

if TYPE_CHECKING:
    from shiftbed.analysis.predictors import Fit
    from shiftbed.results.predictors import PredictorTable

Floats = NDArray[np.float64]
_FAINTEST = 0.06


def _numbers(frame: pl.DataFrame, column: str) -> Floats:
    return frame[column].cast(pl.Float64).fill_null(np.nan).to_numpy()


def score_bars(scores: pl.DataFrame, *, title: str, target: str, given: str, method: str) -> Bars:
    """Each metric's correlation with the target, alone and adjusted, with intervals (Fig. 3)."""
    names = {"": f"{method} r with {target}", "adjusted_": f"given {given}"}
    means = {"": "r", "adjusted_": "adjusted"}
    return Bars(
        title=title,
        categories=tuple(scores["metric"]),
        series=tuple(names.values()),
        values=np.stack([_numbers(scores, means[key]) for key in names]),
        low=np.stack([_numbers(scores, f"{key}low") for key in names]),
        high=np.stack([_numbers(scores, f"{key}high") for key in names]),
        y_title="averaged correlation",
        reading="High: networks good in the metric are good on OOD data. The second bar is what is "
        f"left of that once {given} is known.",
    )


def matrix_heatmap(
    metrics: Sequence[str], r: Floats, low: Floats, high: Floats, *, title: str
) -> Heatmap:
    """The averaged correlation matrix; marked where the interval leaves out 0 (Fig. S1)."""
    with np.errstate(invalid="ignore"):
        marked = (low > 0) | (high < 0)
    return Heatmap(
        title=title,
        rows=tuple(metrics),
        columns=tuple(metrics),
        values=r,
        value_title="averaged correlation",
        low=-1.0,
        high=1.0,
        diverging=True,
        marked=marked,
        reading="Blank: no pair has it. Marked: the interval leaves out 0.",
    )


def group_heatmap(
    scores: pl.DataFrame,
    by: str,
    column: str = "metric",
    *,
    title: str,
    value_title: str = "averaged correlation",
    reading: str = "A row that differs from the others: what predicts there is another metric.",
) -> Heatmap:
    """Correlations: a row per group, a column per metric (Figs. S2–S4), or two kinds of shifts."""
    groups, metrics, (values,) = _crossed(scores, by, column, ("r",))
    order = sorted(range(len(groups)), key=lambda i: natural(groups[i]))
    return Heatmap(
        title=title,
        rows=tuple(str(groups[i]) or "(none)" for i in order),
        columns=tuple(metrics),
        values=values[order],
        row_title=by.replace("_", " "),
        value_title=value_title,
        low=-1.0,
        high=1.0,
        diverging=True,
        reading=reading,
    )


def _crossed(
    frame: pl.DataFrame, rows: str, columns: str, values: Sequence[str]
) -> tuple[list[str], list[str], list[Floats]]:
    """The values of two columns, and tables of others by them; NaN where there is no row."""
    names = [frame[one].unique(maintain_order=True).to_list() for one in (rows, columns)]
    found = [np.full((len(names[0]), len(names[1])), np.nan) for _ in values]
    for row in frame.iter_rows(named=True):
        at = names[0].index(row[rows]), names[1].index(row[columns])
        for value, table in zip(values, found, strict=True):
            table[at] = np.nan if row[value] is None else row[value]
    return names[0], names[1], found


def group_bars(table: pl.DataFrame, over: str, *, title: str, level: float) -> Bars:
    """Mean ρ of groups of models by shift, with the intervals of the means (shi2023, Table 1b)."""
    groups, shifts, found = _crossed(table, "group", over, ("mean", "low", "high"))
    values, low, high = (100 * one for one in found)
    return Bars(
        title=title,
        categories=tuple(shifts),
        series=tuple(str(group) for group in groups),
        values=values,
        low=low,
        high=high,
        y_title="mean ρ (points)",
        reading=f"Bars are {100 * level:g} % intervals of the mean over models of that group.",
    )


def transfer_bars(transfer: pl.DataFrame, *, title: str) -> Bars:
    """Each metric's correlation with itself on OOD data, by where it is measured (Fig. 4)."""
    places = transfer["from"].unique(maintain_order=True)
    return _bars(
        transfer,
        "r",
        categories=transfer["metric"].unique(maintain_order=True),
        series=[f"{place} → OOD" for place in places],
        title=title,
        y_title="averaged correlation",
        reading="How well a metric measured there predicts the same metric on OOD data.",
    )


def _bars(
    frame: pl.DataFrame,
    value: str,
    *,
    categories: Iterable[str],
    series: Iterable[str],
    **words: str,
) -> Bars:
    """Bars with intervals of a table that has a row per category and, within it, series."""
    names, kinds = tuple(categories), tuple(series)

    def grid(column: str) -> Floats:
        return _numbers(frame, column).reshape(len(names), len(kinds)).T

    ends = {"low": grid("low"), "high": grid("high")}
    return Bars(categories=names, series=kinds, values=grid(value), **ends, **words)  # type: ignore[arg-type]


def effect_bars(effects: pl.DataFrame, *, title: str, alternative: str, fdr: float = 0.05) -> Bars:
    """Median differences of each metric with their intervals (Fig. 5)."""
    q = _numbers(effects, "q_value")
    names = [
        f"{name} *" if np.isfinite(one) and one <= fdr else str(name)
        for name, one in zip(effects["metric"], q, strict=True)
    ]
    return _bars(
        effects,
        "median",
        categories=names,
        series=["median difference"],
        title=title,
        y_title="difference",
        reading=f"Below 0 is better. *: {alternative}, false discovery rate {fdr:g}.",
    )


def head_bars(table: pl.DataFrame, *, title: str) -> Bars:
    """Normalised gaps between full and head-only fine-tuning, by task (Fig. S7)."""
    places = table["where"].unique(maintain_order=True)
    return _bars(
        table,
        "gap",
        categories=table["task"].unique(maintain_order=True),
        series=[f"{place.upper()} data" for place in places],
        title=title,
        y_title="normalised gap",
        reading="Above 0: the first is the more accurate.",
    )


def mean_panels(table: pl.DataFrame, *, title: str) -> Panels:
    """Mean ID and OOD accuracy of recipes by task, a row per size of the data (Figs. S6, S8)."""
    column = table.columns[3]
    every = table[column].unique(maintain_order=True).to_list()
    made = []
    for (size, where), part in table.group_by("data_size", "where", maintain_order=True):
        some, tasks, found = _crossed(part, column, "task", ("accuracy", "standard_error"))
        value, error = (np.full((len(every), len(tasks)), np.nan) for _ in found)
        at = [every.index(name) for name in some]  # the same colours in all panels
        value[at], error[at] = found[0], np.nan_to_num(found[1])
        data = size_title(str(size))
        data = f"{data} of the data" if data.endswith("%") else data
        whole = {"": "all data", "all": "all networks"}.get(data, data)
        made.append(
            Bars(
                title=f"{str(where).upper()}, {whole}",
                categories=tuple(tasks),
                series=tuple(map(str, every)),
                values=value,
                low=value - error,
                high=value + error,
                y_title="mean accuracy",
            )
        )
    return Panels(title=title, panels=tuple(made), columns=2)


def architecture_dots(table: pl.DataFrame, *, title: str) -> Dots:
    """ID and OOD error of each architecture over all tasks, ± one standard error (Table 2)."""
    every = table.filter(pl.col("task") == "all")
    if not len(every):
        raise InputError("the table has no row over all tasks to draw")
    x, y = _numbers(every, "id_error"), _numbers(every, "ood_error")
    dx = np.nan_to_num(_numbers(every, "id_error_se"))
    dy = np.nan_to_num(_numbers(every, "ood_error_se"))
    names = tuple(every["architecture"])
    return Dots(
        title=title,
        x_title="ID error",
        y_title="OOD error",
        names=names,
        x=x,
        y=y,
        x_low=x - dx,
        x_high=x + dx,
        y_low=y - dy,
        y_high=y + dy,
        lines=(Reference(name="OOD = ID", slope=1.0),),
        labelled=names,
        reading="Bars are one standard error; none where there is one pair.",
    )


def difficulty_panels(hard: pl.DataFrame, points: pl.DataFrame, *, title: str) -> Panels:
    """Normalised gaps by task, and predictiveness over them (Figs. S10 and S11)."""
    order = hard.sort("gap", nulls_last=True)
    series = ["(ID − OOD)/ID accuracy"]
    words = {"title": "Normalised gap", "y_title": "gap"}
    bars = _bars(order, "gap", categories=order["task"], series=series, **words)
    curves = []
    for (metric,), part in points.group_by("metric", maintain_order=True):
        there = part.drop_nulls(["gap", "r"]).sort("gap")
        x, y, low, high = (_numbers(there, column) for column in ("gap", "r", "low", "high"))
        if len(there):
            curves.append(Curve(name=str(metric), x=x, y=y, low=low, high=high))
    found: tuple[Bars | Curves, ...] = (bars,)
    if curves:
        found += (
            Curves(
                title="Predictiveness",
                x_title="normalised gap of the task",
                y_title="correlation with the target",
                curves=tuple(curves),
            ),
        )
    return Panels(
        title=title,
        panels=found,
        columns=2,
        reading="Left: the larger, the harder the task. Right: a trend would mean that what "
        "predicts OOD error depends on how hard the task is.",
    )


def group_lines(found: "PredictorTable") -> Panels:
    """Probit OOD accuracy over the first metric, a panel per OOD setting."""
    first = next(metric for _, metric in found.fits)
    panels = [_panel(found, target, one) for target, one in found.fits if one == first]
    return _panels(found, panels, f"OOD accuracy over {first}, lines as opaque as R²")


def best_metric(found: "PredictorTable") -> Panels:
    """Probit OOD accuracy over the metric with the best average R², a panel per OOD setting."""
    panels = [_panel(found, target, metric) for target, metric in found.best().items()]
    return _panels(found, panels, "OOD accuracy over the metric that predicts it best")


def _panels(found: "PredictorTable", panels: list[Dots], title: str) -> Panels:
    if not panels:
        raise InputError(f"{found.source} has no metric with a fit")
    return Panels(
        title=title,
        panels=tuple(panels),
        columns=3,
        reading="A line per group, as opaque as its R² is large, over its "
        f"{100 * found.level:g} % band; bars of accuracies are Clopper–Pearson intervals.",
        citation=found.citation,
    )


def _panel(found: "PredictorTable", target: str, metric: str) -> Dots:
    x, y, fit = found.x[metric], found.x[target], found.fits[target, metric]
    there = np.isfinite(x) & np.isfinite(y)
    inside = [(name, np.flatnonzero(mask & there)) for name, mask in found.groups]
    rows = np.concatenate([rows for _, rows in inside])
    bars = {
        f"{axis}_{end}": found.ends[setting][i][rows]
        for axis, setting in (("x", metric), ("y", target))
        for i, end in enumerate(("low", "high"))
        if setting in found.ends
    }
    return Dots(
        title=f"{target}: mean R² {fit.r2:.2f} (n = {fit.n})",
        x_title=metric if metric in found.measured else f"probit({metric})",
        y_title=f"probit({target})",
        names=tuple(found.models[i] for i in rows),
        x=x[rows],
        y=y[rows],
        **bars,
        groups=tuple(name for name, own in inside for _ in own),
        lines=tuple(
            _line(one, x[own], found.level)
            for one in fit.fitted
            for name, own in inside
            if name == one.group
        ),
    )


def _line(fit: "Fit", x: Floats, level: float) -> Reference:
    """A group's line with its band over the group's own range."""
    at = np.linspace(x.min(), x.max(), 25)
    low, high = fit.band(at, level)
    return Reference(
        name=f"{fit.group}: m {fit.slope:.2f} [{fit.slope_low:.2f}, {fit.slope_high:.2f}], "
        f"R² {fit.r2:.2f} (n = {fit.n})",
        slope=fit.slope,
        intercept=fit.intercept,
        group=fit.group,
        opacity=float(np.clip(fit.r2, _FAINTEST, 1.0)),
        band=tuple(zip(at.tolist(), low.tolist(), high.tolist(), strict=True)),
    )
