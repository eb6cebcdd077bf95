"""Lines, and a testbed's models against them: ``fit``, ``rank`` and ``compare``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline, Line, OnBoundary
from shiftbed.analysis.id_sets import IdSets, examine
from shiftbed.analysis.intervals import benjamini_hochberg, check_level
from shiftbed.display import (
    Cell,
    Result,
    Row,
    Table,
    interval,
    number,
    p_value,
    percent,
    points,
    records,
)
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.id_sets import id_set_dict, id_set_tables
from shiftbed.scales import Scale
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, choose, open_testbed
from shiftbed.testbed.select import Choice

Source = str | Path | Testbed | PredictionStore
"""What a testbed is opened from: a published one's name, a file, a store, or the testbed itself."""
TESTBED = "imagenet-testbed-2020"
SORTED_BY = ("effective", "relative", "p_value", "target")


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


def adhoc(source: Sequence[str], target: str) -> Shift:
    """A shift that the testbed does not list, named after its OOD setting."""
    return Shift(name=target, kind="natural-dataset", source=tuple(source), target=target)


def interval_notes(frame: pl.DataFrame) -> list[str]:
    """How far the measurement intervals of these rows (low, high, paired) can be relied on."""
    known = frame["low"].is_not_null()
    notes = []
    if (known & ~frame["paired"]).any():
        notes.append(
            "Intervals are conservative: only accuracies are known, so the images that models "
            "share count as independent."
        )
    if not known.all():
        notes.append("No interval where the number of test images is unknown.")
    return notes


# --- fit ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fitted(Result):
    """The baseline of a shift, or one per group of models.

    ``frame`` has a row per line (or piece of one) and coefficient: group, from, to, coefficient
    (an ID setting or ``intercept``), estimate, low, high, n, r2, mae.
    """

    testbed: str
    line: str
    """What the testbed calls its baseline."""
    lines: Mapping[str, Baseline]
    """By group; the only key is empty where models are not grouped."""
    by: str | None
    level: float
    id_sets: IdSets | None = None
    """Which of several ID settings to control for, where that was asked."""

    @property
    def baseline(self) -> Baseline:
        """The (first) line or plane."""
        return next(iter(self.lines.values()))

    def tables(self) -> Iterable[Table]:
        if self.id_sets is not None:
            return id_set_tables(self.id_sets, self.level)
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
        title = f"{self.testbed}: {self.line} of {self.baseline.shift}"
        return [Table.of(title, rows, {key: key for key in rows[0]}, notes=self.notes)]

    def to_dict(self) -> dict[str, Any]:
        found = {group: _fit_dict(line, self.level) for group, line in self.lines.items()}
        if self.id_sets is not None:
            return {"fit": found[""], **id_set_dict(self.id_sets, self.level)}
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
    check_level(level)
    bed = open_testbed(testbed)
    wanted = find_shift(bed, shift, id, ood)
    if choose_ids and (by is not None or len(wanted.source) < 2):
        raise InputError("choose_ids needs two or more ID settings, and no grouping (by)")
    options: dict[str, Any] = {
        "scale": scale,
        "threshold": threshold,
        "full_source": full_id,
        "knee": knee,
        "weighted": weighted,
        "on_boundary": on_boundary,
        "bootstrap": bootstrap,
        "seed": seed,
    }
    if by is None:
        lines = {"": bed.fit(wanted, models=fit_on, **options)}
    else:
        lines = _by_group(bed, wanted, by, fit_on, options)
    first = next(iter(lines.values()))
    left_out = sorted({model for line in lines.values() for model in line.left_out})
    notes = [
        f"{first.scale.name}(OOD) = weight · {first.scale.name}(ID) + intercept, "
        f"through {' + '.join(first.id_settings)} → {first.ood_setting}."
    ]
    if left_out:
        notes.append(f"Not fitted (missing, on the knee, or 0/1): {', '.join(left_out)}.")
    return Fitted(
        frame=_coefficients(lines, level),
        notes=tuple(notes),
        citation=bed.citation,
        testbed=bed.name,
        line=bed.line,
        lines=lines,
        by=by,
        level=level,
        id_sets=examine(first) if choose_ids else None,
    )


def _by_group(
    bed: Testbed, shift: Shift, by: str, fit_on: Choice, options: dict[str, Any]
) -> dict[str, Baseline]:
    if by not in bed.models.columns:
        raise unknown("column of models", by, bed.models.columns)
    inside = bed.fit_set(shift, fit_on)
    values = np.array(bed.models[by].cast(pl.String).to_list(), dtype=object)
    groups = sorted({value for value in values[inside] if value is not None})
    if not groups:
        raise InputError(f"no baseline model has a value in column {by!r}")
    lines = {}
    for group in groups:
        try:
            lines[group] = bed.fit(shift, models=inside & (values == group), **options)
        except InputError as error:
            raise InputError(f"{by} {group!r}: {error}") from None
    return lines


def _half(piece: Line, level: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Half widths t·√diag(σ²G) of the intervals of the coefficients, the intercept first."""
    quantile = float(stdtrit(piece.dof, 0.5 + level / 2))
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
        one = {
            "from": piece.low,
            "to": piece.high,
            "weights": list(piece.weights),
            "intercept": piece.intercept,
            "n": piece.n,
            "sigma": piece.sigma,
            "covariance": piece.covariance.tolist(),
        }
        if len(piece.draws):
            tails = [(1 - level) / 2, (1 + level) / 2]
            ends = np.nanquantile(piece.draws, tails, axis=0).T.tolist()
            one["bootstrap"] = {"intercept": ends[0], "weights": ends[1:]}
        pieces.append(one)
    return {
        "shift": line.shift,
        "scale": line.scale.name,
        "id_settings": list(line.id_settings),
        "ood_setting": line.ood_setting,
        "n": line.n,
        "weights": list(line.weights),
        "intercept": line.intercept,
        "r2": line.r2,
        "mae": line.mae,
        "pieces": pieces,
        "support": line.support.tolist(),
        "models": list(line.models),
        "left_out": list(line.left_out),
    }


# --- rank --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ranked(Result):
    """Models in the order of their effective robustness; ``frame`` has a row per model and shift,
    with the columns of ``Testbed.effective_robustness``."""

    title: str
    most: int
    """How many rows are shown; 0 for all."""
    level: float

    @property
    def shown(self) -> pl.DataFrame:
        return self.frame.head(self.most) if self.most else self.frame

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {
            "model": "model",
            "kind": "kind",
            "shift": "shift",
            "ID": ("source", percent),
            "OOD": ("target", percent),
            "ρ": ("effective", points),
            f"{100 * self.level:g} % interval": _interval,
            "τ": ("relative", points),
            "p": ("p_value", p_value),
            "": lambda row: "out of line" if row["out_of_line"] else "",
        }
        notes = [f"{len(self.shown)} of {len(self.frame)} rows. {self.notes[0]}", *self.notes[1:]]
        return [Table.of(self.title, self.shown, columns, notes=notes, left=3)]

    def to_dict(self) -> dict[str, Any]:
        return {"n": len(self.frame), "models": records(self.shown)}


def rank(
    testbed: Source = TESTBED,
    shift: str | Shift | None = None,
    *,
    id: Sequence[str] | None = None,
    ood: str | None = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    full_id: bool = False,
    only: Choice = "all",
    by: str = "effective",
    most: int = 15,
    level: float = 0.95,
    fdr: float = 0.05,
) -> Ranked:
    """A testbed's models by effective robustness on a shift, or on all of its shifts.

    ``only`` narrows the models that are ranked, not those that are fitted (``fit_on``); ``by``
    is effective, relative, p_value or target; ``most`` is how many rows are shown, 0 for all.

    >>> rank("imagenet-testbed-2020", "imagenet-v2").frame["model"][0]
    'resnet152-imagenet11k'
    """
    if by not in SORTED_BY:
        raise unknown("column to sort by", by, SORTED_BY)
    if most < 0:
        raise InputError(f"most must not be negative (0 shows all rows), got {most}")
    check_level(fdr, "fdr")
    bed = open_testbed(testbed)
    several = shift is None and not id and not ood
    wanted = None if several else find_shift(bed, shift, id, ood)
    if full_id and several and not any(one.full_source for one in bed.shifts):
        raise InputError(f"no shift of {bed.name} has a class twin to replace by the whole ID set")
    found = bed.effective_robustness(
        wanted, level=level, fdr=fdr, full_source=full_id,
        scale=scale, models=fit_on, threshold=threshold,
    )  # fmt: skip
    names = bed.models.filter(pl.Series(choose(bed.models, only)))["model"]
    found = found.filter(pl.col("model").is_in(names.implode()))
    notes = [
        "ρ and τ in points. 'out of line': unusual among the baseline models at a false "
        f"discovery rate of {fdr:g}.",
        *interval_notes(found),
    ]
    return Ranked(
        frame=found.sort(by, descending=by != "p_value", nulls_last=True),
        notes=tuple(notes),
        citation=bed.citation,
        title=f"{bed.name}: {'all shifts' if wanted is None else wanted.name}",
        most=most,
        level=level,
    )


def _interval(row: Row) -> str:
    return interval(row["low"], row["high"])


# --- compare -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Compared(Result):
    """Two models a and b, and the difference of their effective robustness.

    ``frame`` has a row per shift: ID and OOD accuracy and ρ with its interval of each (id_a, …),
    then the difference ρ(a) − ρ(b) with low, high, p_value, q_value and paired.
    """

    testbed: str
    models: tuple[str, str]
    level: float
    not_evaluated: tuple[str, ...]
    """Shifts on which one of the two was not evaluated."""

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {"shift": "shift"}
        for title, key, form in (("ID", "id", percent), ("OOD", "ood", percent),
                                 ("ρ", "effective", points)):  # fmt: skip
            columns |= {f"{title} A": (f"{key}_a", form), f"{title} B": (f"{key}_b", form)}
        columns |= {"ρ A − ρ B": ("difference", points), "interval": _interval}
        columns["q"] = ("q_value", p_value)
        title = f"{self.testbed}: A = {self.models[0]}, B = {self.models[1]}"
        return [Table.of(title, self.frame, columns, notes=self.notes)]

    def to_dict(self) -> dict[str, Any]:
        shifts = [
            {
                "shift": row["shift"],
                **{key: [row[f"{key}_a"], row[f"{key}_b"]] for key in ("id", "ood", "effective")},
                **{key: row[key] for key in ("difference", "low", "high")},
                **{key: row[key] for key in ("p_value", "paired", "q_value")},
            }
            for row in records(self.frame)
        ]
        found = {"models": list(self.models), "shifts": shifts}
        return found | {"not_evaluated": list(self.not_evaluated)}


def compare(
    a: str,
    b: str,
    testbed: Source = TESTBED,
    *,
    shift: str | Shift | Sequence[str | Shift] | None = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    level: float = 0.95,
) -> Compared:
    """Two models of a testbed on its shifts (or those given): ρ of each, and the difference.

    Image noise that both share cancels in the difference, so its interval is not that of two
    separate measurements. q-values control the false discovery rate over the shifts.

    >>> found = compare("resnet50", "vgg16", shift="imagenet-v2")
    >>> found.frame["difference"].round(4).to_list()
    [-0.0044]
    """
    bed = open_testbed(testbed)
    rows = [bed.model_index(a), bed.model_index(b)]
    names = (bed.model_names[rows[0]], bed.model_names[rows[1]])
    given = [shift] if isinstance(shift, str | Shift) else shift
    found, skipped = [], []
    for one in [bed.shift(s) for s in given] if given else bed.shifts:
        values = bed.value[rows][:, [bed.setting_index(s) for s in (*one.source, one.target)]]
        if not np.isfinite(values).all():
            skipped.append(one.name)
            continue
        line = bed.fit(one, bootstrap=0, scale=scale, models=fit_on)
        judged = bed.judge(line, level=level)
        gap = asdict(bed.difference(line, *names, level=level))
        record: dict[str, Any] = {"shift": one.name}
        for i, which in enumerate("ab"):
            record |= {f"id_{which}": values[i, 0], f"ood_{which}": values[i, -1]}
            for key in ("effective", "low", "high"):
                record[f"{key}_{which}"] = getattr(judged, key)[rows[i]]
        record |= {"difference": gap.pop("effective"), **gap}
        found.append(record)
    if not found:
        raise InputError(f"{names[0]!r} and {names[1]!r} were not both evaluated on any shift")
    frame = pl.DataFrame(found).with_columns(
        pl.Series("q_value", benjamini_hochberg([one["p_value"] for one in found]))
    )
    frame = frame.with_columns(pl.col(pl.Float64).fill_nan(None))
    notes = [f"Not evaluated for both: {', '.join(skipped)}."] if skipped else []
    return Compared(
        frame=frame,
        notes=(*notes, *interval_notes(frame)),
        citation=bed.citation,
        testbed=bed.name,
        models=names,
        level=level,
        not_evaluated=tuple(skipped),
    )
