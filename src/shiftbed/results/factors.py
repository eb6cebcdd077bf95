"""What do many metrics measure? ``factors``: factor analysis over networks, with intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.factors import Factors, factor_analysis
from shiftbed.analysis.intervals import check_draws
from shiftbed.analysis.pairs import COLUMNS, network_table, settings_table
from shiftbed.display import Table, counted, number, plain, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs import PairStudy, Source, name_of, open_pairs
from shiftbed.results.pairs.networks import said

if TYPE_CHECKING:
    from shiftbed.figures.charts import Panels

Floats = NDArray[np.float64]
_ENOUGH = 10
"""With fewer units to resample the intervals are flagged."""


def factors(
    source: Source,
    *,
    metric: Sequence[str] | None = None,
    columns: str = "metrics",
    factors: int | None = None,
    choose_by: str | None = None,
    extraction: str = "minimum-residual",
    rotation: str = "equamax",
    kaiser: bool = True,
    resample: str | None = None,
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    also: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    checkpoint: str = "last",
    attacks: str | None = None,
    bootstrap: int = 500,
    seed: int = 0,
    level: float = 0.95,
) -> "FactorStudy":
    """What do many metrics measure? Factor analysis over networks, with intervals.

    ``metric`` keeps only these, such as ``ood:error``; ``columns`` is ``metrics`` (OOD metrics
    averaged over a network's OOD sets) or ``settings`` (each metric on each test set is a column).
    How factors are chosen, extracted, rotated and resampled is as in ``factor_analysis``; ``kind``,
    ``task``, ``also``, ``only``, ``checkpoint`` and ``attacks`` as in ``open_pairs``; attacks of
    several sizes are columns apart, as in Appendix B, unless metrics are named.
    """
    check_draws(bootstrap, level)
    if factors is not None and choose_by is not None:
        raise InputError("--choose-by says how many factors, and --factors does already")
    if columns not in COLUMNS:
        raise unknown("kind of columns", columns, COLUMNS)
    pairs = open_pairs(
        source,
        kind=kind,
        task=task,
        also=also,
        only=only,
        checkpoint=checkpoint,
        attacks=attacks or ("both" if metric else "apart"),
    )
    networks = (network_table if columns == "metrics" else settings_table)(pairs, metric or None)
    found = factor_analysis(
        networks,
        factors=factors,
        choose_by=choose_by or "eigenvalue",
        extraction=extraction,
        rotation=rotation,
        kaiser=kaiser,
        bootstrap=bootstrap,
        resample=resample,
        level=level,
        seed=seed,
    )
    repeated = len(set(networks.models)) < len(networks.models)
    return FactorStudy(
        frame=loading_table(found),
        notes=(*_remarks(found, repeated=repeated), *said(pairs)),
        source=name_of(source),
        pairs=pairs,
        found=found,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorStudy(PairStudy):
    """Factors of a study's metrics; ``frame`` has a row per metric and factor."""

    json_keys = (
        "source found.n metrics=found.columns factors=found.k found.chosen_by found.by_eigenvalue "
        "found.by_parallel found.extraction found.rotation found.kaiser found.level loadings=frame "
        "found.rmsr found.converged found.left_out"
    )
    source: str
    found: Factors

    def to_dict(self) -> dict[str, Any]:
        found = self.found
        ends = {"value": found.variance, "low": found.variance_low, "high": found.variance_high}
        return super().to_dict() | {
            "eigenvalues": records(eigenvalue_table(found)),
            "variance": plain(ends),
            "dropped": dict(found.dropped),
            "resampled": {"unit": found.resampled, "units": found.units, "draws": found.draws},
        }

    def answer(self) -> Iterable[str]:
        found = self.found
        shares = ", ".join(f"{100 * share:.0f} %" for share in found.variance)
        yield (
            f"{counted(found.k, 'factor')} of {len(found.columns)} metrics over "
            f"{counted(found.n, 'network')}, with {shares} of their variance."
        )

    def tables(self) -> Iterable[Table]:
        found = self.found
        yield Table.of(
            f"{self.source}: eigenvalues of the correlations of {len(found.columns)} metrics",
            eigenvalue_table(found),
            {
                "rank": "rank",
                "eigenvalue": ("eigenvalue", lambda value: number(value, 3)),
                "interval": lambda row: _span(row["low"], row["high"], 3),
                "by chance": ("chance", lambda value: number(value, 3)),
                "factor": ("kept", lambda kept: "kept" if kept else ""),
            },
        )
        rows = [
            (
                name,
                *_spans(found.loadings[i], found.low[i], found.high[i]),
                number(found.communality[i], 2),
                "Heywood" if found.heywood[i] else "",
            )
            for i, name in enumerate(found.columns)
        ]
        shares = _spans(found.variance, found.variance_low, found.variance_high)
        rows.append(("of all variance", *shares, number(float(found.variance.sum()), 2), ""))
        heads = [head for j in range(found.k) for head in (f"factor {j + 1}", "interval")]
        yield Table(
            title=f"Loadings of {counted(found.k, 'factor')}",
            columns=("metric", *heads, "communality", ""),
            rows=tuple(rows),
            notes=self.notes,
        )
        yield self.networks_table()

    def chart(self) -> "Panels":
        """The scree plot with what chance gives, beside the loadings (Figures S5 and 1)."""
        from shiftbed.results.charts.factors import factor_panels

        title = f"{self.source}: {counted(self.found.k, 'factor')}"
        return self.noted(factor_panels(self.found, title=title))


def _spans(values: Floats, lows: Floats, highs: Floats) -> list[str]:
    """Each value with its interval."""
    ends = zip(values, lows, highs, strict=True)
    return [cell for value, low, high in ends for cell in (number(value, 2), _span(low, high, 2))]


def _span(low: float | None, high: float | None, digits: int) -> str:
    there = low is not None and high is not None and low <= high
    return f"{low:.{digits}f} … {high:.{digits}f}" if there else ""


def _remarks(found: Factors, *, repeated: bool) -> Iterable[str]:
    turned = "not rotated" if found.rotation == "none" else f"{found.rotation} rotation"
    yield (
        f"{counted(found.n, 'network')}, {len(found.columns)} metrics; "
        f"{found.by_eigenvalue} eigenvalues ≥ 1, {found.by_parallel} above chance (parallel "
        f"analysis, 95 %). {found.extraction}, {turned}; correlations are "
        f"reproduced to {found.rmsr:.3f} (root mean square)."
    )
    yield f"Intervals ({100 * found.level:g} %): {found.interval_note}."
    if found.left_out:
        yield f"{counted(found.left_out, 'network')} left out: a metric is missing."
    for name, reason in found.dropped:
        yield f"Dropped: {name}: {reason}."
    if repeated and found.resampled == "network":
        yield "Rows of one model are not independent: these intervals are too narrow."
    if found.resampled != "network" and found.units < _ENOUGH:
        yield f"Only {found.units} {found.resampled}s: these intervals may be too narrow."
    heywood = [c for c, flagged in zip(found.columns, found.heywood, strict=True) if flagged]
    if heywood:
        yield (
            f"Heywood case: {', '.join(heywood)}: the factors explain all of it and would more; "
            "there may be too many factors, or metrics that copy each other."
        )
    for text in found.warnings:
        yield f"{text}."


def loading_table(found: Factors) -> pl.DataFrame:
    """A row per metric and factor: loading with its interval, communality, Heywood cases."""
    p, k = found.loadings.shape
    of_metrics = ("communality", "communality_low", "communality_high", "uniqueness", "heywood")
    of_factors = ("variance", "variance_low", "variance_high")
    rows = {
        "metric": np.repeat(np.array(found.columns), k),
        "factor": np.tile(np.arange(1, k + 1), p),
        "loading": found.loadings.ravel(),
        "low": found.low.ravel(),
        "high": found.high.ravel(),
        **{name: np.repeat(getattr(found, name), k) for name in of_metrics},
        **{name: np.tile(getattr(found, name), p) for name in of_factors},
        "n": np.full(p * k, found.n),
    }
    return pl.DataFrame(rows, nan_to_null=True)


def eigenvalue_table(found: Factors) -> pl.DataFrame:
    """A row per eigenvalue of the correlations: its interval, and what chance would give."""
    return pl.DataFrame(
        {
            "rank": np.arange(1, len(found.columns) + 1),
            "eigenvalue": found.eigenvalues,
            "low": found.eigenvalues_low,
            "high": found.eigenvalues_high,
            "chance": found.chance,
            "share": found.eigenvalues / len(found.columns),
            "kept": np.arange(len(found.columns)) < found.k,
            "n": np.full(len(found.columns), found.n),
        },
        nan_to_null=True,
    )
