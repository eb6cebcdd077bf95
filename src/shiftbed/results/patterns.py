"""The shape of OOD over ID accuracy, pair by pair: ``patterns``, and how often each occurs."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.intervals import check_draws, clopper_pearson
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.patterns import PATTERNS, Pattern, Rules, classify
from shiftbed.analysis.trust import Limits, Trust, trust_line
from shiftbed.display import Row, Table, counted, number, percent, schema
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs import PairStudy, Source, name_of, open_pairs
from shiftbed.results.pairs.networks import said
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed, open_testbed

if TYPE_CHECKING:
    from shiftbed.figures.charts import Bars, Panels

ALL = "all"
DRAWN = ("scatters", "counts")
"""What a chart of patterns can show."""


def patterns(
    source: Source,
    *,
    classes: int | Mapping[str, int] | None = None,
    images: Mapping[str, int] | None = None,
    groups: str | None = None,
    scale: str = "logit",
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    checkpoint: str = "last",
    bootstrap: int = 200,
    seed: int = 0,
    level: float = 0.95,
) -> "PatternStudy":
    """Which shape has OOD over ID accuracy: line, vertical, horizontal, decreasing, none?

    ``classes`` is the number of classes, of all tasks or by task ("" for all others), where it is
    not the one that a store knows: chance is 1/classes. ``images`` are sizes of test sets where the
    source does not know them, ``groups`` a recipe column whose values could have lines of their
    own; ``kind``, ``task``, ``only`` and ``checkpoint`` as in ``open_pairs``.
    """
    check_draws(bootstrap, level)
    pairs = open_pairs(source, kind=kind, task=task, only=only, checkpoint=checkpoint)
    counts = {"": classes} if isinstance(classes, int) else dict(classes or {})
    tasks = sorted({pair.task for pair in pairs})
    for name, count in counts.items():
        if name and name not in tasks:
            raise unknown("task", name, tasks)
        if count < 2:
            raise InputError(f"classes: expected a whole number of at least 2, got {count}")
    bed = _bed(source)
    found = pattern_table(
        pairs,
        classes=counts,
        images=_sizes(bed, pairs, images or {}),
        groups=groups,
        scale=scale,
        bootstrap=bootstrap,
        level=level,
        seed=seed,
        trusts=_trusts(bed, pairs) if scale == "logit" and groups is None else {},
    )
    return PatternStudy(
        frame=found,
        notes=(
            *sorted({f"{note.split('; ')[0]}." for note in found["note"].drop_nulls()}),
            *said(pairs),
        ),
        source=name_of(source),
        scale=scale,
        level=level,
        counts=pattern_counts(found, level),
        pairs=pairs,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PatternStudy(PairStudy):
    """The pattern of every pair, a row each in ``frame``, and how often each occurs by task."""

    json_keys = "source scale level pairs=frame counts"
    source: str
    scale: str
    level: float
    counts: pl.DataFrame

    def answer(self) -> Iterable[str]:
        counts = self.frame["pattern"].value_counts(sort=True).iter_rows()
        found = ", ".join(f"{count} {pattern}" for pattern, count in counts)
        yield (
            f"Of {counted(len(self.frame), 'pair')}: {found}; the line is trusted in "
            f"{int(self.frame['trusted'].sum())}."
        )

    def tables(self) -> Iterable[Table]:
        def why(row: Row) -> Any:
            line = row["pattern"] == "increasing"
            return row["why_not"] if line and row["why_not"] else row["reason"]

        yield Table.of(
            f"{self.source}: OOD over ID accuracy of {counted(len(self.frame), 'pair')}",
            self.frame,
            {
                "task": "task",
                "ID → OOD": lambda row: f"{row['id']} → {row['ood']}",
                "pattern": "pattern",
                "nearest": "nearest",
                "margin": ("margin", lambda value: number(value, 1)),
                "share": ("share", lambda value: percent(value, 0)),
                "rank": ("rank", lambda value: number(value, 2)),
                "n": "n",
                "line": ("trusted", lambda trusted: "trusted" if trusted else "not trusted"),
                "why": why,
            },
            left=4,
            notes=[
                "margin: standard errors between the nearest measure and the threshold beyond "
                "which the pattern would be the nearest one; share: of resampled networks with the "
                "same pattern (%); rank: Spearman's r. --json has all measures with their "
                "intervals.",
                "trusted: by the rule that every command has; of a shift its own line, of other "
                "pairs one through all their models.",
                *self.notes,
            ],
        )
        yield Table.of(
            "Patterns by task",
            self.counts,
            {
                "task": "task",
                "pattern": "pattern",
                "pairs": "pairs",
                "of": "of",
                "share (%)": ("share", lambda value: percent(value, 1)),
                f"{100 * self.level:g} % interval": lambda row: (
                    f"{percent(row['low'], 1)} … {percent(row['high'], 1)}"
                ),
                "trusted": "trusted",
            },
            left=2,
        )
        yield self.networks_table()

    def chart(self, draw: str = "scatters") -> "Panels | Bars":
        """All scatters, each named by its pattern, or the counts by task."""
        from shiftbed.results.charts.factors import count_bars, pattern_panels

        if draw not in DRAWN:
            raise unknown("figure", draw, DRAWN)
        title = f"{self.source}: patterns of OOD over ID accuracy"
        if draw == "counts":
            return self.noted(count_bars(self.counts, title=title))
        return self.noted(pattern_panels(self.pairs, self.frame, title=title))


def _bed(source: Source) -> Testbed | None:
    """The testbed that pairs are of; a plain file has none."""
    if not isinstance(source, str | Path | Testbed | PredictionStore):
        return None
    try:
        return open_testbed(source)
    except InputError:
        return None


def _sizes(
    bed: Testbed | None, pairs: Sequence[PairTable], images: Mapping[str, int]
) -> dict[str, int]:
    """Test-set sizes: those given, and those that a testbed or store knows."""
    settings = {name for pair in pairs for name in (pair.source, pair.target)}
    for name, size in images.items():
        if name not in settings:
            raise unknown("setting", name, sorted(settings))
        if size < 1:
            raise InputError(f"images: expected a whole number of at least 1, got {size}")
    known = settings & set(bed.settings) if bed is not None else ()
    return {s: bed.usual_size(s) for s in known if bed is not None} | dict(images)


def _trusts(bed: Testbed | None, pairs: Sequence[PairTable]) -> dict[tuple[str, str], Trust]:
    """Where a pair is a shift of a testbed: whether that shift's line, which judges models, is
    trusted, so that every command says the same of it."""
    wanted = {(pair.source, pair.target) for pair in pairs}
    found: dict[tuple[str, str], Trust] = {}
    for shift in () if bed is None else bed.shifts:
        key = (shift.source[0], shift.target)
        if bed is not None and len(shift.source) == 1 and key in wanted and key not in found:
            with suppress(InputError):
                found[key] = bed.trust(bed.fit(shift, bootstrap=0))
    return found


def pattern_table(
    pairs: Sequence[PairTable],
    *,
    classes: Mapping[str, int] | None = None,
    images: Mapping[str, int] | None = None,
    groups: str | None = None,
    scale: str = "logit",
    rules: Rules | None = None,
    limits: Limits | None = None,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    trusts: Mapping[tuple[str, str], Trust] | None = None,
) -> pl.DataFrame:
    """A row per pair: its pattern with margins and measures, and whether its line is trusted.

    ``classes`` is the number of classes by task ("" for all tasks), ``images`` the size of a test
    set by its name, ``groups`` a column of the networks' recipes that could have lines of its own.
    ``trusts`` says by (ID, OOD) whether a line is trusted that is fitted already; that of other
    pairs goes through all their models.
    """
    rows = []
    for pair in pairs:
        x, y = accuracy_of(pair, "id"), accuracy_of(pair, "ood")
        given = classes or {}
        count = given.get(pair.task) or given.get("") or pair.classes
        sizes = [(images or {}).get(name, 0) for name in (pair.source, pair.target)]
        both = (sizes[0], sizes[1]) if min(sizes) > 0 else None
        if groups is not None and groups not in pair.info:
            raise unknown(f"recipe column of {pair.name}", groups, pair.info)
        pattern = classify(
            x,
            y,
            chance=1.0 / count if count else None,
            sizes=both,
            scale=scale,
            rules=rules,
            bootstrap=bootstrap,
            level=level,
            seed=seed,
        )
        trust = (trusts or {}).get((pair.source, pair.target)) or trust_line(
            x,
            y,
            models=pair.models,
            groups=pair.info[groups] if groups else None,
            sizes=both,
            scale=scale,
            pattern=pattern.pattern,
            limits=limits,
        )
        rows.append(_row(pair, pattern, trust))
    if not rows:
        raise InputError("there is no (ID, OOD) pair to classify")
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = schema(
    "task id ood kind pattern reason nearest margin_by: str; n left_out: int; margin share rank "
    "rank_low rank_high slope slope_low slope_high spread_id spread_ood steepness kept chance r2: "
    "float; trusted: bool; why_not note: str"
)


def _row(pair: PairTable, found: Pattern, trust: Trust) -> dict[str, Any]:
    measured = found.measures
    notes = list(found.notes)
    if found.pattern != "undecided" and np.isinf(found.margin):
        notes.append("no margin: no measure alone could change the pattern")
    if found.pattern != "undecided" and not found.draws:
        notes.append("no margin: no resampling was asked for")
    r2 = next((check.value for check in trust.checks if check.name == "r2"), None)
    row: dict[str, Any] = {name: value for name, value in vars(measured).items() if name in _SCHEMA}
    row |= {name: value for name, value in vars(found).items() if name in _SCHEMA}
    row |= {"task": pair.task, "id": pair.source, "ood": pair.target, "kind": pair.kind, "r2": r2}
    row |= {"nearest": found.nearest or None, "margin_by": found.margin_by or None}
    row |= {"rank": None if "no rank" in measured.undefined else measured.rank}
    row |= {"trusted": trust.trusted, "why_not": "; ".join(trust.reasons) or None}
    row |= {"note": "; ".join(notes) or None}
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in row.items()
    }


def pattern_counts(table: pl.DataFrame, level: float = 0.95) -> pl.DataFrame:
    """How many pairs of each task have each pattern, with its share and exact interval.

    A row per task and pattern, and for all tasks together; pairs of a task share networks and
    test sets, so the intervals, which take pairs as independent, are too narrow if anything.
    """
    tasks = table["task"].unique(maintain_order=True).to_list()
    rows = []
    for task in [*tasks, ALL] if len(tasks) > 1 else tasks:
        part = table if task == ALL and len(tasks) > 1 else table.filter(pl.col("task") == task)
        for pattern in PATTERNS:
            pairs = part.filter(pl.col("pattern") == pattern)
            share = len(pairs) / len(part)
            low, high = clopper_pearson(share, len(part), level)
            rows.append(
                {
                    "task": task,
                    "pattern": pattern,
                    "pairs": len(pairs),
                    "of": len(part),
                    "share": share,
                    "low": float(low),
                    "high": float(high),
                    "trusted": int(pairs["trusted"].sum()),
                }
            )
    return pl.DataFrame(rows)


def accuracy_of(pair: PairTable, where: str) -> NDArray[np.float64]:
    """(models,): accuracy = 1 − error there."""
    if f"{where}:accuracy" in pair.metrics:
        return pair.column(f"{where}:accuracy")
    return np.asarray(1.0 - pair.column(f"{where}:error"))
