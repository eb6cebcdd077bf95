"""No verdict without its caveats: rows of ρ, and all that a reader must know about each.

``judge`` is what place, rank, compare, groups, cards, charts and the page call: for one model and
shift all of them have the same ρ, interval, verdict, trust and caveats. q-values control the false
discovery rate over the models judged on a shift, whichever other shifts are looked at.

A line is *trusted* by one rule: nothing that ``analysis.trust`` checks speaks against the line
through the baseline models it was fitted on. Models that are only judged have no say in it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.intervals import benjamini_hochberg, check_level
from shiftbed.analysis.trust import Trust
from shiftbed.catalogue.artefacts import artefact
from shiftbed.display import Row, counted, interval, percent, points
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.testbed.record import Testbed

_MOST = 8
"""Caveats that are printed below a table; JSON has all."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdicts:
    """Models judged on shifts, with their caveats."""

    frame: pl.DataFrame
    """As ``Testbed.effective_robustness``, and per row: testbed, interval, families, r2, trusted,
    id_settings, artefact (why it is no headline, or null), verdict, caveats."""
    lines: tuple[tuple[Shift, Baseline, Trust], ...]
    not_computed: tuple[tuple[str, str], ...]
    """Shifts without a line, with the reason."""


def judge(
    testbed: Testbed,
    shifts: Sequence[Shift],
    *,
    level: float = 0.95,
    fdr: float = 0.05,
    fit: Callable[[Shift], Baseline] | None = None,
    own_images: Sequence[str] = (),
    **options: Any,
) -> Verdicts:
    """Every model of a testbed on shifts; one that cannot be fitted does not block another.

    ``options`` are those of ``Testbed.fit``; ``fit`` gives lines that are fitted already;
    ``own_images`` are models measured on other images than the testbed's.

    >>> from shiftbed.testbed import published
    >>> bed = published("imagenet-testbed-2020")
    >>> found = judge(bed, [bed.shift("imagenet-a")]).frame.filter(model="resnet50")
    >>> found["artefact"].to_list()
    ['ImageNet-A keeps only images that this ResNet-50 got wrong']
    """
    check_level(level)
    check_level(fdr, "fdr")
    frames, lines, failed = [], [], []
    for shift in shifts:
        try:
            line = fit(shift) if fit else testbed.fit(shift, bootstrap=0, **options)
        except InputError as error:
            if len(shifts) == 1:
                raise
            failed.append((shift.name, str(error)))
            continue
        trust = testbed.trust(line)
        rows = testbed.robustness([line], level=level, fdr=fdr, own_images=own_images)
        rows = _networks(rows, trained_elsewhere(testbed, shift), fdr)
        frames.append(with_caveats(testbed, shift, line, trust, rows))
        lines.append((shift, line, trust))
    if not frames:
        why = failed[0][1] if failed else "it has none"
        raise InputError(f"no shift of {testbed.name} could be fitted: {why}")
    return Verdicts(frame=pl.concat(frames), lines=tuple(lines), not_computed=tuple(failed))


def _networks(rows: pl.DataFrame, others: Collection[str], fdr: float) -> pl.DataFrame:
    """The rows without those of other models, which are no discoveries either."""
    kept = rows.filter(~pl.col("model").is_in(list(others)))
    if len(kept) == len(rows) or not len(kept):
        return rows
    q = benjamini_hochberg(kept["p_value"].fill_null(float("nan")).to_numpy())
    named = pl.Series("q_value", q, nan_to_null=True), pl.Series("out_of_line", q <= fdr)
    return kept.with_columns(*named)


def with_caveats(
    testbed: Testbed, shift: Shift, line: Baseline, trust: Trust, rows: pl.DataFrame
) -> pl.DataFrame:
    """Rows of one shift with what they lack of the columns that ``Verdicts.frame`` has."""
    homes = testbed.models["testbed"] if "testbed" in testbed.models.columns else None
    home = dict(zip(testbed.model_names, homes, strict=True)) if homes is not None else {}
    models = rows["model"].to_list()
    rows = rows.with_columns(
        pl.Series("testbed", [home.get(name) or testbed.name for name in models], pl.String),
        pl.Series("artefact", _artefacts(testbed, shift, models), pl.String),
    )
    said = [pl.lit(text) for text in line_caveats(testbed, shift, line, trust)]
    caveats = pl.concat_list(*said, *_of_rows(line)).list.drop_nulls().list.concat("flags")
    return rows.with_columns(verdict().alias("verdict"), caveats.alias("caveats"))


# --- what there is to say -------------------------------------------------------------------------


def line_caveats(testbed: Testbed, shift: Shift, line: Baseline, trust: Trust) -> list[str]:
    """Caveats that hold for every model on a shift."""
    said = []
    whole = next(
        (s for s in testbed.shifts if (s.name, s.target) == (shift.name, shift.target)), shift
    )
    if shift.full_source is not None:
        said.append(f"ID accuracy on the class twin {shift.source[0]}, not on all classes")
    elif whole.full_source is not None and whole.full_source in shift.source:
        said.append(f"ID accuracy on all of {whole.full_source}, not on the OOD set's classes")
    if not trust.trusted:
        reasons = "; ".join(trust.reasons)
        said.append(
            f"the line through {counted(line.n, 'baseline model')} is not trusted: {reasons}"
        )
    edge = _at_boundary(testbed, line)
    if edge:
        said.append(f"{counted(edge, 'baseline model')} at exactly 0 or 1 left out of the fit")
    return said


def _at_boundary(testbed: Testbed, line: Baseline) -> int:
    """How many models were left out of a fit because the scale has no place for 0 or 1."""
    rows = [testbed.model_index(name) for name in line.left_out]
    values = testbed.value[rows][
        :, [testbed.setting_index(s) for s in (*line.id_settings, line.ood_setting)]
    ]
    edge = np.isfinite(values).all(axis=1) & ((values <= 0) | (values >= 1)).any(axis=1)
    for piece in line.lines[1:]:
        edge &= np.abs(values[:, 0] - piece.low) > 1e-9
    return 0 if line.scale.bounded else int(edge.sum())


def _of_rows(line: Baseline) -> list[pl.Expr]:
    """Caveats that hold for some models on a shift; null for the others."""
    ends = [f"{percent(low, 1)} to {percent(high, 1)} %" for low, high in line.support.tolist()]
    unknown = pl.col("low").is_null() & ((pl.col("n_id") == 0) | (pl.col("n_ood") == 0))
    found = {
        f"extrapolated: ID accuracy beyond the fitted {' and '.join(ends)}": pl.col("extrapolated"),
        "number of test images unknown: no measurement interval": unknown,
        "an accuracy of exactly 0 or 1, moved to (k+½)/(n+1) where the scale needs it": pl.col(
            "boundary"
        ),
    }
    said = [pl.when(holds).then(pl.lit(text)) for text, holds in found.items()]
    return [*said, pl.col("artefact")]


def _artefacts(testbed: Testbed, shift: Shift, models: Sequence[str]) -> list[str | None]:
    """Why a model is no headline on this shift, for each model."""
    told = _training_data(testbed)
    perturbation = _perturbation(testbed, shift.target)
    target = _domains(testbed, shift).get(shift.target)
    found = []
    for name in models:
        data = told.get(name, "")
        why = artefact(name, shift.target, perturbation, data)
        mixed = target is not None and target in data.split("+")
        found.append(f"trained on {target} itself" if why is None and mixed else why)
    return found


def trained_elsewhere(testbed: Testbed, shift: Shift) -> frozenset[str]:
    """Models trained on other domains of a shift's task, and not on its ID data.

    Their accuracy on its ID set is no ID accuracy, so that ρ says nothing of them (wenzel2022,
    Section 2: a pair is about the networks trained on its ID set).
    """
    own, domains = shift.trained_on, set(_domains(testbed, shift).values())
    if own is None:
        return frozenset()
    data = {name: set(text.split("+")) for name, text in _training_data(testbed).items()}
    return frozenset(name for name, parts in data.items() if own not in parts and parts & domains)


def _domains(testbed: Testbed, shift: Shift) -> dict[str, str]:
    """ID setting of every domain of a shift's task → the training data that it is of."""
    if not shift.task or shift.trained_on is None:
        return {}
    of_task = [one for one in testbed.shifts if one.task == shift.task and len(one.source) == 1]
    return {one.source[0]: one.trained_on for one in of_task if one.trained_on is not None}


def _training_data(testbed: Testbed) -> Mapping[str, str]:
    if "training_data" not in testbed.models.columns:
        return {}
    data = testbed.models["training_data"].cast(pl.String).fill_null("")
    return dict(zip(testbed.model_names, data.to_list(), strict=True))


def _perturbation(testbed: Testbed, setting: str) -> str:
    """The corruption of a setting, or of all the settings it is the mean of."""
    names = set()
    for part in testbed.derived.get(setting, (setting,)):
        record = testbed.records.get(part)
        names.add(record.perturbation.name if record and record.perturbation else "")
    return names.pop() if len(names) == 1 else ""


# --- in words -------------------------------------------------------------------------------------


def verdict() -> pl.Expr:
    """What a row of ρ says, by itself."""
    on_line = (pl.col("low") <= 0) & (pl.col("high") >= 0)
    return (
        pl.when("out_of_line")
        .then(pl.lit("out of line"))
        .when(pl.col("low").is_null())
        .then(pl.lit("within the baseline models' spread"))
        .when(on_line)
        .then(pl.lit("on the line"))
        .otherwise(pl.lit("off the line, within the baseline models' spread"))
    )


def doubts(row: Row) -> list[str]:
    """In a word each, what speaks against relying on a verdict."""
    found = {
        "extrapolated": row["extrapolated"],
        "an accuracy of 0 or 1": row["boundary"],
        "line not trusted": not row["trusted"],
        "artefact": row["artefact"],
    }
    return [word for word, holds in found.items() if holds]


def badges(row: Row) -> str:
    """The verdict with its doubts, for a column of a table."""
    return ", ".join([row["verdict"], *doubts(row)])


def in_words(row: Row, level: float) -> str:
    """A row of ρ as a sentence, with its numbers."""
    known = interval(row["low"], row["high"])
    around = f", {100 * level:g} % interval {known}" if known else ""
    but = "".join(f"; {word}" for word in doubts(row))
    said = plain_sentence(row, level)
    return f"{row['shift']}: {said} (ρ {points(row['effective'])} points{around}{but})."


def plain_sentence(row: Row, level: float) -> str:
    """What a row of ρ means, in words that need no statistics; the page has the same words.

    >>> row = {"effective": -0.0077, "prediction_low": -0.0084, "prediction_high": 0.0083,
    ...        "verdict": "off the line, within the baseline models' spread", "id_settings": ["a"]}
    >>> plain_sentence(row, 0.95)
    '0.8 points below the line; ordinary: 95 in 100 baseline models lie within ±0.8'
    """
    rho, ends = row["effective"], (row["prediction_low"], row["prediction_high"])
    outside = None not in ends and not ends[0] <= rho <= ends[1]
    digits = 2 if outside and points(rho, 1) == points(ends[rho > 0], 1) else 1
    low, high = (points(end, digits) for end in ends)
    spread = f"±{high[1:]}" if low[1:] == high[1:] else f"{low} to {high}"
    others = f"{100 * level:g} in 100 baseline models lie within {spread}"
    surface = "line" if len(row["id_settings"]) == 1 else "plane"
    off = f"{abs(100 * rho):.{digits}f} points {'above' if rho >= 0 else 'below'} the {surface}"
    if row["verdict"] == "out of line":
        more = "more" if rho > 0 else "less"
        return f"{more} robust than its accuracy predicts: {off}, where {others}"
    chance = ", and of many models some fall outside by chance" if outside else ""
    if row["verdict"] == "on the line":
        said = f"as robust as its accuracy predicts: {off}, as chance in the test images allows"
        return f"{said}; {others}{chance}"
    return f"{off}; {'not out of line' if outside else 'ordinary'}: {others}{chance}"


def headline(rows: pl.DataFrame) -> Row | None:
    """The largest ρ among rows out of line that are no artefact and whose line is trusted."""
    fair = rows.filter(pl.col("out_of_line") & pl.col("trusted") & pl.col("artefact").is_null())
    best = fair.sort("effective", descending=True, nulls_last=True).head(1)
    return best.row(0, named=True) if len(best) else None


def caveat_notes(rows: pl.DataFrame, most: int = _MOST) -> list[str]:
    """Every caveat of these rows once, with the shifts and the number of models it is about."""
    long = rows.select("model", "shift", pl.col("caveats").alias("caveat")).explode("caveat")
    long = long.drop_nulls("caveat")
    alone, size = rows["model"].n_unique() == 1, dict(rows.group_by("shift").len().iter_rows())
    notes = []
    for (caveat,), part in long.group_by(["caveat"], maintain_order=True):
        shifts = part["shift"].unique(maintain_order=True).to_list()
        whole = alone or len(part) == sum(size[one] for one in shifts)
        where = ", ".join(shifts[:4]) + (f" and {len(shifts) - 4} more" if len(shifts) > 4 else "")
        who = "" if whole else f"{counted(part['model'].n_unique(), 'model')} on "
        notes.append(f"{who}{where}: {caveat}.")
    left = len(notes) - most
    return notes[:most] + ([f"{counted(left, 'more caveat')} in the JSON."] if left > 0 else [])


def caveats_of_group(rows: pl.DataFrame) -> list[str]:
    """Caveats of several models on one shift, with how many they are about if not about all."""
    counts = rows["caveats"].explode().drop_nulls().value_counts(sort=True).iter_rows()
    return [
        text if count == len(rows) else f"{count} of {len(rows)} models: {text}"
        for text, count in counts
    ]


def failure_notes(not_computed: Sequence[tuple[str, str]]) -> list[str]:
    """Shifts without a line, in words; the first few of many."""
    said = [f"Not computed: {name} ({why})." for name, why in not_computed[:_MOST]]
    left = len(not_computed) - _MOST
    return said + ([f"Not computed: {counted(left, 'more shift')}."] if left > 0 else [])


def elsewhere_notes(testbed: Testbed, shifts: Sequence[Shift]) -> list[str]:
    """How many models are left out of shifts between domains of a task, if any is."""
    counts = {len(trained_elsewhere(testbed, shift)) for shift in shifts} - {0}
    if not counts:
        return []
    some = counted(max(counts), "model") if len(counts) == 1 else f"up to {max(counts)} models"
    return [
        "A shift between domains of a task is about models trained on its ID data: "
        f"{some} trained on its other domains left out."
    ]


def unjudged_notes(testbed: Testbed, shifts: Sequence[Shift]) -> list[str]:
    """Models left out: trained on other domains; without an accuracy on a shift's class twin."""
    said = elsewhere_notes(testbed, shifts)
    for shift in shifts:
        if shift.full_source is None:
            continue
        there = np.isfinite(testbed.accuracy(shift.full_source) + testbed.accuracy(shift.target))
        lacking = int((there & ~np.isfinite(testbed.accuracy(shift.source[0]))).sum())
        if lacking:
            said.append(
                f"{shift.name}: {counted(lacking, 'model')} without an accuracy on "
                f"{shift.source[0]} left out; the whole ID set judges them too (full_id of rank)."
            )
    return said
