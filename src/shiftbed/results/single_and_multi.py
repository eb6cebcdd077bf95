"""One ID set against several: fits, groups of models, ranks, the mixed models left out.

shi2023, Sections 5.2 to 5.4 and Appendix A. With models trained on different data each data set has
an ID set of its own; a line through one of them favours the models of the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.families import ENOUGH
from shiftbed.analysis.means import GroupMean, group_mean, mean_of_shifts
from shiftbed.display import schema as columns_of
from shiftbed.errors import InputError, unknown
from shiftbed.results.lines import adhoc
from shiftbed.testbed import Testbed, choose
from shiftbed.testbed.judging import errors_of
from shiftbed.testbed.select import Choice

AVERAGE = "Average"
_ROW = columns_of(
    "ood group: str; fitted: bool; evaluation id: str; mean sd low high mae r2: float; "
    "n families: int"
)


def comparable(
    testbed: Testbed, ids: Sequence[str], threshold: float | None = None
) -> tuple[Testbed, list[str]]:
    """The models with every ID accuracy, the first at least the threshold; what was left out.

    shi2023, Section 5.1, discards models below 5 % on ImageNet.
    """
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise InputError(f"threshold must be a fraction in [0, 1], got {threshold:g}")
    values = np.stack([testbed.accuracy(one) for one in ids])
    there = np.isfinite(values).all(axis=0)
    with np.errstate(invalid="ignore"):
        low = there & (values[0] < (threshold or 0.0))
    notes = []
    if (~there).any():
        notes.append(
            f"{int((~there).sum())} models lack an accuracy on an ID setting and are left out: "
            "all fits are of the same models."
        )
    if low.any():
        notes.append(f"{int(low.sum())} models below {threshold:g} on {ids[0]} are left out.")
    return testbed.where(there & ~low), notes


def id_groups(
    testbed: Testbed,
    ids: Sequence[str],
    ood: Sequence[str],
    *,
    by: str = "training_data",
    level: float = 0.95,
    **options: Any,
) -> pl.DataFrame:
    """Mean ρ ± standard deviation (n − 1) and MAE of groups of models, by each ID set and by all.

    shi2023, Tables 1b, 3 and 4. Models of a group that were fitted and that were not have a row
    each; R² is that of the fit, and is given where the models are part of it. "Average" rows
    average ρ, and |ρ| for the MAE, over the OOD settings per model first. The interval is that of
    the mean, as in ``group_table``.
    """
    if by not in testbed.models.columns:
        raise unknown("column of models", by, testbed.models.columns)
    group = np.array(testbed.models[by].cast(pl.String).to_list(), dtype=object)
    names, rows = np.array(testbed.model_names, dtype=object), []

    def kin(inside: NDArray[np.int64]) -> list[str | None] | None:
        return testbed.related(inside, options.get("families", "known"))[0]

    for source in sources(ids):
        said = ("multi-ID" if len(source) > 1 else "single-ID", " + ".join(source))
        rhos, fits = [], []
        shared: dict[tuple[str | None, bool], list[float]] = {}
        for target in ood:
            line = testbed.fit(adhoc(source, target), bootstrap=0, **options)
            rho, fitted = testbed.judge(line).effective, np.isin(names, line.models)
            rhos.append(rho)
            fits.append(fitted)
            for key, inside in _split(group, fitted, np.isfinite(rho)).items():
                found = group_mean(
                    rho[inside], errors_of(testbed, line, inside), kin(inside), level
                )
                shared.setdefault(key, []).append(found.shared)
                mae = float(np.abs(rho[inside]).mean())
                rows.append(_row(target, key, said, found, mae, line.r2))
        if len(ood) == 1:
            continue
        mean, size = np.mean(rhos, axis=0), np.mean(np.abs(rhos), axis=0)
        whole = np.isfinite(mean) & (np.all(fits, axis=0) | ~np.any(fits, axis=0))
        for key, inside in _split(group, fits[0], whole).items():
            found = mean_of_shifts(mean[inside], shared[key], kin(inside), level)
            mae = float(size[inside].mean())
            rows.append(_row(AVERAGE, key, said, found, mae, float("nan")))
    table = pl.DataFrame(rows, schema=_ROW, orient="row").fill_nan(None)
    places = [_place("ood", [*ood, AVERAGE]), _place("group", dict.fromkeys(group))]
    return table.sort(*places, ~pl.col("fitted"), maintain_order=True)


def _place(column: str, values: Iterable[str | None]) -> pl.Expr:
    """Where a value comes in an order."""
    order = {value: at for at, value in enumerate(values)}
    return pl.col(column).replace_strict(order, return_dtype=pl.Int64)


def sources(ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Each ID setting alone, then all together.

    >>> sources(["a", "b"])
    [('a',), ('b',), ('a', 'b')]
    """
    if len(ids) < 2:
        raise InputError("comparing single-ID with multi-ID needs at least two ID settings")
    return [*((one,) for one in ids), tuple(ids)]


def _split(
    group: NDArray[np.object_], fitted: NDArray[np.bool_], there: NDArray[np.bool_]
) -> dict[tuple[str | None, bool], NDArray[np.int64]]:
    """Rows of each group, the fitted ones apart from the others."""
    found: dict[tuple[str | None, bool], list[int]] = {}
    for row in np.flatnonzero(there).tolist():
        found.setdefault((group[row], bool(fitted[row])), []).append(row)
    return {key: np.array(own) for key, own in found.items()}


def _row(
    target: str,
    key: tuple[str | None, bool],
    said: tuple[str, str],
    one: GroupMean,
    mae: float,
    r2: float,
) -> tuple[Any, ...]:
    own = r2 if key[1] else float("nan")
    ends = (one.mean, one.std, one.low, one.high, mae, own)
    return (target, *key, *said, *ends, one.n, one.families)


def single_and_multi(
    testbed: Testbed, ids: Sequence[str], ood: Sequence[str], **options: Any
) -> pl.DataFrame:
    """R² and MAE of each single-ID line and of the multi-ID plane, per OOD setting.

    shi2023, Tables 1a and 2. R² in scaled space, MAE a fraction.
    """
    found = []
    for target in ood:
        for source in sources(ids):
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
    inside = np.flatnonzero(rows)
    names = testbed.related(inside)[0] or [None] * len(inside)
    of = np.array([f"\0{i}" if f is None else f for i, f in enumerate(names)], dtype=object)
    units = [np.isin(np.arange(len(rows)), inside[of == name]) for name in dict.fromkeys(of)]
    single = [np.arange(len(rows)) == i for i in inside]
    return units if len(units) >= ENOUGH else single


def _jackknife(value: float, without: Sequence[float], level: float) -> tuple[float, float]:
    """tanh(artanh τ ± t·√((F−1)/F Σ (artanh τ₍₎ − artanh τ)²)), F − 1 degrees of freedom.

    None (NaN) where τ, with or without some unit, is ±1 or undefined: artanh has no value there.
    """
    count = len(without)
    if not (np.abs([value, *without]) < 1.0).all():
        return float("nan"), float("nan")
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
