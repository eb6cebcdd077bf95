"""Groups of models, and one ID set against several (shi2023, Sections 5.2 to 5.4)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from shiftbed.display import Cell, Result, Table, interval, number, percent, points, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.lines import TESTBED, Source, adhoc
from shiftbed.scales import SCALES, Scale
from shiftbed.testbed import Testbed, choose, open_testbed
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
                }
                title = f"{self.testbed}: ρ by {self.by} (points)"
                yield Table.of(title, frame, columns, left=2)
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
    level: float = 0.95,
) -> Grouped:
    """Mean ρ by group of models (column ``by``, kind if not given) and R² by scale.

    With two or more ID settings ``id`` and OOD settings ``ood``: lines through one ID setting
    against the plane through all (shi2023). ``own_id`` maps groups to their own ID setting, for
    Kendall's τ of both ρ within a group; ``mixed`` chooses models that the plane is refitted
    without.

    >>> found = groups("imagenet-testbed-2020", shift=["imagenet-v2"])
    >>> found.frame.filter(pl.col("group") == "more-data")["mean"].round(4).to_list()
    [0.0061]
    """
    bed = open_testbed(testbed)
    options: dict[str, Any] = {"scale": scale, "models": fit_on}
    column = by or "kind"
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
        wanted = list(shift or bed.shifts)
        parts["groups"] = group_table(bed, wanted, by=column, level=level, **options)
        parts["scales"] = scale_table(bed, wanted, models=fit_on, knee=None, on_boundary="drop")
    return Grouped(
        frame=next(iter(parts.values())),
        citation=bed.citation,
        testbed=bed.name,
        by=column,
        level=level,
        parts=parts,
    )


def group_table(
    testbed: Testbed,
    shifts: Sequence[str | Shift] | None = None,
    *,
    by: str = "kind",
    level: float = 0.95,
    **options: Any,
) -> pl.DataFrame:
    """Mean and standard deviation of ρ per group and shift, with n and an interval of the mean.

    The rows "Average" average ρ over the shifts per model first (models that have all of them),
    then over models, as shi2023's Tables 1b and 3 do.
    """
    if by not in testbed.models.columns:
        raise unknown("column of models", by, testbed.models.columns)
    table = testbed.effective_robustness(shifts, level=level, **options)
    group = testbed.models.select("model", pl.col(by).cast(pl.String).alias("group"))
    table = table.join(group, on="model", how="left").select("model", "group", "shift", "effective")
    names = table["shift"].unique(maintain_order=True).to_list()
    average = (
        table.group_by("model", "group", maintain_order=True)
        .agg(pl.col("effective").mean(), pl.len())
        .filter(pl.col("len") == len(names))
        .select("model", "group", pl.lit(AVERAGE).alias("shift"), "effective")
    )
    if len(names) > 1:
        table = pl.concat([table, average])
    summary = table.group_by("shift", "group", maintain_order=True).agg(
        pl.col("effective").mean().alias("mean"),
        pl.col("effective").std().alias("std"),
        pl.len().alias("n"),
    )
    n = summary["n"].to_numpy().astype(np.float64)
    spread = summary["std"].fill_null(float("nan")).to_numpy()
    half = stdtrit(np.maximum(n - 1, 1), 0.5 + level / 2) * spread / np.sqrt(n)
    return summary.with_columns(
        pl.Series("low", summary["mean"].to_numpy() - half).fill_nan(None),
        pl.Series("high", summary["mean"].to_numpy() + half).fill_nan(None),
    )


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
    **options: Any,
) -> pl.DataFrame:
    """Kendall's τ of single-ID and multi-ID ρ among models trained on the same data.

    ``own_id`` maps a value of column ``by`` to the ID setting of that data, which the single-ID
    line uses; the plane uses all of them.
    """
    from scipy.stats import kendalltau

    if len(own_id) < 2:
        raise InputError("own_id needs two or more groups: the plane goes through all their sets")
    found = []
    for target in ood:
        plane = testbed.fit(adhoc(tuple(own_id.values()), target), bootstrap=0, **options)
        multi = testbed.judge(plane).effective
        for group, source in own_id.items():
            rows = choose(testbed.models, f"{by}={group}")
            line = testbed.fit(adhoc((source,), target), bootstrap=0, **options)
            single = testbed.judge(line).effective
            both = rows & np.isfinite(single) & np.isfinite(multi)
            tau = float(kendalltau(single[both], multi[both]).statistic)
            found.append((target, group, source, tau, int(both.sum())))
    schema = ["ood", "group", "id", "tau", "n"]
    return pl.DataFrame(found, schema=schema, orient="row").with_columns(
        pl.col("tau").fill_nan(None)
    )


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
