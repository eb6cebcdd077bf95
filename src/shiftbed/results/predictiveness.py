"""Which metric predicts OOD error? ``predictiveness``: scores, a matrix, transfer (wenzel2022)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import polars as pl

from shiftbed.display import SAID, Cell, Table, between, counted, number, p_value, plain, records
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs import PairStudy, Source, name_of, notes_of, open_pairs
from shiftbed.results.pairs.added import with_upstream
from shiftbed.results.pairs.averages import (
    DRAWN,
    TABLES,
    Averaged,
    by_group,
    matrix,
    scores,
    study,
    transfer,
)

if TYPE_CHECKING:
    from shiftbed.figures.charts import Bars, Heatmap


def predictiveness(
    source: Source,
    *,
    show: str = "scores",
    method: str = "spearman",
    target: str = "ood:error",
    given: str = "id:error",
    by: str | None = None,
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    also: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    checkpoint: str = "last",
    attacks: str = "mean",
    upstream: str | None = None,
    unit: str = "two-way",
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> "MetricPredictiveness":
    """Which metric predicts OOD error? Averaged correlations over (ID, OOD) pairs, with intervals.

    ``show`` is which table is the ``frame``: scores (each metric with the ``target``, alone and
    ``given`` another), matrix (every two metrics) or transfer (each metric with itself on OOD
    data); ``by`` makes one per task, kind of shift, shift-type (``artificial → real``) or value of
    a recipe column, such as data_size. ``upstream`` is the recipe column with the backbone's timm
    name ("model": the models' own names). ``unit`` is what intervals resample: pairs that share an
    ID set or an OOD set are not independent, so both kinds of sets are drawn (``two-way``);
    ``pair`` takes pairs as independent, which covers 54 to 77 % where 95 % is said. Others as in
    ``open_pairs`` and ``study``.

    >>> found = predictiveness("imagenet-testbed-2020", bootstrap=100)
    >>> found.frame.select("metric", "pairs", "tasks").row(0)
    ('id:error', 15, 1)
    """
    if show not in TABLES:
        raise unknown("table", show, TABLES)
    pairs = open_pairs(
        source,
        kind=kind,
        task=task,
        also=also,
        only=only,
        checkpoint=checkpoint,
        attacks=attacks,
    )
    if upstream is not None:
        pairs = with_upstream(pairs, None if upstream == "model" else upstream)
    found = study(
        pairs,
        method=method,
        target=target,
        given=given,
        bootstrap=bootstrap,
        seed=seed,
        level=level,
        unit=unit,
    )
    make = TABLES[show]
    return MetricPredictiveness(
        frame=make(found) if by is None else by_group(found, by, make),
        notes=tuple(notes_of(pairs)),
        source=name_of(source),
        pairs=pairs,
        study=found,
        show=show,
        by=by,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MetricPredictiveness(PairStudy):
    """How well metrics predict OOD error; ``frame`` is the table that was asked for."""

    json_keys = (
        "source study.found.method study.target study.given study.level study.unit "
        "study.found.pairs"
    )
    source: str
    study: Averaged
    show: str
    by: str | None

    def to_dict(self) -> dict[str, Any]:
        of, whole = self.study, matrix(self.study)
        arrays = ("metrics", "r", "low", "high", "pairs", "note")
        grouped = {"by": self.by, "groups": records(self.frame)} if self.by is not None else {}
        return super().to_dict() | {
            "tasks": list(dict.fromkeys(of.found.tasks)),
            "scores": records(scores(of)),
            "transfer": records(transfer(of)),
            "matrix": {name: plain(getattr(whole, name)) for name in arrays},
            **grouped,
        }

    def answer(self) -> Iterable[str]:
        """The largest correlation, of each group if there are any."""
        of, known = self.study, self.frame.drop_nulls("r").sort("r", descending=True)
        says = {
            "scores": f"{{metric}} predicts {of.target} best",
            "matrix": "{a} and {b} go together most",
            "transfer": "{metric} of {from} data predicts itself best",
        }[self.show]
        best = known.unique(self.by, keep="first", maintain_order=True) if self.by else known
        for row in records(best.head(SAID if self.by else 1)):
            group = f"{row[self.by]}: " if self.by else ""
            ends = between(row["low"], row["high"], partial(number, digits=3))
            around = f" ({100 * of.level:g} % interval {ends})" if ends else ""
            yield f"{group}{says.format_map(row)}: r {number(row['r'], 3)}{around}."
        if self.show == "scores" and not self.by:
            better = known.filter(pl.col("more_low") > 0)["metric"].to_list()
            yield f"Clearly better than {of.given}: {', '.join(better) or 'none'}."

    def tables(self) -> Iterable[Table]:
        found, of = self.study.found, self.study
        pairs, tasks = counted(len(found.pairs), "pair"), counted(len(set(found.tasks)), "task")
        notes = [
            f"{found.method.capitalize()} over networks, averaged over {pairs} of {tasks} with "
            f"equal weight per task; {100 * of.level:g} % intervals from {of.bootstrap} resamples "
            f"of {DRAWN[of.unit]} within tasks. Accuracies count as errors: above 0, two metrics "
            "are low together."
        ]
        if self.show == "scores":
            notes.append(
                f"adjusted: with the residuals of {of.target} given {of.given}. "
                f"more: r minus that of {of.given}, over the pairs that have both."
            )
        titles = {
            "scores": f"how well each metric predicts {of.target}",
            "matrix": "averaged correlations of every two metrics",
            "transfer": "how well each metric predicts itself on OOD data",
        }
        title = f"{self.source}: {titles[self.show]}"
        yield interval_table(title, self.frame, [*notes, *self.notes])
        yield self.networks_table()

    def chart(self) -> "Bars | Heatmap":
        """The table as bars or a heat map (Figs. 3, 4 and S1)."""
        from shiftbed.results.charts import predictiveness as charts

        of, by = self.study, self.by
        predicts = f"{self.source}: what predicts {of.target}"
        if by is not None:
            if self.show != "scores":
                raise InputError(
                    f"a figure by {by} is of the scores; draw the {self.show} without --by"
                )
            return self.noted(charts.group_heatmap(self.frame, by, title=predicts))
        if self.show == "scores":
            bars = charts.score_bars(
                self.frame,
                title=predicts,
                target=of.target,
                given=of.given,
                method=of.found.method.capitalize(),
            )
            return self.noted(bars)
        if self.show == "matrix":
            whole = matrix(of)
            title = f"{self.source}: averaged correlations"
            ends = whole.low, whole.high
            return self.noted(charts.matrix_heatmap(whole.metrics, whole.r, *ends, title=title))
        title = f"{self.source}: transfer to OOD data"
        return self.noted(charts.transfer_bars(self.frame, title=title))


def interval_table(title: str, frame: pl.DataFrame, notes: Iterable[str] = ()) -> Table:
    """A finished table: an interval in one column, p-values that never print as zero."""
    hidden = ("alternative", "chosen_by", "unit")
    names = [c for c in frame.columns if not c.endswith("high") and c not in hidden]
    form = partial(number, digits=3)

    def cell(name: str) -> Cell:
        if name.endswith("low"):
            return lambda row: between(row[name], row[name.replace("low", "high")], form)
        if name in ("p_value", "q_value"):
            return name, p_value
        return name, lambda value: number(value, 3) if isinstance(value, float) else value

    heads = [name.replace("low", "interval").replace("_", " ") for name in names]
    columns = dict(zip(heads, map(cell, names), strict=True))
    left = len(list(takewhile(lambda name: frame.schema[name] == pl.String, names)))
    return Table.of(title, frame, columns, notes=notes, left=left)
