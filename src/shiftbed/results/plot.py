"""Every chart that a testbed or a store can give, by name: for the page and for ``plot``.

A maker takes a source and returns a finished chart, or raises ``InputError`` with the reason why
this source has none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shiftbed.errors import InputError, unknown
from shiftbed.figures.charts import Chart, Panels
from shiftbed.records import Shift
from shiftbed.results.correlation import NATURAL
from shiftbed.store import PredictionStore
from shiftbed.testbed import PUBLISHED, Testbed, open_testbed, testbed_from_store

if TYPE_CHECKING:
    import polars as pl

    from shiftbed.analysis.pairs import PairTable


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A testbed, and the store it comes from if there is one."""

    name: str
    testbed: Testbed
    store: PredictionStore | None = None
    policies: Mapping[str, str] = field(default_factory=dict)
    """Label policy of each setting, where it is known."""


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """A chart with its place in the page."""

    id: str
    """Its name in the address and on the command line."""
    title: str
    chart: Chart
    intro: str = ""


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A chart that a source cannot give, and why."""

    id: str
    title: str
    reason: str


def open_source(name: str) -> Source:
    """A published testbed by its name, a testbed file or a prediction store by its path."""
    if name not in PUBLISHED and ("://" in name or Path(name).is_dir()):
        store = PredictionStore.existing(name)
        policies = {s: store.test_set(s).label_policy for s in store.settings()}
        return Source(name=name, testbed=testbed_from_store(store), store=store, policies=policies)
    return Source(name=name, testbed=open_testbed(name))


def chart(source: Source, id: str, *, shift: str | None = None) -> Chart:
    """One chart by its name; ``shift`` for those that are about one."""
    if id not in CHARTS:
        raise unknown("chart", id, CHARTS)
    return CHARTS[id].make(source, shift)


def gallery(source: Source) -> tuple[list[View], list[Missing]]:
    """The charts of the page that are computed beforehand, and those that this source lacks."""
    views: list[View] = []
    missing: list[Missing] = []
    for id, one in CHARTS.items():
        if not one.in_page:
            continue
        try:
            made = one.make(source, None)
        except InputError as error:
            missing.append(Missing(id=id, title=one.title, reason=str(error)))
            continue
        views.append(View(id=id, title=one.title, chart=made, intro=one.intro))
    return views, missing


@dataclass(frozen=True, kw_only=True)
class _Maker:
    title: str
    make: Callable[[Source, str | None], Chart]
    intro: str = ""
    in_page: bool = True
    """Whether the page shows it as it is, and not as a view of its own."""


def _shift(source: Source, name: str | None) -> Shift:
    """The shift asked for, else the first natural one."""
    bed = source.testbed
    if name is not None:
        return bed.shift(name)
    single = [s for s in bed.shifts if len(s.source) == 1]
    natural = [s for s in single if s.kind in NATURAL]
    if not single:
        raise InputError(f"{source.name} has no shift with one ID setting")
    return (natural or single)[0]


def _severities(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.corruptions import severities

    return severities(source.testbed)


def _trajectories(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.robustness import trajectories

    return trajectories(source.testbed, _shift(source, shift))


def _reliability(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.robustness import reliability_diagram

    if source.store is None:
        raise InputError("reliability needs predictions per image with probabilities: a store")
    wanted = _shift(source, shift) if source.testbed.shifts else None
    settings = [wanted.source[0], wanted.target] if wanted else [source.testbed.settings[0]]
    return Panels(
        title="Reliability",
        panels=tuple(reliability_diagram(source.store, setting) for setting in settings),
    )


def _similarity(source: Source, shift: str | None) -> Chart:
    from shiftbed.analysis.similarity import similarity
    from shiftbed.results.charts.similarity import dominance_against_difference, dominance_map

    setting = _shift(source, shift).source[0]
    results = source.testbed.results.get(setting)
    if results is None or int(results.known.sum()) < 2:
        raise InputError(f"similarity needs predictions per image of two models on {setting!r}")
    rows = np.flatnonzero(results.known)
    names = [source.testbed.model_names[i] for i in rows]
    found = similarity(results.right[rows])
    panels = (dominance_map(names, found), dominance_against_difference(names, found))
    return Panels(title=f"Similarity of models on {setting}", panels=panels)


def _probes(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.robustness import probes

    return probes(source.testbed)


def _predictiveness(source: Source, shift: str | None) -> Chart:
    from shiftbed.results import predictiveness as tables
    from shiftbed.results.charts.predictiveness import matrix_heatmap

    whole = tables.matrix(tables.study(_pairs(source)))
    return matrix_heatmap(
        whole.metrics, whole.r, whole.low, whole.high, title="Averaged correlations of metrics"
    )


def _factors(source: Source, shift: str | None) -> Chart:
    from shiftbed.analysis.factors import factor_analysis
    from shiftbed.analysis.pairs import network_table
    from shiftbed.results.charts.factors import factor_panels

    found = factor_analysis(network_table(_pairs(source), None), bootstrap=200)
    return factor_panels(found, title=f"{found.k} factors of {len(found.columns)} metrics")


def patterns_of(source: Source) -> "pl.DataFrame":
    """The pattern of every shift, and whether its line is to be trusted."""
    from shiftbed.results.patterns import pattern_table

    bed, pairs = source.testbed, _pairs(source)
    settings = {name for pair in pairs for name in (pair.source, pair.target)}
    images = {s: bed.usual_size(s) for s in settings if s in bed.settings}
    return pattern_table(pairs, images=images, bootstrap=100)


def _patterns(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.factors import count_bars
    from shiftbed.results.patterns import pattern_counts

    return count_bars(pattern_counts(patterns_of(source), 0.95), title="Patterns by task")


def _multiples(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.factors import pattern_panels

    title = f"{source.name}: OOD over ID accuracy"
    return pattern_panels(_pairs(source), patterns_of(source), title=title)


def _pairs(source: Source) -> tuple["PairTable", ...]:
    from shiftbed.results.pairs import pairs_from_store, pairs_from_testbed

    if source.store is not None:
        return tuple(pairs_from_store(source.store))
    return tuple(pairs_from_testbed(source.testbed))


def _relative(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.robustness import relative

    return relative(source.testbed, _shift(source, shift))


def _synthetic(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.robustness import synthetic

    return synthetic(source.testbed, _shift(source, shift))


def _grid(source: Source, shift: str | None) -> Chart:
    from shiftbed.results.charts.robustness import grid

    return grid(source.testbed)


CHARTS: dict[str, _Maker] = {
    "relative": _Maker(title="ρ and τ", make=_relative, in_page=False),
    "synthetic": _Maker(title="Synthetic and natural shifts", make=_synthetic, in_page=False),
    "grid": _Maker(title="Models and settings", make=_grid, in_page=False),
    "multiples": _Maker(title="All shifts", make=_multiples, in_page=False),
    "trajectories": _Maker(title="Trajectories", make=_trajectories),
    "severities": _Maker(title="Severities", make=_severities),
    "similarity": _Maker(title="Similarity", make=_similarity),
    "predictiveness": _Maker(
        title="Predictiveness",
        make=_predictiveness,
        intro="How well each metric tells each other one over models, averaged over (ID, OOD) "
        "pairs with equal weight per task; bold where the 95 % interval leaves out 0.",
    ),
    "factors": _Maker(title="Factors", make=_factors),
    "patterns": _Maker(title="Patterns", make=_patterns),
    "reliability": _Maker(title="Reliability", make=_reliability),
    "probes": _Maker(title="Probes", make=_probes),
}
"""Every chart by its name."""
