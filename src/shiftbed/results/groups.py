"""Groups of models, and one ID set against several (shi2023, Sections 5.2 to 5.4)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.scales import SCALES
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice, choose

AVERAGE = "Average"


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
    records = []
    for target in ood:
        for source in (*((one,) for one in ids), tuple(ids)):
            baseline = testbed.fit(_adhoc(source, target), bootstrap=0, **options)
            kind = "multi-ID" if len(source) > 1 else "single-ID"
            records.append(
                (target, kind, " + ".join(source), baseline.r2, baseline.mae, baseline.n)
            )
    schema = ["ood", "evaluation", "id", "r2", "mae", "n"]
    return pl.DataFrame(records, schema=schema, orient="row")


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

    records = []
    for target in ood:
        plane = testbed.fit(_adhoc(tuple(own_id.values()), target), bootstrap=0, **options)
        multi = testbed.judge(plane).effective
        for group, source in own_id.items():
            rows = choose(testbed.models, f"{by}={group}")
            line = testbed.fit(_adhoc((source,), target), bootstrap=0, **options)
            single = testbed.judge(line).effective
            both = rows & np.isfinite(single) & np.isfinite(multi)
            tau = float(kendalltau(single[both], multi[both]).statistic)
            records.append((target, group, source, tau, int(both.sum())))
    schema = ["ood", "group", "id", "tau", "n"]
    return pl.DataFrame(records, schema=schema, orient="row").with_columns(
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
    records = []
    for target in ood:
        shift = _adhoc(tuple(ids), target)
        whole = testbed.fit(shift, models=fitted, bootstrap=0, **options)
        ablated = testbed.fit(shift, models=fitted & ~left_out, bootstrap=0, **options)
        errors = [np.abs(testbed.judge(b).effective[left_out & fitted]) for b in (whole, ablated)]
        n = int(np.isfinite(errors[0]).sum())
        means = [float(np.nanmean(e)) if n else float("nan") for e in errors]
        records.append((target, *means, ablated.r2, ablated.n, n))
    schema = ["ood", "mae_fitted", "mae_left_out", "r2_left_out", "n_fitted", "n_mixed"]
    return pl.DataFrame(records, schema=schema, orient="row")


def scale_table(testbed: Testbed, shifts: Sequence[str | Shift], **options: Any) -> pl.DataFrame:
    """R² and MAE of the fit on each scale (andreassen2021, Table 2)."""
    records = []
    for shift in shifts:
        for name in SCALES:
            baseline = testbed.fit(shift, scale=name, bootstrap=0, **options)
            records.append((baseline.shift, name, baseline.r2, baseline.mae, baseline.n))
    return pl.DataFrame(records, schema=["shift", "scale", "r2", "mae", "n"], orient="row")


def _adhoc(source: tuple[str, ...], target: str) -> Shift:
    return Shift(name=target, kind="natural-dataset", source=source, target=target)
