"""The baseline of a shift: a line through one ID setting, a plane through several (``fit``)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline, Estimator, Line, OnBoundary
from shiftbed.analysis.id_sets import IdSets, examine, partial_residuals
from shiftbed.analysis.intervals import check_draws
from shiftbed.display import SAID, Row, Table, counted, number, percent, plain
from shiftbed.errors import InputError, unknown
from shiftbed.records import NATURAL, Shift
from shiftbed.results.charts import Charted
from shiftbed.scales import Scale
from shiftbed.testbed import Source, Testbed, open_testbed
from shiftbed.testbed.families import FamilyChoice, runs
from shiftbed.testbed.select import Choice

if TYPE_CHECKING:
    from shiftbed.figures import Plane, Scatter

TESTBED = "imagenet-testbed-2020"


def find_shift(
    testbed: Testbed, shift: str | Shift | None, id: Sequence[str] | None, ood: str | None
) -> Shift:
    """The shift of that name, or the one from the ID settings ``id`` to the OOD setting ``ood``.

    >>> find_shift(open_testbed("imagenet-testbed-2020"), None, ["val"], "greyscale").source
    ('val',)
    """
    if shift is not None:
        if id or ood:
            raise InputError("give either a shift, or ID settings (id) and an OOD setting (ood)")
        return testbed.shift(shift)
    if not id or not ood:
        raise InputError("give a shift, or at least one ID setting (id) and an OOD setting (ood)")
    return testbed.shift(adhoc([id] if isinstance(id, str) else id, ood))


_FITTING = frozenset(signature(Testbed.fit).parameters) - {"self", "shift", "models"}


def fitting(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function was given of how lines are fitted, as ``Testbed.fit`` takes it."""
    return {"models": given["fit_on"]} | {k: v for k, v in given.items() if k in _FITTING}


def usual_shift(testbed: Testbed) -> Shift:
    """The first natural shift with one ID setting, else the first with one."""
    single = [s for s in testbed.shifts if len(s.source) == 1]
    if not single:
        raise InputError(f"{testbed.name} has no shift with one ID setting")
    return next((s for s in single if s.kind in NATURAL), single[0])


def adhoc(source: Sequence[str], target: str) -> Shift:
    """A shift that the testbed does not list, named after its OOD setting."""
    return Shift(name=target, kind="natural-dataset", source=tuple(source), target=target)


def interval_notes(frame: pl.DataFrame) -> list[str]:
    """How far the measurement intervals of these rows (low, high, interval) can be relied on."""
    known = frame["low"].is_not_null()
    notes = []
    kinds = set(frame["interval"].drop_nulls())
    if "modelled" in kinds:
        notes.append(
            "Intervals are modelled where only accuracies are known: how far models err on the "
            "same images is taken from models that are alike."
        )
    if "independent" in kinds:
        notes.append(
            "Intervals are independent for models unlike the fitted ones or on images of their "
            "own: images that models share are not counted."
        )
    if not known.all():
        notes.append("No interval where the number of test images is unknown.")
    return notes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Drawn(Charted):
    """A result about models and the lines of shifts, which it can draw."""

    testbed: Testbed
    shifts: tuple[Shift, ...]
    options: Mapping[str, Any]
    """How the lines were fitted, as ``Testbed.fit`` takes it."""
    level: float
    marked: tuple[str, ...] = ()
    """Models that charts mark and name."""
    by: str | None = None
    """The column of models that has one line per value."""

    def chart(self, shift: str | None = None) -> "Scatter | Plane":
        """All models and the line (or plane) of one shift, by default the first."""
        from shiftbed.results.charts.scatter import plane, scatter

        found = {one.name: one for one in self.shifts}
        if shift is not None and shift not in found:
            raise unknown("shift", shift, found)
        wanted = found[shift] if shift is not None else self.shifts[0]
        given = {"highlight": self.marked, "band_level": self.level, **self.options}
        if len(wanted.source) == 1:
            return scatter(self.testbed, wanted, by=self.by, **given)
        if self.by is not None:
            raise InputError("planes by group have no chart; fit one group, chosen by fit_on")
        return plane(self.testbed, wanted, **given)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fitted(Drawn):
    """The baseline of a shift, or one per group of models.

    ``frame`` has a row per line (or piece of one) and coefficient: group, from, to, coefficient
    (an ID setting or ``intercept``), estimate, low, high, n, r2, mae.
    """

    lines: Mapping[str, Baseline]
    """By group; the only key is empty where models are not grouped."""
    id_sets: IdSets | None = None
    """Which of several ID settings to control for, where that was asked."""

    @property
    def baseline(self) -> Baseline:
        """The (first) line or plane."""
        return next(iter(self.lines.values()))

    def answer(self) -> Iterable[str]:
        if self.id_sets is not None:
            chosen, best = self.id_sets.chosen, self.id_sets.best
            yield (
                f"Enough to predict {self.baseline.ood_setting}: {' + '.join(chosen.id_settings)} "
                f"(left-out R² {number(chosen.loo_r2)}; of the best, "
                f"{' + '.join(best.id_settings)}, {number(best.loo_r2)})."
            )
        for group, line in list(self.lines.items())[:SAID]:
            why = "; ".join(self.testbed.trust(line).reasons)
            found = f"R² {number(line.r2, 3)} through {counted(line.n, 'model')}"
            verdict = f"not trusted: {why} ({found})" if why else f"trusted: {found}"
            called = self.testbed.line
            called = called if len(line.id_settings) == 1 else called.replace("line", "plane")
            yield f"The {called} of {group or line.shift} is {verdict}."

    def tables(self) -> Iterable[Table]:
        if self.id_sets is not None:
            return _id_set_tables(self.id_sets, self.level)
        rows = []
        for group, line in self.lines.items():
            for i, piece in enumerate(line.lines):
                ends = zip(piece.coefficients, _half(piece, self.level), strict=True)
                intercept, *weights = (f"{value:.5f} ± {half:.5f}" for value, half in ends)
                rows.append(
                    {
                        "fit": _name(group, line, i),
                        "n": piece.n,
                        "weight": "  ".join(weights),
                        "intercept": intercept,
                        "R²": number(line.r2),
                        "MAE (points)": percent(line.mae),
                    }
                )
        title = f"{self.testbed.name}: {self.testbed.line} of {self.baseline.shift}"
        return [_table(title, rows, self.notes)]

    def to_dict(self) -> dict[str, Any]:
        found = {group: _fit_dict(line, self.level) for group, line in self.lines.items()}
        if self.id_sets is not None:
            return {"fit": found[""], **_id_set_dict(self.id_sets, self.level)}
        return found[""] if self.by is None else {"by": self.by, "groups": found}


def fit(
    testbed: Source = TESTBED,
    shift: str | Shift | None = None,
    *,
    id: Sequence[str] | None = None,
    ood: str | None = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    full_id: bool = False,
    knee: float | str | None = "published",
    weighted: bool = False,
    families: FamilyChoice = "known",
    estimator: Estimator = "least-squares",
    on_boundary: OnBoundary = "raise",
    by: str | None = None,
    choose_ids: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Fitted:
    """The baseline of a shift: a line through one ID setting, a plane through several.

    ``by`` fits one line per value of that column of models; ``choose_ids`` asks which of several
    ID settings to control for (see ``analysis.id_sets``). The other options are those of
    ``Testbed.fit``: ``fit_on`` are its models, ``full_id`` its full_source.

    >>> found = fit("imagenet-testbed-2020", "imagenet-v2", bootstrap=0)
    >>> found.baseline.n, round(found.baseline.weights[0], 4)
    (78, 0.9217)
    """
    options = fitting(locals())
    check_draws(bootstrap, level)
    bed = open_testbed(testbed)
    wanted = find_shift(bed, shift, id, ood)
    wanted = wanted.on_full_source() if full_id else wanted
    if choose_ids and (by is not None or len(wanted.source) < 2):
        raise InputError("choose_ids needs two or more ID settings, and no grouping (by)")
    lines = _by_group(bed, wanted, by, options) if by else {"": bed.fit(wanted, **options)}
    first = next(iter(lines.values()))
    left_out = sorted({model for line in lines.values() for model in line.left_out})
    notes = [
        f"{first.scale.name}(OOD) = weight · {first.scale.name}(ID) + intercept, "
        f"through {' + '.join(map(bed.title_of, first.id_settings))} → "
        f"{bed.title_of(first.ood_setting)}."
    ]
    if first.families is not None:
        of_runs = " (checkpoints of a run are one)" if runs(bed.models).count() else ""
        related = "; intervals are by family" if first.lines[0].families is not None else ""
        notes.append(f"{first.n} models of {first.families} families{of_runs}{related}.")
    notes += [f"{flag[:1].upper()}{flag[1:]}." for line in lines.values() for flag in line.flags]
    if left_out:
        notes.append(f"Not fitted (missing, on the knee, or 0/1): {', '.join(left_out)}.")
    return Fitted(
        frame=_coefficients(lines, level),
        notes=tuple(notes),
        citation=bed.citation,
        testbed=bed,
        shifts=(wanted,),
        options=options,
        lines=lines,
        by=by,
        level=level,
        id_sets=examine(first) if choose_ids else None,
    )


def _by_group(bed: Testbed, shift: Shift, by: str, options: dict[str, Any]) -> dict[str, Baseline]:
    if by not in bed.models.columns:
        raise unknown("column of models", by, bed.models.columns)
    inside = bed.fit_set(shift, options["models"])
    values = np.array(bed.models[by].cast(pl.String).to_list(), dtype=object)
    groups = sorted({value for value in values[inside] if value is not None})
    if not groups:
        raise InputError(f"no baseline model has a value in column {by!r}")
    lines = {}
    for group in groups:
        try:
            lines[group] = bed.fit(shift, **options | {"models": inside & (values == group)})
        except InputError as error:
            raise InputError(f"{by} {group!r}: {error}") from None
    return lines


def _half(piece: Line, level: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Half widths t·√diag(V) of the intervals of the coefficients, the intercept first."""
    quantile = float(stdtrit(piece.covariance_dof, 0.5 + level / 2))
    return np.asarray(quantile * np.sqrt(np.diag(piece.covariance)))


def _name(group: str, line: Baseline, i: int) -> str:
    where = ""
    if len(line.lines) > 1:
        where = f"x < {line.lines[0].high:g}" if i == 0 else f"x > {line.lines[i].low:g}"
    return " ".join(part for part in (group, where) if part) or line.shift


def _coefficients(lines: Mapping[str, Baseline], level: float) -> pl.DataFrame:
    rows = []
    for group, line in lines.items():
        for piece in line.lines:
            half = _half(piece, level)
            for j, name in enumerate(("intercept", *line.id_settings)):
                estimate = float(piece.coefficients[j])
                ends = (estimate - float(half[j]), estimate + float(half[j]))
                numbers = (estimate, *ends, piece.n, line.r2, line.mae)
                rows.append((group, piece.low, piece.high, name, *numbers))
    schema = ["group", "from", "to", "coefficient", "estimate", "low", "high", "n", "r2", "mae"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _fit_dict(line: Baseline, level: float) -> dict[str, Any]:
    pieces = []
    for piece in line.lines:
        names = ("weights", "intercept", "n", "sigma", "covariance", "covariance_dof")
        one = {"from": piece.low, "to": piece.high} | _named(piece, names)
        one["covariance_independent"] = plain(piece.independent_covariance)
        if len(piece.draws):
            tails = [(1 - level) / 2, (1 + level) / 2]
            ends = np.nanquantile(piece.draws, tails, axis=0).T.tolist()
            one["bootstrap"] = {"intercept": ends[0], "weights": ends[1:]}
        pieces.append(one)
    own = "shift id_settings ood_setting n weights intercept r2 mae families flags support models"
    return _named(line, [*own.split(), "left_out"]) | {"scale": line.scale.name, "pieces": pieces}


def _named(record: Any, names: Iterable[str]) -> dict[str, Any]:
    """Attributes of a record as JSON has them."""
    return {name: plain(getattr(record, name)) for name in names}


def _table(title: str, rows: Sequence[Row], notes: Iterable[str] = ()) -> Table:
    """A table of finished rows: their keys are the columns."""
    return Table.of(title, rows, {key: key for key in rows[0]}, notes=notes)


def _id_set_tables(found: IdSets, level: float) -> list[Table]:
    """Subsets, ridge path and collinearity of the ID settings of a fit."""
    shown = [s for i, s in enumerate(found.subsets) if i < 15 or s.chosen]
    left = len(found.subsets) - len(shown)
    quantile = float(stdtrit(found.baseline.n - 1, 0.5 + level / 2))
    subsets = [
        {
            "ID settings": " + ".join(s.id_settings),
            "PRESS": number(s.press),
            "R² left out": number(s.loo_r2),
            "R²": number(s.r2),
            "MAE left out (points)": f"{percent(s.loo_mae)} ± {percent(quantile * s.loo_mae_se)}",
            "worse by": "" if s.best else f"{s.worse:.5f} ± {s.worse_se:.5f}",
            "": " ".join(w for w, yes in (("best", s.best), ("chosen", s.chosen)) if yes),
        }
        for s in shown
    ]
    path, settings, alike = found.ridge, found.baseline.id_settings, found.collinearity
    ridge = [
        {
            "penalty": f"{path.penalties[i]:.4g}",
            **dict(zip(settings, map(number, path.weights[i].tolist()), strict=True)),
            "effective weights": number(float(path.degrees[i]), 2),
            "PRESS": number(float(path.press[i])),
            "": "best" if i == path.best else "",
        }
        for i in sorted({*range(0, len(path.penalties), 4), path.best})
    ]
    collinear = [
        {
            "ID setting": f"{i + 1}. {name}",
            "VIF": number(float(alike.inflation[i]), 1),
            **{
                f"r with {j + 1}": number(r, 3) for j, r in enumerate(alike.correlation[i].tolist())
            },
        }
        for i, name in enumerate(settings)
    ]
    return [
        _table(
            f"Which ID settings predict {found.baseline.ood_setting}? Leaving out one model at a "
            "time",
            subsets,
            [
                f"n = {found.best.n} models, the same for all. MAE with its {100 * level:g} % "
                "interval. worse by: mean squared leave-one-out error over the best one, ± its "
                "standard error. chosen: the fewest ID settings within one standard error of the "
                "best.",
                *([f"{left} more subsets are in the JSON."] if left else []),
            ],
        ),
        _table("Ridge: weights per standard deviation as the penalty grows", ridge),
        _table(
            "How far do the ID settings say the same?",
            collinear,
            [
                f"Condition number {alike.condition:.1f}; n = {found.baseline.n} models.",
                *(f"Warning: {text}." for text in alike.warnings),
                "The JSON has the partial residuals of every model.",
            ],
        ),
    ]


def _id_set_dict(found: IdSets, level: float) -> dict[str, Any]:
    line, path, alike = found.baseline, found.ridge, found.collinearity
    quantile = float(stdtrit(line.n - 1, 0.5 + level / 2))
    subsets = []
    for one in found.subsets:
        half = quantile * one.loo_mae_se
        ends = {"loo_mae_low": max(one.loo_mae - half, 0.0), "loo_mae_high": one.loo_mae + half}
        subsets.append(asdict(one) | ends)
    ridge = _named(path, ("penalties", "weights", "press", "best"))
    return {
        "n": line.n,
        "best": list(found.best.id_settings),
        "chosen": list(found.chosen.id_settings),
        "subsets": subsets,
        "ridge": {
            "id_settings": list(line.id_settings),
            "effective_weights": path.degrees.tolist(),
            **ridge,
        },
        "collinearity": {
            "vif": dict(zip(line.id_settings, alike.inflation.tolist(), strict=True)),
            **_named(alike, ("condition", "correlation", "warnings")),
        },
        "partial_residuals": partial_residuals(line),
    }
