"""Groups of models, and one ID set against several (shi2023, Sections 5.2 to 5.4)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import Baseline, OnBoundary
from shiftbed.analysis.means import GroupMean, group_mean, mean_of_shifts
from shiftbed.display import SAID, Cell, Table, interval, number, percent, points, records, schema
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.caveats import (
    caveat_notes,
    caveats_of_group,
    failure_notes,
    judge,
    unjudged_notes,
)
from shiftbed.results.charts import Charted
from shiftbed.results.lines import TESTBED
from shiftbed.results.single_and_multi import (
    AVERAGE,
    comparable,
    id_groups,
    rank_agreement,
    single_and_multi,
    without_mixed,
)
from shiftbed.results.sources import Results, joined
from shiftbed.scales import SCALES, Scale
from shiftbed.testbed import Source, Testbed
from shiftbed.testbed.judging import errors_of
from shiftbed.testbed.select import Choice

if TYPE_CHECKING:
    from shiftbed.figures.charts import Bars

_TITLES = {
    "scales": "Fit quality by scale (no knee)",
    "fits": "Single-ID and multi-ID fits",
    "rank_agreement": "Kendall's τ of single-ID and multi-ID ρ",
    "without_mixed": "The plane without the mixed models",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Grouped(Charted):
    """ρ by group of models and R² by scale, or single-ID against multi-ID fits.

    ``frame`` is the first of ``parts``, which are tables by name: groups and scales, or fits,
    groups, rank_agreement and without_mixed.
    """

    testbed: str
    by: str
    level: float
    parts: Mapping[str, pl.DataFrame]

    def answer(self) -> Iterable[str]:
        """Groups whose mean is significantly off the line; of several fits, by the plane."""
        found = self.parts["groups"]
        if "evaluation" in found.columns:
            found = found.filter(evaluation="multi-ID").rename({"ood": "shift"})
        found = found.filter(pl.col("shift") != AVERAGE)
        sides = {
            "Above": found.filter(pl.col("low") > 0),
            "Below": found.filter(pl.col("high") < 0),
        }
        for side, rows in sides.items():
            far = rows.sort(pl.col("mean").abs(), descending=True)
            told = [
                f"{r['group'] or f'no {self.by}'} on {r['shift']} "
                f"({'not in the fit; ' if r.get('fitted') is False else ''}"
                f"mean ρ {points(r['mean'])}, "
                f"{interval(r['low'], r['high'])}"
                f"{'; line not trusted' if r.get('trusted') is False else ''})"
                for r in records(far.head(SAID))
            ]
            more = f" and {len(far) - SAID} more" if len(far) > SAID else ""
            if told:
                yield f"{side} the line: {', '.join(told)}{more}."
        if not any(map(len, sides.values())):
            yield (
                f"No {self.by} is significantly off the line: "
                "every interval of a mean ρ includes 0."
            )

    def tables(self) -> Iterable[Table]:
        fitted: Cell = ("fitted", lambda yes: "yes" if yes else "no")
        short: Cell = ("r2", lambda r2: number(r2, 3))
        for key, frame in self.parts.items():
            if key == "groups":
                several = "id" in frame.columns
                columns: dict[str, Cell] = {
                    "ood" if several else "shift": "ood" if several else "shift",
                    self.by: "group",
                    **({"fitted": fitted, "ID": "id"} if several else {}),
                    "mean ρ": ("mean", points),
                    "± std": ("sd" if several else "std", percent),
                    f"{100 * self.level:g} % of the mean": lambda r: interval(r["low"], r["high"]),
                    **({"MAE": ("mae", percent), "R²": short} if several else {}),
                    "n": "n",
                    "families": "families",
                }
                title = f"{self.testbed}: ρ by {self.by} (points)"
                left = 4 if several else 2
                yield Table.of(title, frame, columns, notes=self.notes, left=left)
            else:
                kinds = frame.schema.items()
                columns = {n: (n, number) if kind == pl.Float64 else n for n, kind in kinds}
                left = sum(kind == pl.String for _, kind in kinds)
                yield Table.of(_TITLES[key], frame, columns, left=left)

    def to_dict(self) -> dict[str, Any]:
        return {key: records(frame) for key, frame in self.parts.items()}

    def chart(self) -> "Bars":
        """Mean ρ by group and shift; of single-ID and multi-ID fits by the plane alone, with the
        models that it goes through apart."""
        from shiftbed.results.charts.predictiveness import group_bars

        table, over = self.parts["groups"], "shift"
        if "evaluation" in table.columns:
            apart = pl.when("fitted").then(pl.lit(" (fitted)")).otherwise(pl.lit(""))
            table = table.filter(pl.col("evaluation") == "multi-ID")
            table, over = table.with_columns(pl.concat_str("group", apart).alias("group")), "ood"
        title = f"{self.testbed}: ρ by {self.by}"
        return replace(
            group_bars(table, over, title=title, level=self.level), citation=self.citation
        )


def groups(
    testbed: Source = TESTBED,
    *,
    by: str | None = None,
    shift: Sequence[str | Shift] | None = None,
    id: Sequence[str] | None = None,
    ood: Sequence[str] | None = None,
    own_id: Mapping[str, str] | None = None,
    mixed: Choice = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    on_boundary: OnBoundary = "raise",
    others: Sequence[Results] = (),
    level: float = 0.95,
) -> Grouped:
    """Mean ρ by group of models (column ``by``, kind if not given) and R² by scale.

    With two or more ID settings ``id`` and OOD settings ``ood``: lines through one ID setting
    against the plane through all (shi2023), their R² and MAE, and ρ by group, of fitted and of
    other models apart. ``own_id`` maps groups to their own ID setting, for Kendall's τ of both ρ
    within a group; ``mixed`` chooses models that the plane is refitted without. ``threshold``
    keeps models with at least that accuracy: in the fit, on its ID setting; or with ``id`` at all,
    on the first one. ``others`` are as for ``rank``; rows of groups have r2, trusted and caveats as
    it has.

    >>> found = groups("imagenet-testbed-2020", shift=["imagenet-v2"])
    >>> found.frame.filter(pl.col("group") == "more-data")["mean"].round(4).to_list()
    [0.0061]
    """
    bed = joined(testbed, others)
    options: dict[str, Any] = {"scale": scale, "models": fit_on, "on_boundary": on_boundary}
    column = by or "kind"
    notes: list[str] = []
    if bool(id) != bool(ood):
        raise InputError("id and ood go together: ID settings and OOD settings")
    parts: dict[str, pl.DataFrame] = {}
    if id and ood:
        if shift:
            raise InputError("single-ID and multi-ID fits (id, ood) take no shift")
        bed, notes = comparable(bed, id, threshold)
        parts["fits"] = single_and_multi(bed, id, ood, **options)
        parts["groups"] = id_groups(bed, id, ood, by=column, level=level, **options)
        if own_id:
            parts["rank_agreement"] = rank_agreement(
                bed, own_id, ood, by=column, level=level, **options
            )
        if mixed is not None:
            parts["without_mixed"] = without_mixed(bed, id, ood, mixed, **options)
    else:
        if own_id or mixed is not None:
            raise InputError("own_id and mixed need id and ood")
        options["threshold"] = threshold
        judged = judge(bed, [bed.shift(one) for one in shift or bed.shifts], level=level, **options)
        lines = {one: line for one, line, _ in judged.lines}
        wanted = list(lines)
        table = group_table(bed, wanted, by=column, level=level, fit=lines.__getitem__, **options)
        parts["groups"] = _with_caveats(table, judged.frame, bed, column)
        parts["scales"] = scale_table(
            bed, wanted, models=fit_on, threshold=threshold, knee=None, on_boundary="drop"
        )
        notes = [
            *caveat_notes(judged.frame),
            *failure_notes(judged.not_computed),
            *(unjudged_notes(bed, wanted) if others else []),
            *bed.notes,
        ]
    return Grouped(
        frame=next(iter(parts.values())),
        notes=tuple(notes),
        citation=bed.citation,
        testbed=bed.name,
        by=column,
        level=level,
        parts=parts,
    )


def _with_caveats(
    table: pl.DataFrame, rows: pl.DataFrame, testbed: Testbed, by: str
) -> pl.DataFrame:
    """Groups with r2 and trust of the line and with the caveats of their models; none of means."""
    if by not in rows.columns:
        rows = rows.join(testbed.models.select("model", by), on="model")
    rows = rows.with_columns(pl.col(by).cast(pl.String).alias("group"))
    found = [
        (shift, group, part["r2"][0], part["trusted"][0], caveats_of_group(part))
        for (shift, group), part in rows.group_by(["shift", "group"], maintain_order=True)
    ]
    known = schema("shift group: str; r2: float; trusted: bool; caveats: texts")
    more = pl.DataFrame(found, schema=known, orient="row")
    keys = ["shift", "group"]
    return table.join(more, on=keys, how="left", nulls_equal=True, maintain_order="left")


def group_table(
    testbed: Testbed,
    shifts: Sequence[str | Shift] | None = None,
    *,
    by: str = "kind",
    level: float = 0.95,
    fit: Callable[[Shift], Baseline] | None = None,
    **options: Any,
) -> pl.DataFrame:
    """Mean and standard deviation of ρ per group and shift, with n and an interval of the mean.

    The interval is of models of this kind (families of them, where they are known), against a
    line and on images that all of them share (``analysis.means``). The rows "Average" average ρ
    over the shifts per model first (models that have all of them), then over models, as shi2023's
    Tables 1b and 3 do; lines and images of different shifts are taken to err together. ``fit``
    gives lines that are fitted already.
    """
    if by not in testbed.models.columns:
        raise unknown("column of models", by, testbed.models.columns)
    wanted = [testbed.shift(one) for one in (shifts if shifts is not None else testbed.shifts)]
    group = np.array(testbed.models[by].cast(pl.String).to_list(), dtype=object)
    families = options.get("families", "known")
    rows, rho, variance = [], [], []
    for shift in wanted:
        line = fit(shift) if fit else testbed.fit(shift, bootstrap=0, **options)
        values = testbed.judge(line, level=level).effective
        rho.append(values)
        for name in _order(group[np.isfinite(values)]):
            inside = np.flatnonzero((group == name) & np.isfinite(values))
            errors = errors_of(testbed, line, inside)
            kin, _ = testbed.related(inside, families)
            found = group_mean(values[inside], errors, kin, level)
            variance.append((name, found.shared))
            kind = None if errors is None or np.isnan(found.low) else errors.interval
            rows.append(_group_row(line.shift, name, found, kind))
    if len(wanted) > 1:
        average = np.mean(rho, axis=0)
        for name in _order(group[np.isfinite(average)]):
            inside = np.flatnonzero((group == name) & np.isfinite(average))
            kin, _ = testbed.related(inside, families)
            shared = [v for other, v in variance if other == name]
            found = mean_of_shifts(average[inside], shared, kin, level)
            kind = None if np.isnan(found.low) else "independent"
            rows.append(_group_row(AVERAGE, name, found, kind))
    return pl.DataFrame(rows, schema=_GROUP, orient="row").with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )


_GROUP = schema(
    "shift group: str; mean std: float; n: int; low high: float; interval: str; families: int"
)


def _order(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _group_row(shift: str, group: str | None, one: GroupMean, kind: str | None) -> tuple[Any, ...]:
    return (shift, group, one.mean, one.std, one.n, one.low, one.high, kind, one.families)


def scale_table(testbed: Testbed, shifts: Sequence[str | Shift], **options: Any) -> pl.DataFrame:
    """R² and MAE of the fit on each scale (andreassen2021, Table 2)."""
    found = []
    for shift in shifts:
        for name in SCALES:
            baseline = testbed.fit(shift, scale=name, bootstrap=0, **options)
            found.append((baseline.shift, name, baseline.r2, baseline.mae, baseline.n))
    return pl.DataFrame(found, schema=["shift", "scale", "r2", "mae", "n"], orient="row")
