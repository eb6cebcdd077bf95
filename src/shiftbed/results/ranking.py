"""A testbed's models by effective robustness: all of them (``rank``), or two (``compare``)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import benjamini_hochberg, check_level
from shiftbed.display import Cell, Row, Table, interval, p_value, percent, points, records
from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift
from shiftbed.results.lines import TESTBED, Drawn, Source, find_shift, interval_notes
from shiftbed.scales import Scale
from shiftbed.testbed import choose, open_testbed
from shiftbed.testbed.select import Choice

SORTED_BY = ("effective", "relative", "p_value", "target")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ranked(Drawn):
    """Models in the order of their effective robustness; ``frame`` has a row per model and shift,
    with the columns of ``Testbed.effective_robustness``."""

    title: str
    most: int
    """How many rows are shown; 0 for all."""

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
    shifts = bed.shifts if wanted is None else (wanted,)
    if full_id:
        shifts = tuple(s.on_full_source() if s.full_source or wanted else s for s in shifts)
    options: dict[str, Any] = {"scale": scale, "models": fit_on, "threshold": threshold}
    found = bed.effective_robustness(shifts, level=level, fdr=fdr, **options)
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
        testbed=bed,
        shifts=shifts,
        options=options,
        level=level,
    )


def _interval(row: Row) -> str:
    return interval(row["low"], row["high"])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Compared(Drawn):
    """Two models a and b, and the difference of their effective robustness.

    ``frame`` has a row per shift: ID and OOD accuracy and ρ with its interval of each (id_a, …),
    then the difference ρ(a) − ρ(b) with low, high, p_value, q_value and paired.
    """

    models: tuple[str, str]
    not_evaluated: tuple[str, ...]
    """Shifts on which one of the two was not evaluated."""

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {"shift": "shift"}
        for title, key, form in (("ID", "id", percent), ("OOD", "ood", percent),
                                 ("ρ", "effective", points)):  # fmt: skip
            columns |= {f"{title} A": (f"{key}_a", form), f"{title} B": (f"{key}_b", form)}
        columns |= {"ρ A − ρ B": ("difference", points), "interval": _interval}
        columns["q"] = ("q_value", p_value)
        title = f"{self.testbed.name}: A = {self.models[0]}, B = {self.models[1]}"
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
    options: dict[str, Any] = {"scale": scale, "models": fit_on}
    found, shifts, skipped = [], [], []
    for one in [bed.shift(s) for s in given] if given else bed.shifts:
        values = bed.value[rows][:, [bed.setting_index(s) for s in (*one.source, one.target)]]
        if not np.isfinite(values).all():
            skipped.append(one.name)
            continue
        line = bed.fit(one, bootstrap=0, **options)
        judged = bed.judge(line, level=level)
        gap = asdict(bed.difference(line, *names, level=level))
        record: dict[str, Any] = {"shift": one.name}
        for i, which in enumerate("ab"):
            record |= {f"id_{which}": values[i, 0], f"ood_{which}": values[i, -1]}
            for key in ("effective", "low", "high"):
                record[f"{key}_{which}"] = getattr(judged, key)[rows[i]]
        record |= {"difference": gap.pop("effective"), **gap}
        found.append(record)
        shifts.append(one)
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
        testbed=bed,
        shifts=tuple(shifts),
        options=options,
        level=level,
        marked=names,
        models=names,
        not_evaluated=tuple(skipped),
    )
