"""Groups of models, and one ID set against several (shi2023, Sections 5.2 to 5.4)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline, OnBoundary
from shiftbed.analysis.families import ENOUGH
from shiftbed.analysis.means import Errors, GroupMean, group_mean
from shiftbed.display import Cell, Result, Table, interval, number, percent, points, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.caveats import (
    caveat_notes,
    caveats_of_group,
    failure_notes,
    judge,
    unjudged_notes,
)
from shiftbed.results.lines import TESTBED, Source, adhoc
from shiftbed.results.sources import Results, joined
from shiftbed.scales import SCALES, Scale
from shiftbed.testbed import Testbed, choose
from shiftbed.testbed.judging import errors_of
from shiftbed.testbed.select import Choice

AVERAGE = "Average"
_TITLES = {
    "scales": "Fit quality by scale (no knee)",
    "fits": "Single-ID and multi-ID fits",
    "rank_agreement": "Kendall's τ of single-ID and multi-ID ρ",
    "without_mixed": "The plane without the mixed models",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Grouped(Result):
    """ρ by group of models and R² by scale, or single-ID against multi-ID fits.

    ``frame`` is the first of ``parts``, which are tables by name: groups and scales, or fits,
    rank_agreement and without_mixed.
    """

    testbed: str
    by: str
    level: float
    parts: Mapping[str, pl.DataFrame]

    def tables(self) -> Iterable[Table]:
        for key, frame in self.parts.items():
            if key == "groups":
                columns: dict[str, Cell] = {
                    "shift": "shift",
                    self.by: "group",
                    "mean ρ": ("mean", points),
                    "± std": ("std", percent),
                    f"{100 * self.level:g} % of the mean": lambda r: interval(r["low"], r["high"]),
                    "n": "n",
                    "families": "families",
                }
                title = f"{self.testbed}: ρ by {self.by} (points)"
                yield Table.of(title, frame, columns, notes=self.notes, left=2)
            else:
                kinds = frame.schema.items()
                columns = {n: (n, number) if kind == pl.Float64 else n for n, kind in kinds}
                left = sum(kind == pl.String for _, kind in kinds)
                yield Table.of(_TITLES[key], frame, columns, left=left)

    def to_dict(self) -> dict[str, Any]:
        return {key: records(frame) for key, frame in self.parts.items()}


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
    on_boundary: OnBoundary = "raise",
    others: Sequence[Results] = (),
    level: float = 0.95,
) -> Grouped:
    """Mean ρ by group of models (column ``by``, kind if not given) and R² by scale.

    With two or more ID settings ``id`` and OOD settings ``ood``: lines through one ID setting
    against the plane through all (shi2023). ``own_id`` maps groups to their own ID setting, for
    Kendall's τ of both ρ within a group; ``mixed`` chooses models that the plane is refitted
    without. ``others`` are as for ``rank``; rows of groups have r2, trusted and caveats as it has.

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
        if shift or level != 0.95 or (by and not own_id):
            raise InputError(
                "single-ID and multi-ID fits (id, ood) take no shift and no level, and a column "
                "(by) only with own_id"
            )
        parts["fits"] = single_and_multi(bed, id, ood, **options)
        if own_id:
            parts["rank_agreement"] = rank_agreement(bed, own_id, ood, by=column, **options)
        if mixed is not None:
            parts["without_mixed"] = without_mixed(bed, id, ood, mixed, **options)
    else:
        if own_id or mixed is not None:
            raise InputError("own_id and mixed need id and ood")
        judged = judge(bed, [bed.shift(one) for one in shift or bed.shifts], level=level, **options)
        lines = {one: line for one, line, _ in judged.lines}
        wanted = list(lines)
        table = group_table(bed, wanted, by=column, level=level, fit=lines.__getitem__, **options)
        parts["groups"] = _with_caveats(table, judged.frame, bed, column)
        parts["scales"] = scale_table(bed, wanted, models=fit_on, knee=None, on_boundary="drop")
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
    schema = {"shift": pl.String, "group": pl.String, "r2": pl.Float64, "trusted": pl.Boolean}
    schema |= {"caveats": pl.List(pl.String)}  # type: ignore[dict-item]
    more = pl.DataFrame(found, schema=schema, orient="row")
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
    related = testbed.families if options.get("families", "known") == "known" else None
    rows, rho, variance = [], [], []
    for shift in wanted:
        line = fit(shift) if fit else testbed.fit(shift, bootstrap=0, **options)
        values = testbed.judge(line, level=level).effective
        rho.append(values)
        for name in _order(group[np.isfinite(values)]):
            inside = np.flatnonzero((group == name) & np.isfinite(values))
            errors = errors_of(testbed, line, inside)
            kin = None if related is None else [related[i] for i in inside]
            found = group_mean(values[inside], errors, kin, level)
            variance.append((name, found.shared))
            kind = None if errors is None or np.isnan(found.low) else errors.interval
            rows.append(_group_row(line.shift, name, found, kind))
    if len(wanted) > 1:
        average = np.mean(rho, axis=0)
        for name in _order(group[np.isfinite(average)]):
            inside = np.flatnonzero((group == name) & np.isfinite(average))
            kin = None if related is None else [related[i] for i in inside]
            spread = np.sqrt([v for other, v in variance if other == name])
            rows.append(_average_row(name, average[inside], spread, kin, level))
    return pl.DataFrame(rows, schema=_GROUP, orient="row").with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )


_GROUP = {
    **{"shift": pl.String, "group": pl.String, "mean": pl.Float64, "std": pl.Float64},
    **{"n": pl.Int64, "low": pl.Float64, "high": pl.Float64, "interval": pl.String},
    "families": pl.Int64,
}


def _order(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _group_row(shift: str, group: str | None, one: GroupMean, kind: str | None) -> tuple[Any, ...]:
    return (shift, group, one.mean, one.std, one.n, one.low, one.high, kind, one.families)


def _average_row(
    group: str | None,
    rho: NDArray[np.float64],
    shared: NDArray[np.float64],
    families: Sequence[str | None] | None,
    level: float,
) -> tuple[Any, ...]:
    """The mean over shifts: its shared error is at most the mean of the shifts' shared errors."""
    n = len(rho)
    nothing = np.zeros((n, n))
    together = np.full((n, n), float(shared.mean()) ** 2) if np.isfinite(shared).all() else None
    errors = None
    if together is not None:
        errors = Errors(
            matrix=together, fit=nothing, corrected=rho, dof=1.0, interval="independent"
        )
    found = group_mean(rho, errors, families, level)
    return _group_row(AVERAGE, group, found, None if np.isnan(found.low) else "independent")


def single_and_multi(
    testbed: Testbed, ids: Sequence[str], ood: Sequence[str], **options: Any
) -> pl.DataFrame:
    """R² and MAE of each single-ID line and of the multi-ID plane, per OOD setting.

    shi2023, Tables 1a and 2. R² in scaled space, MAE a fraction.
    """
    if len(ids) < 2:
        raise InputError("comparing single-ID with multi-ID needs at least two ID settings")
    found = []
    for target in ood:
        for source in (*((one,) for one in ids), tuple(ids)):
            baseline = testbed.fit(adhoc(source, target), bootstrap=0, **options)
            kind = "multi-ID" if len(source) > 1 else "single-ID"
            found.append((target, kind, " + ".join(source), baseline.r2, baseline.mae, baseline.n))
    schema = ["ood", "evaluation", "id", "r2", "mae", "n"]
    return pl.DataFrame(found, schema=schema, orient="row")


def rank_agreement(
    testbed: Testbed,
    own_id: Mapping[str, str],
    ood: Sequence[str],
    *,
    by: str = "training_data",
    level: float = 0.95,
    **options: Any,
) -> pl.DataFrame:
    """Kendall's τ of single-ID and multi-ID ρ among models trained on the same data.

    ``own_id`` maps a value of column ``by`` to the ID setting of that data, which the single-ID
    line uses; the plane uses all of them. The interval is a jackknife of artanh τ: everything,
    lines and planes too, is computed again without each model of the group (without each family,
    where they are known).
    """
    from scipy.stats import kendalltau

    if len(own_id) < 2:
        raise InputError("own_id needs two or more groups: the plane goes through all their sets")
    fitted = choose(testbed.models, options.pop("models", None))

    def tau(group: str, source: str, target: str, kept: NDArray[np.bool_]) -> tuple[float, int]:
        ids = tuple(own_id.values())
        chosen = {"models": fitted & kept, "bootstrap": 0, **options}
        plane, line = (testbed.fit(adhoc(one, target), **chosen) for one in (ids, (source,)))
        multi, single = (_residuals(testbed, one) for one in (plane, line))
        both = choose(testbed.models, f"{by}={group}") & kept
        both &= np.isfinite(single) & np.isfinite(multi)
        return float(kendalltau(single[both], multi[both]).statistic), int(both.sum())

    found = []
    for target in ood:
        for group, source in own_id.items():
            everyone = np.ones(len(testbed.models), dtype=bool)
            value, n = tau(group, source, target, everyone)
            units = _units(testbed, choose(testbed.models, f"{by}={group}"))
            low, high = _jackknife(
                value, [tau(group, source, target, ~unit)[0] for unit in units], level
            )
            found.append((target, group, source, value, n, low, high, len(units)))
    schema = ["ood", "group", "id", "tau", "n", "low", "high", "families"]
    return pl.DataFrame(found, schema=schema, orient="row").with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )


def _residuals(testbed: Testbed, baseline: Baseline) -> NDArray[np.float64]:
    """ρ of every model, without intervals."""
    x = np.column_stack([testbed.accuracy(one) for one in baseline.id_settings])
    return testbed.accuracy(baseline.ood_setting) - baseline.predict(x)


def _units(testbed: Testbed, rows: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """What a jackknife leaves out: each family of these models, or each of them."""
    names = testbed.families or [None] * len(rows)
    of = np.array([f"\0{i}" if f is None else f for i, f in enumerate(names)], dtype=object)
    units = [rows & (of == name) for name in dict.fromkeys(of[rows])]
    single = [np.arange(len(rows)) == i for i in np.flatnonzero(rows)]
    return units if len(units) >= ENOUGH else single


def _jackknife(value: float, without: Sequence[float], level: float) -> tuple[float, float]:
    """tanh(artanh τ ± t·√((F−1)/F Σ (artanh τ₍₎ − artanh τ)²)), F − 1 degrees of freedom."""
    count = len(without)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre, moved = np.arctanh(value), np.arctanh(np.asarray(without))
        spread = float(np.sqrt((count - 1) / count * ((moved - centre) ** 2).sum()))
    half = float(stdtrit(max(count - 1, 1), 0.5 + level / 2)) * spread
    return float(np.tanh(centre - half)), float(np.tanh(centre + half))


def without_mixed(
    testbed: Testbed, ids: Sequence[str], ood: Sequence[str], mixed: Choice, **options: Any
) -> pl.DataFrame:
    """The plane refitted without the mixed models, and its error on them (shi2023, App. A).

    MAE of the mixed models under the whole fit and under the fit that never saw them.
    """
    left_out = choose(testbed.models, mixed)
    fitted = choose(testbed.models, options.pop("models", None))
    found = []
    for target in ood:
        shift = adhoc(tuple(ids), target)
        whole = testbed.fit(shift, models=fitted, bootstrap=0, **options)
        ablated = testbed.fit(shift, models=fitted & ~left_out, bootstrap=0, **options)
        errors = [np.abs(testbed.judge(b).effective[left_out & fitted]) for b in (whole, ablated)]
        n = int(np.isfinite(errors[0]).sum())
        if not n:
            raise InputError(f"no mixed model is among the baseline models of {target!r}")
        means = [float(np.nanmean(e)) for e in errors]
        found.append((target, *means, ablated.r2, ablated.n, n))
    schema = ["ood", "mae_fitted", "mae_left_out", "r2_left_out", "n_fitted", "n_mixed"]
    return pl.DataFrame(found, schema=schema, orient="row")


def scale_table(testbed: Testbed, shifts: Sequence[str | Shift], **options: Any) -> pl.DataFrame:
    """R² and MAE of the fit on each scale (andreassen2021, Table 2)."""
    found = []
    for shift in shifts:
        for name in SCALES:
            baseline = testbed.fit(shift, scale=name, bootstrap=0, **options)
            found.append((baseline.shift, name, baseline.r2, baseline.mae, baseline.n))
    return pl.DataFrame(found, schema=["shift", "scale", "r2", "mae", "n"], orient="row")
