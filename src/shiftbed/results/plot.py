"""Every chart that a testbed or a store can give, by name: for the page and for ``plot``.

A maker takes a source and options, and returns a finished chart or raises ``InputError`` with the
reason why this source has none. Each says which options it takes; others are refused, never
ignored. What several charts need, a source computes once.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.joint_counts import triplets
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.similarity import similarity
from shiftbed.errors import InputError, unknown
from shiftbed.figures import Chart, Panels
from shiftbed.records import NATURAL, Shift
from shiftbed.results.charts import renamed
from shiftbed.results.charts.corruptions import severities
from shiftbed.results.charts.robustness import (
    grid,
    probes,
    relative,
    reliability_diagram,
    synthetic,
)
from shiftbed.results.charts.scatter import on_linear_axes, plane, scatter
from shiftbed.results.charts.similarity import (
    dominance_against_difference,
    dominance_map,
    triplet_chart,
)
from shiftbed.results.effects import TABLES, effects
from shiftbed.results.factors import factors
from shiftbed.results.joint_answers import matched, open_answers
from shiftbed.results.lines import find_shift, usual_shift
from shiftbed.results.pairs import pairs_from_store, pairs_from_testbed
from shiftbed.results.patterns import PatternStudy, patterns
from shiftbed.results.predictiveness import predictiveness
from shiftbed.results.trajectories import trajectories
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, choose, open_testbed, recognise, testbed_from_store
from shiftbed.testbed.select import Choice

DEFAULTS: dict[str, Any] = {
    "scale": "logit",
    "fit_on": None,
    "threshold": None,
    "full_id": False,
    "knee": "published",
    "on_boundary": "raise",
    "by": None,
    "colour": None,
    "highlight": (),
    "label": 6,
    "level": 0.995,
    "only": None,
    "models": (),
    "xlim": None,
    "ylim": None,
    "run": (),
    "against": None,
    "all": False,
    "draw": None,
    "over": None,
    "column": None,
    "of": (),
}
"""Options of charts; one that has its default counts as not given."""
_FIT = ("shift", "scale", "fit_on", "threshold", "full_id", "knee", "on_boundary")
_DRAWN = ("only", "models")
_PLANE = ("shift", "scale", "fit_on", "threshold", "on_boundary", "colour", "highlight", "label")


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A testbed, the store it comes from if there is one, and what was computed of them."""

    name: str
    testbed: Testbed
    store: PredictionStore | None = None
    policies: Mapping[str, str] = field(default_factory=dict)
    """Label policy of each setting, where it is known."""
    _lines: dict[Shift, Baseline] = field(default_factory=dict)

    def line(self, shift: Shift) -> Baseline:
        """The baseline of a shift through its fit set, without draws; fitted once."""
        if shift not in self._lines:
            self._lines[shift] = self.testbed.fit(shift, bootstrap=0)
        return self._lines[shift]

    @cached_property
    def pairs(self) -> tuple[PairTable, ...]:
        """Metrics of each (ID, OOD) pair."""
        if self.store is not None:
            return tuple(pairs_from_store(self.store))
        return tuple(pairs_from_testbed(self.testbed))

    @cached_property
    def patterns(self) -> PatternStudy:
        """The pattern of every pair, and whether its line is to be trusted."""
        bed = self.testbed
        settings = {name for pair in self.pairs for name in (pair.source, pair.target)}
        images = {s: n for s in settings if s in bed.settings and (n := bed.usual_size(s))}
        return patterns(self.pairs, images=images, bootstrap=100)


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """A chart with its place in the page."""

    id: str
    """Its name in the address and on the command line."""
    title: str
    chart: Chart
    intro: str = ""


@dataclass(frozen=True, kw_only=True)
class NotDrawn:
    """A chart that a source cannot give, and why."""

    id: str
    title: str
    reason: str


def open_source(source: str | Path | Testbed | PredictionStore | Source) -> Source:
    """A published testbed by its name, a testbed file or a store by its path, or one of these."""
    if isinstance(source, Source):
        return source
    found = recognise(source)
    name = source.name if isinstance(source, Testbed) else str(source)
    if not isinstance(found, PredictionStore):
        return Source(name=name, testbed=open_testbed(found))
    policies = {s: found.test_set(s).label_policy for s in found.settings()}
    return Source(name=name, testbed=testbed_from_store(found), store=found, policies=policies)


def chart(
    source: str | Path | Testbed | PredictionStore | Source,
    name: str = "scatter",
    shift: str | Shift | None = None,
    *,
    id: Sequence[str] | None = None,
    ood: str | None = None,
    **options: Any,
) -> Chart:
    """One chart by its name, of a shift or of an ID and an OOD setting where it is about one.

    ``options`` are among ``DEFAULTS``; one that this chart cannot honour is refused.

    >>> chart("imagenet-testbed-2020", "relative", "imagenet-v2", by="kind")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: the relative chart takes no option 'by'; it takes shift, scale, \
fit_on, threshold, full_id, knee, on_boundary, only, highlight
    """
    if name not in CHARTS:
        raise unknown("chart", name, CHARTS)
    for option in options:
        if option not in DEFAULTS:
            raise unknown("option", option, DEFAULTS)
    given = {key: value for key, value in options.items() if _differs(value, DEFAULTS[key])}
    asked = {"shift": shift, "id": id, "ood": ood}
    takes = CHARTS[name].takes
    _refuse(name, [*(key for key, value in asked.items() if value), *given], takes)
    opened = open_source(source)
    wanted = None
    if any(asked.values()) or name == "scatter":
        wanted = find_shift(opened.testbed, shift, id, ood)
    return renamed(CHARTS[name].make(opened, wanted, **given), opened.testbed.called)


def _differs(value: Any, default: Any) -> bool:
    if default is None or default == ():
        return value is not None and not (isinstance(value, Sized) and len(value) == 0)
    return bool(value != default)


def _refuse(name: str, given: Sequence[str], takes: Sequence[str]) -> None:
    allowed = {*takes, *(("id", "ood") if "shift" in takes else ())}
    for option in given:
        if option not in allowed:
            more = f"it takes {', '.join(takes)}" if takes else "it takes none"
            raise InputError(f"the {name} chart takes no option {option!r}; {more}")


def gallery(source: Source) -> tuple[list[View], list[NotDrawn]]:
    """The charts of the page that are computed beforehand, and those that this source lacks."""
    views: list[View] = []
    missing: list[NotDrawn] = []
    for id, one in CHARTS.items():
        if not one.in_page:
            continue
        try:
            made = one.make(source, None)
        except InputError as error:
            missing.append(NotDrawn(id=id, title=one.title, reason=str(error)))
            continue
        made = renamed(made, source.testbed.called)
        views.append(View(id=id, title=one.title, chart=made, intro=one.intro))
    return views, missing


@dataclass(frozen=True, kw_only=True)
class _Maker:
    title: str
    make: Callable[..., Chart]
    """Of a source, a shift or None, and the options given."""
    takes: tuple[str, ...] = ()
    intro: str = ""
    in_page: bool = True
    """Whether the page shows it as it is, and not as a view of its own."""


def _usual(source: Source, shift: Shift | None) -> Shift:
    """The shift asked for, else the first natural one."""
    return usual_shift(source.testbed) if shift is None else shift


def _fitting(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as ``Testbed.fit`` takes them."""
    names = {"fit_on": "models", "full_id": "full_source"}
    return {names.get(key, key): value for key, value in options.items()}


def _line(source: Source, shift: Shift | None, options: Mapping[str, Any]) -> Baseline:
    wanted = _usual(source, shift)
    if options:
        return source.testbed.fit(wanted, bootstrap=0, **_fitting(options))
    return source.line(wanted)


def _scatter(source: Source, shift: Shift | None, **options: Any) -> Chart:
    wanted, bed = _usual(source, shift), source.testbed
    if "highlight" in options:
        stars = [bed.model_names[bed.model_index(name)] for name in options["highlight"]]
        options["highlight"] = stars
    only, named = options.pop("only", "all"), options.pop("models", None)
    drawn = choose(bed.models, only)
    if named is not None:
        rows = [bed.model_index(name) for name in named]
        drawn = drawn & np.isin(np.arange(len(drawn)), rows)
    given: dict[str, Any] = {} if drawn.all() else {"drawn": drawn}
    for name in ("xlim", "ylim"):
        low, high = options.get(name, (0.1, 0.9))
        if not 0.0 < low < high < 1.0:
            raise InputError(f"{name} must be two accuracies in (0, 1), got {low:g} and {high:g}")
    draw = options.pop("draw", None)
    if len(wanted.source) == 1:
        if draw in ("space", "projections"):
            raise InputError(f"{draw} is of a plane: give two ID settings with --id")
        draw = _drawing("scatter", draw, ("scaled", "linear"))
        whole = scatter(bed, wanted, **_fitting(options) | given)
        return whole if draw == "scaled" else on_linear_axes(whole)
    draw = _drawing("plane", draw, ("space", "projections"))
    if draw == "projections":
        sides = [replace(wanted, source=(one,), full_source=None) for one in wanted.source]
        made = [scatter(bed, one, **_fitting(options) | given) for one in sides]
        panels = tuple(replace(one, title=bed.title_of(one.x_axis.setting)) for one in made)
        title = f"{bed.title_of(wanted.target)} over each ID set alone"
        return Panels(title=title, panels=panels, columns=2, citation=bed.citation)
    _refuse("plane", list(options), _PLANE)
    return plane(bed, wanted, **_fitting(options) | given)


def _drawing(chart: str, draw: str | None, known: Sequence[str]) -> str:
    """The drawing asked for, the first by default."""
    if draw is not None and draw not in known:
        raise unknown(f"drawing of the {chart} chart", draw, known)
    return draw or known[0]


def _relative(
    source: Source,
    shift: Shift | None,
    only: Choice = "all",
    highlight: Sequence[str] = (),
    **options: Any,
) -> Chart:
    line = _line(source, shift, options)
    return relative(source.testbed, line, only=only, highlight=highlight)


def _trajectories(
    source: Source,
    shift: Shift | None,
    highlight: Sequence[str] = (),
    colour: str | None = None,
    draw: str | None = None,
    over: str | None = None,
    **options: Any,
) -> Chart:
    found = trajectories(source.testbed, shift, over=over, **options)
    return found.chart(draw, highlight=highlight, colour=colour)


def _predictiveness(
    source: Source, shift: Shift | None, draw: str | None = None, by: str | None = None
) -> Chart:
    known = ("matrix", "scores", "transfer")
    show = _drawing("predictiveness", draw or ("scores" if by else None), known)
    made = predictiveness(source.pairs, show=show, by=by).chart()
    titles = {"matrix": "Averaged correlations of metrics", "scores": "What predicts OOD error"}
    return replace(made, title=titles.get(show, "Metrics from one data set to another"))


def _patterns(source: Source, shift: Shift | None, draw: str | None = None) -> Chart:
    show = _drawing("patterns", draw, ("counts", "scatters"))
    title = "Patterns by task" if show == "counts" else f"{source.name}: OOD over ID accuracy"
    return replace(source.patterns.chart(show), title=title)


def _effects(source: Source, shift: Shift | None, draw: str | None = None, **sides: Any) -> Chart:
    show = _drawing("effects", draw, sorted(TABLES))
    if "against" in sides:
        sides["against"] = [sides["against"]]
    return effects(source.pairs, show=show, **sides).chart()


def _similarity(source: Source, shift: Shift | None, draw: str | None = None) -> Chart:
    wanted = _usual(source, shift)
    setting = wanted.source[0]
    if _drawing("similarity", draw, ("dominance", "triplets")) == "triplets":
        where = source.store or source.testbed
        answers = [open_answers(where, s, classes=False) for s in (setting, wanted.target)]
        near = triplets(*(one.judged() for one in matched(*answers)))
        return triplet_chart(near, *map(source.testbed.title_of, (setting, wanted.target)))
    results = source.testbed.results.get(setting)
    if results is None or int(results.known.sum()) < 2:
        raise InputError(f"similarity needs predictions per image of two models on {setting!r}")
    rows = np.flatnonzero(results.known)
    names = [source.testbed.model_names[i] for i in rows]
    found = similarity(results.bits[rows])
    panels = (dominance_map(names, found), dominance_against_difference(names, found))
    title = f"Similarity of models on {source.testbed.title_of(setting)}"
    return Panels(title=title, panels=panels)


def _reliability(source: Source, shift: Shift | None) -> Chart:
    if source.store is None:
        raise InputError("reliability needs predictions per image with probabilities: a store")
    wanted = _usual(source, shift) if source.testbed.shifts else None
    settings = [wanted.source[0], wanted.target] if wanted else [source.testbed.settings[0]]
    bed = source.testbed
    names = dict(zip(bed.models["model"].to_list(), bed.model_names, strict=True))
    panels = tuple(
        reliability_diagram(source.store, setting, bed.title_of(setting), names)
        for setting in settings
    )
    return Panels(title="Reliability", panels=panels)


def _multiples(source: Source) -> Chart:
    """The scatter of every shift with its line, small; pairs by their pattern where none is."""
    bed, panels = source.testbed, []
    single = [s for s in bed.shifts if len(s.source) == 1]
    for shift in [s for s in single if s.kind in NATURAL] or single:
        try:
            made, r2 = scatter(bed, shift, label=0), source.line(shift).r2
        except InputError:
            continue
        said = f"R²\N{NO-BREAK SPACE}{r2:.{3 if r2 > 0.99 else 2}f}"
        panels.append(replace(made, title=f"{bed.title_of(shift.target)}, {said}"))
    title = f"{source.name}: OOD over ID accuracy"
    if not panels:
        return replace(source.patterns.chart(), title=title)
    return Panels(
        title=title,
        panels=tuple(panels),
        columns=min(4, len(panels)),
        reading="Logit axes; the line goes through the baseline models (filled); dashed: y = x.",
        citation=bed.citation,
    )


CHARTS: dict[str, _Maker] = {
    "scatter": _Maker(
        title="Scatter",
        make=_scatter,
        takes=(
            *_FIT,
            "by",
            "colour",
            "highlight",
            "label",
            "level",
            *_DRAWN,
            "xlim",
            "ylim",
            "draw",
        ),
        in_page=False,
    ),
    "relative": _Maker(
        title="ρ and τ", make=_relative, takes=(*_FIT, "only", "highlight"), in_page=False
    ),
    "synthetic": _Maker(
        title="Synthetic and natural shifts",
        make=lambda source, shift, **more: synthetic(source.testbed, _usual(source, shift), **more),
        takes=("shift", "against", "only", "highlight"),
        in_page=False,
    ),
    "grid": _Maker(
        title="Models and settings",
        make=lambda source, _, **more: grid(source.testbed, **more),
        takes=("only", "all"),
        in_page=False,
    ),
    "multiples": _Maker(
        title="All shifts",
        make=lambda source, _: _multiples(source),
        in_page=False,
    ),
    "trajectories": _Maker(
        title="Trajectories",
        make=_trajectories,
        takes=(*_FIT, "by", "run", "only", "colour", "highlight", "level", "draw", "over"),
    ),
    "severities": _Maker(
        title="Severities",
        make=lambda source, _, fit_on=None: severities(source.testbed, models=fit_on),
        takes=("fit_on",),
    ),
    "similarity": _Maker(title="Similarity", make=_similarity, takes=("shift", "draw")),
    "predictiveness": _Maker(
        title="Predictiveness",
        make=_predictiveness,
        takes=("draw", "by"),
        intro="How well each metric predicts each other one over models, averaged over (ID, OOD) "
        "pairs with equal weight per task; bold where the 95 % interval leaves out 0.",
    ),
    "factors": _Maker(
        title="Factors",
        make=lambda source, _: replace(
            factors(source.pairs, bootstrap=200).chart(), title="Factors of metrics"
        ),
    ),
    "patterns": _Maker(title="Patterns", make=_patterns, takes=("draw",)),
    "effects": _Maker(
        title="Effects of recipes",
        make=_effects,
        takes=("draw", "column", "of", "against"),
        in_page=False,
    ),
    "reliability": _Maker(title="Reliability", make=_reliability, takes=("shift",)),
    "probes": _Maker(title="Probes", make=lambda source, _: probes(source.testbed)),
}
"""Every chart by its name."""
