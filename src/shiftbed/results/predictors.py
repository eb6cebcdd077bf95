"""Which measurement of a model predicts its accuracy under which shift: ``predictors``.

fridovich2022: slope and R² of probit OOD accuracy on every metric, per group and averaged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import check_draws, clopper_pearson
from shiftbed.analysis.predictors import MANY, Lead, Predictor, lead, predictor, ranks
from shiftbed.display import SAID, Row, Table, between, counted, number, records, schema
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.charts import Charted
from shiftbed.results.pairs.networks import (
    chosen_errors,
    chosen_said,
    finished,
    left_out_said,
    listed,
    networks_of,
)
from shiftbed.scales import PROBIT
from shiftbed.testbed import Source, Testbed, open_testbed
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
    source: Source = "robustnets-2022",
    *,
    by: str | None = None,
    models: Choice = "all",
    only: Sequence[str] | None = None,
    checkpoint: str = "last",
    metric: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    groups: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> "PredictorTable":
    """For every metric and OOD set: slope and R² of probit OOD accuracy, per group and averaged.

    ``by`` is a column of models: each of its values is fitted, and averaged over. ``models`` are
    those with COLUMN=PATTERN or COLUMN!=PATTERN, and ``only`` narrows them likewise; ``metric`` are
    settings to predict from (default: ID accuracy and all probes), ``ood`` shifts or OOD settings
    (default: all shifts). A run counts with one ``checkpoint``, as in ``open_pairs``, and where a
    shift is about models of some training data it is ``ID → OOD`` over these. Tables show every
    group's own fit if ``groups``. ``bootstrap`` 0 gives no interval of an average R².

    >>> found = predictors(ood=["cifar10.1"], by="architecture", models="augmentation=clean",
    ...                    bootstrap=40)
    >>> found.frame.filter(pl.col("rank") == 1).select("metric", "group", "n").row(0)
    ('cifar10_acc', 'average', 149)
    """
    check_draws(bootstrap, level)
    testbed = open_testbed(source)
    aims = find_aims(testbed, metric or None, ood or None, checkpoint)
    rows = choose(testbed.models, models) & choose(testbed.models, list(only or ["all"]))
    within = groups_by(testbed, by, rows)
    options: dict[str, Any] = {"level": level, "bootstrap": bootstrap, "seed": seed}
    x = {one: on_scale(testbed, one) for aim in aims for one in aim.metrics}
    for aim in aims:
        x[aim.name] = np.where(aim.networks, on_scale(testbed, aim.target), np.nan)
    fits = {
        (aim.name, one): predictor(x[one], x[aim.name], within, **options)
        for aim in aims
        for one in aim.metrics
        if one != aim.target
    }
    leads = _leads(fits, x, within, bootstrap, seed)
    return PredictorTable(
        frame=_long(fits, leads, 1 - level),
        notes=(*_inconclusive(fits, leads, 1 - level), *_networks_said(aims, checkpoint)),
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
        ends={
            name: _accuracy_ends(testbed, setting, level)
            for name, setting in (
                {one: one for one in x} | {a.name: a.target for a in aims}
            ).items()
            if setting not in testbed.metrics
        },
        aims=aims,
        checkpoint=checkpoint,
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
    aims: "tuple[Aim, ...]"
    checkpoint: str
    files: tuple[str, ...] = ()
    """Charts that were written of it."""

    def best(self) -> dict[str, str]:
        """OOD setting → the metric with the largest average R², whether or not its lead is one."""
        first = self.frame.filter(pl.col("rank") == 1)
        return dict(zip(first["ood"], first["metric"], strict=True))

    def to_dict(self) -> dict[str, Any]:
        found = {"source": self.source, "by": self.by, "predictors": records(self.frame)}
        networks = [
            {"ood": aim.name, "networks": int(aim.networks.sum()), "left_out": listed(aim.left_out)}
            for aim in self.aims
        ]
        more = {"checkpoint": self.checkpoint, "networks": networks, "notes": list(self.notes)}
        return found | more | {"files": list(self.files)}

    def answer(self) -> Iterable[str]:
        first = self.frame.filter(pl.col("rank") == 1, pl.col("group") == AVERAGE)
        for row in records(first.head(SAID)):
            sure = "predicts best" if row["best"] else "leads, but which predicts best is open"
            sure = "predicts it" if row["p_value"] is None else sure
            found = f"{row['ood']}: {row['metric']} {sure} (R² {number(row['r2'], 3)}"
            ends = between(row["r2_low"], row["r2_high"], partial(number, digits=3))
            yield f"{found}{f', {100 * self.level:g} % interval {ends}' if ends else ''})."
        if len(first) > SAID:
            yield f"{counted(len(first) - SAID, 'more OOD set')} in the table."

    def tables(self) -> Iterable[Table]:
        form = partial(number, digits=3)

        def mark(row: Row) -> str:
            best = " **" if row["best"] else " *" if row["marked"] else ""
            return form(row["r2"]) + best

        columns: dict[str, Any] = {
            "OOD": "ood",
            "metric": "metric",
            "group": "group",
            "m": ("slope", form),
            "m interval": lambda row: between(row["slope_low"], row["slope_high"], form),
            "R²": mark,
            "adjusted": ("r2_adjusted", form),
            "R² interval": lambda row: between(row["r2_low"], row["r2_high"], form),
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


_SCHEMA = schema(
    "ood metric group: str; slope slope_low slope_high r2 r2_low r2_high r2_adjusted: float; "
    "n rank: int; marked: bool; p_value: float; best: bool; note: str"
)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Aim:
    """An OOD setting to predict, what from, and over which models."""

    name: str
    """The OOD setting, or ``ID → OOD`` where models of the ID data alone are looked at."""
    target: str
    metrics: tuple[str, ...]
    networks: Mask
    left_out: Mapping[str, tuple[str, ...]]


def find_aims(
    testbed: Testbed,
    metrics: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    checkpoint: str = "last",
) -> tuple[Aim, ...]:
    """What to predict from what: ``ood`` are OOD settings or names of shifts.

    By default from ID accuracies and everything that is no accuracy, the targets of all shifts
    that have one ID setting.
    """
    shifts = [s for s in testbed.shifts if len(s.source) == 1 and s.target not in testbed.metrics]
    named = {s.name: s.target for s in shifts}
    targets = dict.fromkeys(named.get(t, t) for t in ood) if ood else [s.target for s in shifts]
    if not targets:
        raise InputError(f"{testbed.name} has no shift; name OOD settings with --ood")
    for setting in (*(metrics or ()), *targets):
        testbed.setting_index(setting)
    for setting in targets:
        if setting in testbed.metrics:
            raise InputError(f"{setting!r} is no accuracy, so it cannot be predicted on probit")
    probed = [s for s in testbed.settings if s in testbed.metrics]
    sources = dict.fromkeys(
        s.source[0] for s in shifts if s.target in targets and s.trained_on is None
    )
    about = [s for s in shifts if not ood or s.name in ood or s.target in ood]
    found: dict[str, Aim] = {}
    for target in dict.fromkeys(targets):
        here: list[Shift | None] = [s for s in about if s.target == target]
        for shift in here or [None]:
            alone = shift is not None and shift.trained_on is not None
            ids = [shift.source[0]] if alone and shift is not None else list(sources)
            chosen = list(metrics) if metrics else [*ids, *probed]
            if not chosen:
                raise InputError(f"{testbed.name} has nothing to predict from")
            name = f"{ids[0]} → {target}" if alone else target
            networks, left_out = _networks(testbed, shift, checkpoint)
            aim = Aim(
                name=name,
                target=target,
                metrics=tuple(dict.fromkeys(chosen)),
                networks=networks,
                left_out=left_out,
            )
            found.setdefault(name, aim)
    return tuple(found.values())


def _networks(
    testbed: Testbed, shift: Shift | None, checkpoint: str
) -> tuple[Mask, Mapping[str, tuple[str, ...]]]:
    columns = {}
    if shift is not None:
        columns["id:error"] = 1.0 - testbed.accuracy(shift.source[0])
        if shift.validation in testbed.settings:
            columns["id:validation_error"] = 1.0 - testbed.accuracy(shift.validation)
    where = testbed.name if shift is None else shift.name
    errors = chosen_errors(checkpoint, columns, where, testbed.models.columns)
    networks, left_out = networks_of(testbed.models, shift, finished(testbed.models, errors))
    return networks if errors is None else networks & np.isfinite(errors), left_out


def _networks_said(aims: Sequence[Aim], checkpoint: str) -> Iterable[str]:
    yield from left_out_said([aim.left_out for aim in aims])
    yield from chosen_said([checkpoint])
