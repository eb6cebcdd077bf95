"""OOD accuracies without OOD labels: ``estimate``, judged where labels exist."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.label_free import TRUSTED_R2, AgreementLine
from shiftbed.display import SAID, Row, Table, between, counted, percent, points, records, schema
from shiftbed.results.charts import Charted
from shiftbed.results.joint_answers import Source, matched, open_answers, open_two
from shiftbed.results.label_free import (
    NEEDS,
    WORDS,
    Bias,
    accuracy_line,
    agreement_line,
    labelled_places,
    learnt_bias,
    rehearsal,
    with_labels,
    without_labels,
)

if TYPE_CHECKING:
    from shiftbed.figures.charts import Dots

METHODS = {
    "ALine-S": "agreement-on-the-line, the line of agreements",
    "ALine-D": "agreement-on-the-line, each model by its own agreements",
    "ATC-MC": "average thresholded confidence, largest probability",
    "ATC-NE": "average thresholded confidence, negative entropy",
    "DoC": "difference of confidences",
    "AC": "average confidence",
    "ID": "the ID accuracy itself, for comparison",
}
FEW_LABELS = {
    "PPI": "prediction-powered: a few labels, and guesses for all images",
    "labels": "the few labels alone",
}
_KINDS = dict.fromkeys(("ATC-MC", "ATC-NE", "DoC", "AC", "labels"), "independent")
_KINDS |= {"ALine-S": "modelled", "ALine-D": "modelled", "PPI": "paired"}
"""What an interval is from: images as independent; a bias modelled on other shifts; answers and
guesses on the same images."""
PREMISE = "intervals of ATC, DoC and AC take their premise as true: they may be far too narrow"


def estimate(
    source: Source,
    target: Source | None = None,
    *,
    id: str | None = None,
    ood: str | None = None,
    model: Sequence[str] | None = None,
    labels: int | Sequence[int] | NDArray[Any] | None = None,
    labelled: Sequence[Source] | None = None,
    seed: int = 0,
    most: int = 20,
    level: float = 0.95,
) -> "Estimates":
    """OOD accuracy without OOD labels: agreement-on-the-line, thresholded confidence and others.

    ``source`` and ``target`` are ID and OOD predictions (.npz files, stores, testbeds with results
    per image), or ``id`` and ``ood`` two settings of one. If OOD labels are there they only serve
    to say how far off each method is. Tables show the ``most`` accurate models.

    ``labels``: so many OOD images, drawn at random (``seed``), have labels that may be used, or
    those at these places; then prediction-powered estimates (PPI) and what the labels say alone are
    rows too. ``labelled`` are other shifts with labels (settings of ``source`` where there is no
    ``target``, else files or stores): two or more say how far agreement-on-the-line is off as a
    whole, which is part of its interval; without them that is unknown and it has none.
    """
    first, second = open_two(source, target, id, ood, scores=True)
    if model:
        first, second = first.of(model), second.of(model)
    rehearsed = rehearsal(first)
    others = [
        open_answers(*((source, str(one)) if target is None else (one,))) for one in labelled or ()
    ]
    bias = learnt_bias(first, others, second.setting)
    first, second = matched(first, second)
    right = first.judged()
    missing: dict[str, str] = {}
    line = agreement_line(first, second, level, missing)
    chosen = None if labels is None else labelled_places(second, labels, seed)
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(first.models):
        row = {
            "model": name,
            "id_accuracy": float(right[i].mean()),
            "truth": None if second.right is None else float(second.right[i].mean()),
            "n_id": first.n,
            "n_ood": second.n,
        }
        found = [*without_labels(first, second, line, bias, i, level)]
        found += [] if chosen is None else with_labels(first, second, chosen, i, level)
        for method, one in found:
            ends = {"estimate": one.value, "low": one.low, "high": one.high, "note": one.note}
            kind = _KINDS.get(method) if np.isfinite(one.low) else None
            rows.append(row | {"method": method, "interval": kind} | ends)
    for method, score in NEEDS.items():
        without = len(first.models) - sum(row["method"] == method for row in rows)
        if without:
            which = "" if without == len(first.models) else f"for {without} models: "
            missing[method] = f"{which}needs {WORDS[score]}"
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row").with_columns(
        pl.col("estimate", "low", "high").fill_nan(None),
        (pl.col("estimate") - pl.col("truth")).alias("error"),
    )
    order = {name: i for i, name in enumerate((*FEW_LABELS, *METHODS))}
    by_method = pl.col("method").replace_strict(order, return_dtype=pl.Int64)
    frame = frame.sort(by_method, maintain_order=True)
    return Estimates(
        frame=frame,
        called={**first.called, **second.called},
        source=first.setting,
        target=second.setting,
        line=line,
        errors=_errors(frame),
        not_computable=missing,
        accuracy_line=None if second.right is None else accuracy_line(right, second.right),
        rehearsed=rehearsed,
        flags=tuple(_flags(frame, bias)),
        labels=0 if chosen is None else len(chosen),
        most=most,
        level=level,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Estimates(Charted):
    """Estimates of OOD accuracy; ``frame`` has a row per method and model.

    model, method, id_accuracy, estimate, low, high, interval (what it is from; null: withheld),
    truth, n_id, n_ood, note, error.
    """

    json_keys = "id=source ood=target labels flags estimates=frame errors not_computable"
    source: str
    target: str
    line: AgreementLine | None
    """None where there are too few models for it."""
    errors: pl.DataFrame
    """method, mae, bias, largest, covered, models: against the labels, where there are."""
    not_computable: Mapping[str, str]
    """Why a method is missing."""
    accuracy_line: tuple[float, float] | None
    """Slope and bias of the line of accuracies in probit space, where OOD labels exist."""
    rehearsed: tuple[float, float, int] | str
    """See ``rehearsal``."""
    flags: tuple[str, ...]
    """What is to be known about the intervals."""
    labels: int
    """OOD images whose labels were used."""
    most: int
    level: float

    def to_dict(self) -> dict[str, Any]:
        lines: dict[str, Any] = {}
        if (line := self.line) is not None:
            fitted = ("slope", "slope_error", "bias", "bias_error", "r2", "pairs")
            own = {name: getattr(line, name) for name in fitted}
            lines["agreement_line"] = own | {"dropped_pairs": line.dropped, "scale": "probit"}
            lines["check"] = {"holds": line.holds, "reasons": list(line.reasons)}
        if self.accuracy_line is not None:
            slope, bias = self.accuracy_line
            lines["accuracy_line"] = {"slope": slope, "bias": bias, "scale": "probit"}
        if isinstance(self.rehearsed, str):
            lines["rehearsal"] = {"mae": None, "why": self.rehearsed}
        else:
            names = ("mae", "r2", "models")
            lines["rehearsal"] = dict(zip(names, self.rehearsed, strict=True))
        return super().to_dict() | lines | {"families": None}

    def answer(self) -> Iterable[str]:
        if len(errors := self.errors.filter(pl.col("method") != "ID")):
            best = errors.sort("mae").row(0, named=True)
            yield (
                f"Closest to the labels: {best['method']}, off by {percent(best['mae'])} points on "
                f"average over {counted(best['models'], 'model')}."
            )
            return
        holds = self.line is not None and self.line.holds
        order = ["PPI", *(["ALine-D"] if holds else []), "ATC-MC", "DoC", "AC"]
        method = next((one for one in order if one in set(self.frame["method"])), None)
        rows = self.frame.filter(pl.col("method") == (method or "")).drop_nulls("estimate")
        for row in records(rows.sort("id_accuracy", descending=True).head(SAID)):
            ends = between(row["low"], row["high"])
            found = f"{percent(row['estimate'])} %{f' ({ends})' if ends else ''}"
            how = (METHODS | FEW_LABELS)[row["method"]]
            yield f"{row['model']}: about {found} right on {self.target} ({how})."
        if not len(rows):
            yield f"No accuracy on {self.target} can be estimated that is to be trusted."

    def tables(self) -> Iterable[Table]:
        by_model: dict[str, dict[str, Row]] = {}
        for row in records(self.frame.sort("id_accuracy", descending=True, maintain_order=True)):
            by_model.setdefault(row["model"], {})[row["method"]] = row
        methods = [m for m in self.frame["method"].unique(maintain_order=True) if m != "ID"]
        columns: dict[str, Any] = {
            "model": lambda row: row["ID"]["model"],
            f"on {self.source}": lambda row: percent(row["ID"]["estimate"]),
        }
        if self.frame["truth"].null_count() == 0:
            columns["measured"] = lambda row: percent(row["ID"]["truth"])
        columns |= {m: lambda row, m=m: _with_interval(row.get(m)) for m in methods}
        notes = list(self._remarks())
        if len(by_model) > self.most:
            notes.insert(
                0, f"The {self.most} most accurate of {len(by_model)} models; -n shows more."
            )
        yield Table.of(
            f"Accuracy on {self.target} estimated from {self.source} "
            f"{f'with {self.labels} labels' if self.labels else 'without labels'} (%), "
            f"{100 * self.level:g} % intervals",
            list(by_model.values())[: self.most],
            columns,
            notes=notes,
        )
        if len(self.errors):
            yield Table.of(
                "Against the labels (points)",
                self.errors,
                {
                    "method": "method",
                    "mean abs. error": ("mae", percent),
                    "bias": ("bias", points),
                    "largest": ("largest", percent),
                    "intervals that cover": (
                        "covered",
                        lambda share: "" if share is None else f"{percent(share, 0)} %",
                    ),
                    "models": "models",
                },
            )

    def _remarks(self) -> Iterator[str]:
        if (line := self.line) is not None:
            yield (
                f"Line of agreements (probit, {line.pairs:,} pairs): slope {line.slope:.4f} ± "
                f"{line.slope_error:.4f}, bias {line.bias:.4f} ± {line.bias_error:.4f}, R² "
                f"{line.r2:.4f}: "
                + (
                    "agreements lie on a line; only labels can show whether accuracies share it."
                    if line.holds
                    else f"below {TRUSTED_R2}, agreements do not lie on a line: do not trust ALine."
                )
            )
            for reason in line.reasons:
                if line.holds or "R²" not in reason:
                    yield f"Warning: {reason}."
            if line.dropped:
                yield f"{line.dropped} pairs agree always or never and are not in the line."
        if self.accuracy_line is not None:
            slope, bias = self.accuracy_line
            yield f"Line of accuracies, from the labels: slope {slope:.4f}, bias {bias:.4f}."
        if isinstance(self.rehearsed, str):
            yield f"Rehearsal on ID data: {self.rehearsed}."
        else:
            mae, r2, _ = self.rehearsed
            yield (
                f"Rehearsal from half of the ID classes to the others, labels known: mean absolute "
                f"error {percent(mae)} points, R² {r2:.4f}."
            )
        for method, why in self.not_computable.items():
            yield f"{method} not computable: {why}."
        for flag in self.flags:
            yield f"{flag[0].upper()}{flag[1:]}."

    def chart(self) -> "Dots":
        """Estimates against the measured accuracy, or against ID accuracy where there is none."""
        from shiftbed.results.charts.similarity import estimates_chart

        return estimates_chart(self.frame, self.source, self.target)


def _with_interval(row: Row | None) -> str:
    if row is None:
        return ""
    if row["estimate"] is None:
        return "–"
    if row["low"] is None:
        return percent(row["estimate"])
    return f"{percent(row['estimate'])} [{percent(row['low'], 1)}, {percent(row['high'], 1)}]"


_SCHEMA = schema(
    "model method: str; id_accuracy estimate low high: float; interval: str; truth: float; "
    "n_id n_ood: int; note: str"
)


def _flags(frame: pl.DataFrame, bias: Bias) -> Iterator[str]:
    methods = set(frame["method"])
    if "ALine-S" in methods:
        if isinstance(bias, str):
            yield f"agreement-on-the-line has no interval: {bias}"
        else:
            yield (
                f"on {bias[1]} labelled shifts agreement-on-the-line was off by {bias[0]:.3f} "
                "probits, which is part of its interval"
            )
    if methods & {"ATC-MC", "ATC-NE", "DoC", "AC"}:
        yield PREMISE
    few = frame.filter(pl.col("method") == "PPI", pl.col("note") != "")
    if len(few):
        yield f"{len(few)} models have few right or few wrong labelled answers (see their notes)"


def _errors(estimates: pl.DataFrame) -> pl.DataFrame:
    """Against the labels, by method; ``covered`` is the share of intervals that hold the truth."""
    judged = estimates.filter(pl.col("error").is_not_null())
    inside = pl.col("truth").is_between(pl.col("low"), pl.col("high"))
    return judged.group_by("method", maintain_order=True).agg(
        pl.col("error").abs().mean().alias("mae"),
        pl.col("error").mean().alias("bias"),
        pl.col("error").abs().max().alias("largest"),
        inside.mean().alias("covered"),  # null where no interval is
        pl.len().alias("models"),
    )
