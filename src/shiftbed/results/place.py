"""Where a model stands: its accuracies against a testbed (``place``)."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from shiftbed.analysis.baseline import OnBoundary
from shiftbed.analysis.intervals import check_fractions
from shiftbed.display import SAID, Cell, Table, counted, interval, p_value, percent, points, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.caveats import badges, caveat_notes, failure_notes, in_words, judge
from shiftbed.results.lines import TESTBED, Drawn, adhoc, fitting, interval_notes
from shiftbed.results.sensitivity import Sensitivity
from shiftbed.results.sensitivity import sensitivity as sensitivity_of
from shiftbed.scales import Scale
from shiftbed.testbed import Source, Testbed, open_testbed
from shiftbed.testbed.naming import find_setting
from shiftbed.testbed.select import Choice

YOURS = "your model"
_SHIFT = (
    "shift", "predicted", "effective", "low", "high", "prediction_low", "prediction_high",
    "p_value", "extrapolated", "q_value", "out_of_line", "paired", "fit_share", "id_share",
    "ood_share", "source", "target", "n_id", "n_ood", "relative", "reference", "share_of_gap",
    "boundary", "interval", "families", "r2", "trusted", "id_settings", "flags", "artefact",
    "verdict", "caveats",
)  # fmt: skip
_NEAREST = 5


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An accuracy in a setting, with its number of images and (perhaps) the results per image."""

    accuracy: float
    n: int = 0
    right: ArrayLike | None = None


Value = float | str | tuple[int, int] | Measured
"""An accuracy, ``"38065/50000"``, (right, n), or a measurement."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Placed(Drawn):
    """A model's effective robustness; ``frame`` has a row per shift: predicted, effective (ρ),
    its measurement interval (low, high), where another baseline model's ρ would fall
    (prediction_low, prediction_high), p_value, q_value, … (``Testbed.effective_robustness``)."""

    json_keys = "model testbed=testbed.name level nearest citation"
    model: str
    nearest: pl.DataFrame
    """The models closest in ID accuracy on the first shift, with their ρ; none for a plane."""
    sensitivity: tuple[Sensitivity, ...] | None = None
    """ρ under every defensible choice, by shift, where that was asked."""

    def answer(self) -> Iterable[str]:
        yield from (in_words(row, self.level) for row in records(self.frame.head(SAID)))
        if len(self.frame) > SAID:
            yield f"{counted(len(self.frame) - SAID, 'more shift')} in the table."

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {
            "shift": "shift",
            "ID": ("source", percent),
            "OOD": ("target", percent),
            "predicted": ("predicted", percent),
            "ρ": ("effective", points),
            f"{100 * self.level:g} % interval": lambda row: interval(row["low"], row["high"]),
            "baseline models": lambda row: interval(row["prediction_low"], row["prediction_high"]),
            "p": ("p_value", p_value),
            "verdict": badges,
        }
        title = f"{self.model} on {self.testbed.name}"
        yield Table.of(title, self.frame, columns, notes=self.notes)
        for one in self.sensitivity or ():
            yield from one.tables()
        if len(self.nearest):
            columns = {
                "model": "model",
                "kind": "kind",
                "ID": ("source", percent),
                "OOD": ("target", percent),
                "ρ": ("effective", points),
            }
            title = f"Nearest by ID accuracy ({self.nearest['shift'][0]})"
            yield Table.of(title, self.nearest, columns, left=2)
        if self.citation:
            yield Table(notes=(f"Cite: {self.citation}",))

    def to_dict(self) -> dict[str, Any]:
        tried = {}
        if self.sensitivity is not None:
            tried["sensitivity"] = [one.to_dict() for one in self.sensitivity]
        return super().to_dict() | {"shifts": records(self.frame, _SHIFT)} | tried


def place(
    testbed: Source = TESTBED,
    id: Mapping[str, Value] | None = None,
    ood: Mapping[str, Value] | None = None,
    *,
    name: str = YOURS,
    model: str | None = None,
    predictions: Mapping[str, str | Path] | None = None,
    parent: str | None = None,
    multi: bool = False,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    knee: float | str | None = "published",
    on_boundary: OnBoundary = "raise",
    level: float = 0.95,
    fdr: float = 0.05,
    own_images: bool = False,
    sensitivity: bool = False,
) -> Placed:
    """Effective robustness of one model on every shift that its accuracies allow.

    ``id`` and ``ood`` give its accuracies by setting (``ood`` also by shift): 0.76,
    ``"38065/50000"``, ``(38065, 50000)`` or ``Measured``; ``predictions`` its predictions on the
    testbed's own images, by setting, as .npz files. ``model`` places a model of the testbed
    instead. ``multi`` controls for all given ID settings at once (a plane) instead of one each;
    ``parent`` is the model it derives from, for relative robustness. ``sensitivity`` adds ρ under
    every defensible choice. ``own_images`` says that the accuracies were measured on other images
    than the testbed's, whose noise the line then does not share. False discoveries (``fdr``) are
    counted over the models judged on a shift, as in every other command. A shift that cannot be
    fitted does not block another. The other options are those of ``fit``.

    >>> placed = place("imagenet-testbed-2020", {"val": 0.7613}, {"imagenet-v2": 0.6321})
    >>> placed.frame["effective"].round(4).to_list()
    [-0.0077]
    """
    options = fitting(locals())
    bed = open_testbed(testbed)
    if own_images and predictions:
        raise InputError("own_images goes with accuracies; predictions are on the testbed's images")
    if model is not None:
        if id or ood or predictions or multi or parent or own_images or name != YOURS:
            raise InputError(
                "model places a model of the testbed; it goes with no id, ood, predictions, "
                "multi, parent, own_images or name"
            )
        name, shifts = bed.model_names[bed.model_index(model)], list(bed.shifts)
    else:
        sides = _sides(bed, id or {}, ood or {}, predictions or {})
        shifts = _shifts(bed, list(sides[0]), list(sides[1]), multi)
        bed = _with_model(bed, name, {**sides[0], **sides[1]}, parent)
    apart = [name] if own_images else []
    found = judge(bed, shifts, level=level, fdr=fdr, own_images=apart, **options)
    own = found.frame.filter(pl.col("model") == name)
    if not len(own):
        raise InputError(f"{name!r} has no accuracy on both sides of any shift of {bed.name}")
    there = set(own["shift"])
    shifts = [shift for shift in shifts if shift.name in there]
    tried = [sensitivity_of(bed, name, one, level=level) for one in shifts if sensitivity]
    return Placed(
        frame=own,
        notes=(*_notes(bed, own), *failure_notes(found.not_computed)),
        citation=bed.citation,
        called=bed.called,
        model=name,
        testbed=bed,
        shifts=tuple(shifts),
        options=options,
        level=level,
        marked=(name,),
        nearest=_nearest(found.frame.clear() if multi else found.frame, own),
        sensitivity=tuple(tried) if sensitivity else None,
    )


def shifts_of(testbed: Testbed, ids: Sequence[str], ood: Sequence[str]) -> list[Shift]:
    """The shifts to judge a model on that has these settings.

    For each OOD setting: the testbed's shifts whose ID settings are all given; else those whose
    whole ID set is given instead of the class twin; else an ad-hoc shift from all given ID
    settings (a plane if there are several).
    """
    found: list[Shift] = []
    for target in ood:
        candidates = [s for s in testbed.shifts if s.target == target]
        twin = [s for s in candidates if set(s.source) <= set(ids)]
        full = [s.on_full_source() for s in candidates if s.full_source in ids]
        found += twin or full or [adhoc(ids, target)]
    return found


def _shifts(bed: Testbed, ids: list[str], ood: list[str], multi: bool) -> list[Shift]:
    if not ids or not ood:
        raise InputError("placing a model needs at least one ID and one OOD accuracy")
    if not multi:
        return shifts_of(bed, ids, ood)
    if len(ids) < 2:
        raise InputError("multi controls for several ID settings at once; give two or more id")
    return [adhoc(ids, target) for target in ood]


def _sides(
    bed: Testbed,
    id: Mapping[str, Value],
    ood: Mapping[str, Value],
    predictions: Mapping[str, str | Path],
) -> tuple[dict[str, Measured], dict[str, Measured]]:
    """What is given, as (ID, OOD) measurements by setting."""
    sides: tuple[dict[str, Measured], dict[str, Measured]] = {}, {}

    def add(side: dict[str, Measured], setting: str, one: Measured) -> None:
        if setting in sides[0] or setting in sides[1]:
            raise InputError(f"{setting!r} is given twice")
        side[setting] = one

    for setting, value in id.items():
        known = find_setting(bed.settings, setting) or setting
        bed.setting_index(known)
        add(sides[0], known, _measured(value, f"id {setting}"))
    for setting, value in ood.items():
        resolved = _resolve_ood(bed, setting)
        add(sides[1], resolved, _measured(value, f"ood {setting}"))
    sources = {s for shift in bed.shifts for s in (*shift.source, shift.full_source)}
    for setting, file in predictions.items():
        resolved = _resolve_ood(bed, setting)
        side = sides[0] if resolved in sources else sides[1]
        add(side, resolved, _predicted(bed, resolved, file))
    return sides


def _resolve_ood(testbed: Testbed, name: str) -> str:
    """An OOD setting by its own name, by the name of the shift towards it, or by an alias."""
    if name in testbed.settings:
        return name
    for shift in testbed.shifts:
        if shift.name == name:
            return shift.target
    found = find_setting(testbed.settings, name)
    if found is not None:
        return found
    names = [*testbed.settings, *(shift.name for shift in testbed.shifts)]
    raise unknown(f"setting or shift in {testbed.name}", name, names)


_FRACTION = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


def _measured(value: Value, where: str) -> Measured:
    """An accuracy such as 0.7613, or a count such as 38065/50000, as a measurement."""
    if isinstance(value, Measured):
        found = value
    else:
        counts = _FRACTION.fullmatch(value) if isinstance(value, str) else None
        if counts is not None:
            value = int(counts[1]), int(counts[2])
        if isinstance(value, tuple):
            right, n = value
            if n <= 0 or not 0 <= right <= n:
                raise InputError(
                    f"{where}: {right}/{n} is not a count of right answers out of a total"
                )
            found = Measured(accuracy=right / n, n=n)
        else:
            try:
                found = Measured(accuracy=float(value))
            except ValueError:
                raise InputError(
                    f"{where}: expected an accuracy such as 0.7613 or a count such as "
                    f"38065/50000, got {value!r}"
                ) from None
    if math.isnan(found.accuracy):
        raise InputError(f"{where}: an accuracy cannot be NaN")
    check_fractions([found.accuracy], where)
    return found


def _predicted(bed: Testbed, setting: str, file: str | Path) -> Measured:
    """One model's predictions on the testbed's images of that setting."""
    from shiftbed.importing import read_predictions

    if setting not in bed.results:
        raise InputError(
            f"{bed.name} has no per-image results in {setting!r}; "
            "make a testbed that has with 'shiftbed import'"
        )
    rows = read_predictions(str(file), setting)
    if len(rows) != 1:
        raise InputError(f"{file}: expected the predictions of one model, got {len(rows)}")
    _, _, right, fingerprint = rows[0]
    if fingerprint != bed.results[setting].images:
        raise InputError(
            f"{file}: its labels are not those of {setting!r} in {bed.name} (other images, or "
            "another order)"
        )
    return Measured(accuracy=float(right.mean()), n=len(right), right=right)


def _with_model(
    bed: Testbed, name: str, measured: Mapping[str, Measured], parent: str | None
) -> Testbed:
    return bed.with_model(
        name,
        {setting: one.accuracy for setting, one in measured.items()},
        n={setting: one.n for setting, one in measured.items()},
        right={s: one.right for s, one in measured.items() if one.right is not None},
        parent=None if parent is None else bed.model_names[bed.model_index(parent)],
    )


def _nearest(table: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    first = own.row(0, named=True)
    others = table.filter(pl.col("shift") == first["shift"], pl.col("model") != first["model"])
    gap = np.abs(others["source"].to_numpy() - first["source"])
    columns = ["model", "kind", "shift", "source", "target", "effective"]
    return others[np.argsort(gap, kind="stable")[:_NEAREST]].select(columns)


def _notes(bed: Testbed, frame: pl.DataFrame) -> list[str]:
    notes = [
        f"All in points. ρ = OOD − what the {bed.line} predicts from ID. The interval says how "
        "precisely ρ is measured; 'baseline models' is where ρ of another baseline model would "
        "fall (p and 'out of line' come from it)."
    ]
    shares = [
        f"{row['shift']}: fit {100 * row['fit_share']:.0f} %, ID images "
        f"{100 * row['id_share']:.0f} %, OOD images {100 * row['ood_share']:.0f} %"
        for row in records(frame.head(3))
        if row["fit_share"] is not None
    ]
    if shares:
        notes.append("Variance of ρ from " + "; ".join(shares) + ".")
    return notes + interval_notes(frame) + caveat_notes(frame)
