"""Which measurement of a model predicts its accuracy under which shift: ``predictors``.

fridovich2022: slope and R² of probit OOD accuracy on every metric, per group and averaged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.analysis.predictors import MANY, Lead, Predictor, lead, predictor, ranks
from shiftbed.display import Row, Table, number, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.charts import Charted
from shiftbed.scales import PROBIT
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, open_testbed
from shiftbed.testbed.select import Choice, choose

if TYPE_CHECKING:
    from shiftbed.figures.charts import Panels

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
AVERAGE = "average"
"""Name of the rows that average over groups."""
MARKED = 0.5
"""The two largest R² of an OOD set are marked where they are above this (fridovich2022, 4.1)."""


def predictors(
    source: str | Path | Testbed | PredictionStore = "robustnets-2022",
    *,
    by: str | None = None,
    models: Choice = "all",
    metric: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    groups: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> "PredictorTable":
    """For every metric and OOD set: slope and R² of probit OOD accuracy, per group and averaged.

    ``by`` is a column of models: each of its values is fitted, and averaged over. ``models`` are
    those with COLUMN=PATTERN or COLUMN!=PATTERN; ``metric`` are settings to predict from (default:
    ID accuracy and all probes), ``ood`` shifts or OOD settings (default: all shifts). Tables show
    every group's own fit if ``groups``. ``bootstrap`` 0 gives no interval of an average R².

    >>> found = predictors(ood=["cifar10.1"], by="architecture", models="augmentation=clean",
    ...                    bootstrap=10)
    >>> found.frame.filter(pl.col("rank") == 1).select("metric", "group", "n").row(0)
    ('cifar10_acc', 'average', 149)
    """
    testbed = open_testbed(source)
    metrics, targets = metrics_and_shifts(testbed, metric or None, ood or None)
    within = groups_by(testbed, by, models)
    options: dict[str, Any] = {"level": level, "bootstrap": bootstrap, "seed": seed}
    x = {setting: on_scale(testbed, setting) for setting in (*metrics, *targets)}
    fits = {
        (target, one): predictor(x[one], x[target], within, **options)
        for target in targets
        for one in metrics
        if one != target
    }
    leads = _leads(fits, x, within, bootstrap, seed)
    return PredictorTable(
        frame=_long(fits, leads, 1 - level),
        notes=tuple(_inconclusive(fits, leads, 1 - level)),
        citation=testbed.citation,
        source=testbed.name,
        by=by,
        level=level,
        every_group=groups,
        fits=fits,
        x=x,
        groups=within,
        models=tuple(testbed.model_names),
        measured=frozenset(testbed.metrics),
        ends={s: _accuracy_ends(testbed, s, level) for s in x if s not in testbed.metrics},
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PredictorTable(Charted):
    """What predicts OOD accuracy; ``frame`` has a row per OOD set, metric and group.

    ood, metric, group, slope, its ends, r2, its ends, r2_adjusted, n, rank, marked, p_value, best,
    note. The group called average is over the groups; ``rank`` is 1 for the metric with the largest
    average R² of an OOD set, 2 for the second, else null, and ``marked`` whether that R² is above
    0.5, as the paper highlights it. In the row of rank 1 ``p_value`` is of its lead over the second
    (``lead``), and ``best`` whether it is marked and that is significant: if not, which one
    predicts best is open.
    """

    source: str
    by: str | None
    level: float
    every_group: bool
    fits: Mapping[tuple[str, str], Predictor]
    """By (OOD setting, metric)."""
    x: Mapping[str, Floats]
    """Setting → (models,): a measurement as it is, an accuracy on the probit scale."""
    groups: Sequence[tuple[str, Mask]]
    models: tuple[str, ...]
    measured: frozenset[str]
    """Settings that are no accuracies."""
    ends: Mapping[str, tuple[Floats, Floats]]
    """Setting → (models,) Clopper–Pearson ends of an accuracy on the probit scale."""
    files: tuple[str, ...] = ()
    """Charts that were written of it."""

    def best(self) -> dict[str, str]:
        """OOD setting → the metric with the largest average R², whether or not its lead is one."""
        first = self.frame.filter(pl.col("rank") == 1)
        return dict(zip(first["ood"], first["metric"], strict=True))

    def to_dict(self) -> dict[str, Any]:
        found = {"source": self.source, "by": self.by, "predictors": records(self.frame)}
        return found | {"notes": list(self.notes), "files": list(self.files)}

    def tables(self) -> Iterable[Table]:
        def mark(row: Row) -> str:
            best = " **" if row["best"] else " *" if row["marked"] else ""
            return number(row["r2"], 3) + best

        columns: dict[str, Any] = {
            "OOD": "ood",
            "metric": "metric",
            "group": "group",
            "m": ("slope", lambda value: number(value, 3)),
            "m interval": lambda row: _ends(row, "slope"),
            "R²": mark,
            "adjusted": ("r2_adjusted", lambda value: number(value, 3)),
            "R² interval": lambda row: _ends(row, "r2"),
            "n": "n",
            "note": "note",
        }
        shown = self.frame
        if not self.every_group:
            del columns["group"]
            shown = shown.filter(pl.col("group") == AVERAGE)
        over = f"averaged over {self.by}" if self.by else "all models in one fit"
        yield Table.of(
            f"{self.source}: probit OOD accuracy on each metric, {over}",
            shown,
            columns,
            left=3 if self.every_group else 2,
            notes=[
                f"* the two largest R² of an OOD set where above {MARKED:g}, ** the largest where "
                f"significantly above the second; {100 * self.level:g} % intervals over models, of "
                "the population's R² (adjusted: without bias); accuracies on the probit scale.",
                *self.notes,
            ],
        )

    def chart(self, draw: str = "lines") -> "Panels":
        """OOD accuracy over the first metric (``lines``) or the best one of each set (``best``)."""
        from shiftbed.results.charts.predictiveness import best_metric, group_lines

        return best_metric(self) if draw == "best" else group_lines(self)


def _ends(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None or high is None else f"{low:.3f} … {high:.3f}"


Leads = Mapping[str, tuple[str, str, Lead]]
"""OOD setting → the metrics of rank 1 and 2, and the lead of the first."""


def _leads(
    fits: Mapping[tuple[str, str], Predictor],
    x: Mapping[str, Floats],
    groups: Sequence[tuple[str, Mask]],
    bootstrap: int,
    seed: int,
) -> Leads:
    found = {}
    for target in dict.fromkeys(key[0] for key in fits):
        here = {metric: one.r2 for (t, metric), one in fits.items() if t == target}
        rank = dict(zip(ranks(list(here.values())), here, strict=True))
        if 2 in rank:
            one, two = rank[1], rank[2]
            options = {"bootstrap": bootstrap, "seed": seed}
            found[target] = (one, two, lead(x[one], x[two], x[target], groups, **options))
    return found


def _inconclusive(
    fits: Mapping[tuple[str, str], Predictor], leads: Leads, alpha: float
) -> Iterable[str]:
    unsure = [
        f"{target} ({one} or {two}, p = {by.p_value:.2g})"
        for target, (one, two, by) in leads.items()
        if by.p_value >= alpha
    ]
    if unsure:
        yield f"Which metric predicts best is inconclusive for {', '.join(unsure)}."
    if any(fit.small_groups for fit in fits.values()):
        yield f"A group has fewer than {MANY} models: intervals of R² may be too narrow."


def _long(fits: Mapping[tuple[str, str], Predictor], leads: Leads, alpha: float) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for target in dict.fromkeys(key[0] for key in fits):
        here = {metric: one for (t, metric), one in fits.items() if t == target}
        rank = dict(zip(here, ranks([one.r2 for one in here.values()]), strict=True))
        for metric, one in here.items():
            about = {"ood": target, "metric": metric}
            marked = bool(rank[metric]) and one.r2 > MARKED
            row = vars(one) | about | {"group": AVERAGE, "rank": rank[metric] or None}
            row["marked"] = marked
            if rank[metric] == 1 and target in leads:
                p = leads[target][2].p_value
                row |= {"p_value": p, "best": marked and p < alpha if np.isfinite(p) else None}
            rows.append(row)
            rows += [vars(fit) | about for fit in one.fits]
    rows = [row | {"r2_adjusted": row["adjusted"]} for row in rows]
    named = [{name: row.get(name) for name in _SCHEMA} for row in rows]
    return pl.DataFrame(named, schema=_SCHEMA).with_columns(pl.selectors.float().fill_nan(None))


_SCHEMA = {
    "ood": pl.String,
    "metric": pl.String,
    "group": pl.String,
    "slope": pl.Float64,
    "slope_low": pl.Float64,
    "slope_high": pl.Float64,
    "r2": pl.Float64,
    "r2_low": pl.Float64,
    "r2_high": pl.Float64,
    "r2_adjusted": pl.Float64,
    "n": pl.Int64,
    "rank": pl.Int64,
    "marked": pl.Boolean,
    "p_value": pl.Float64,
    "best": pl.Boolean,
    "note": pl.String,
}


def on_scale(testbed: Testbed, setting: str) -> Floats:
    """(models,): a measurement as it is, an accuracy on the probit scale; 0 and 1 become NaN."""
    value = testbed.accuracy(setting)
    if setting in testbed.metrics:
        return value
    return _probit(value)


def _probit(value: Floats) -> Floats:
    inside = (value > 0) & (value < 1)
    return np.where(inside, PROBIT.forward(np.where(inside, value, 0.5)), np.nan)


def _accuracy_ends(testbed: Testbed, setting: str, level: float) -> tuple[Floats, Floats]:
    """Clopper–Pearson ends of an accuracy on the probit scale; NaN where sizes are unknown."""
    low, high = clopper_pearson(testbed.accuracy(setting), testbed.size(setting), level)
    return _probit(low), _probit(high)


def groups_by(
    testbed: Testbed, by: str | None = None, models: Choice = "all"
) -> list[tuple[str, Mask]]:
    """The chosen models by the values of a column (null is a group of its own), or all together."""
    rows = choose(testbed.models, models)
    if not rows.any():
        raise InputError(f"no model of {testbed.name} is left")
    if by is None:
        return [("all", rows)]
    if by not in testbed.models.columns:
        raise unknown(f"column of models in {testbed.name}", by, testbed.models.columns)
    names = testbed.models[by].cast(pl.String).fill_null("none")
    values = names.filter(pl.Series(rows)).unique().sort().to_list()
    return [(name, rows & (names == name).to_numpy()) for name in values]


def metrics_and_shifts(
    testbed: Testbed, metrics: Sequence[str] | None = None, ood: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """Settings to predict from, and OOD settings to predict; names of shifts will do for these.

    By default ID accuracies and everything that is no accuracy, and the targets of all shifts
    that have one ID setting.
    """
    shifts = [s for s in testbed.shifts if len(s.source) == 1 and s.target not in testbed.metrics]
    named = {s.name: s.target for s in shifts}
    targets = [named.get(name, name) for name in ood] if ood else [s.target for s in shifts]
    if not targets:
        raise InputError(f"{testbed.name} has no shift; name OOD settings with --ood")
    sources = dict.fromkeys(s.source[0] for s in shifts if s.target in targets)
    default = [*sources, *(s for s in testbed.settings if s in testbed.metrics)]
    chosen = list(metrics) if metrics else default
    for setting in (*chosen, *targets):
        testbed.setting_index(setting)
    for setting in targets:
        if setting in testbed.metrics:
            raise InputError(f"{setting!r} is no accuracy, so it cannot be predicted on probit")
    if not chosen:
        raise InputError(f"{testbed.name} has nothing to predict from")
    return chosen, list(dict.fromkeys(targets))
