"""OOD accuracies without OOD labels: ``estimate``, judged where labels exist."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import off_boundary
from shiftbed.analysis.label_free import (
    TRUSTED_R2,
    AgreementLine,
    Estimate,
    agreement_on_the_line,
    average_confidence,
    difference_of_confidences,
    thresholded_confidence,
)
from shiftbed.display import Row, Table, percent, points, records
from shiftbed.errors import InputError
from shiftbed.results.charts import Charted
from shiftbed.results.joint_answers import (
    MAX_PROBABILITY,
    NEGATIVE_ENTROPY,
    JointAnswers,
    Source,
    matched,
    open_two,
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
_NEEDS = {
    "ATC-MC": MAX_PROBABILITY,
    "ATC-NE": NEGATIVE_ENTROPY,
    "DoC": MAX_PROBABILITY,
    "AC": MAX_PROBABILITY,
}
_WORDS = {
    MAX_PROBABILITY: "probabilities, and there are only predicted classes",
    NEGATIVE_ENTROPY: "the probabilities of all classes (evaluate with logits kept)",
}


def estimate(
    source: Source,
    target: Source | None = None,
    *,
    id: str | None = None,
    ood: str | None = None,
    model: Sequence[str] | None = None,
    most: int = 20,
    level: float = 0.95,
) -> "Estimates":
    """OOD accuracy without OOD labels: agreement-on-the-line, thresholded confidence and others.

    ``source`` and ``target`` are ID and OOD predictions (.npz files, stores, testbeds with results
    per image), or ``id`` and ``ood`` two settings of one. If OOD labels are there they only serve
    to say how far off each method is. Tables show the ``most`` accurate models.
    """
    first, second = open_two(source, target, id, ood, scores=True)
    if model:
        first, second = first.of(model), second.of(model)
    rehearsed = rehearsal(first)
    first, second = matched(first, second)
    right = first.judged()
    missing: dict[str, str] = {}
    line = _line(first, second, level, missing)
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(first.models):
        row = {
            "model": name,
            "id_accuracy": float(right[i].mean()),
            "truth": None if second.right is None else float(second.right[i].mean()),
            "n_id": first.n,
            "n_ood": second.n,
        }
        for method, one in _estimates(first, second, line, i, level):
            ends = {"estimate": one.value, "low": one.low, "high": one.high, "note": one.note}
            rows.append(row | {"method": method} | ends)
    for method, score in _NEEDS.items():
        without = len(first.models) - sum(row["method"] == method for row in rows)
        if without:
            which = "" if without == len(first.models) else f"for {without} models: "
            missing[method] = f"{which}needs {_WORDS[score]}"
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row").with_columns(
        pl.col("estimate", "low", "high").fill_nan(None),
        (pl.col("estimate") - pl.col("truth")).alias("error"),
    )
    order = {name: i for i, name in enumerate(METHODS)}
    by_method = pl.col("method").replace_strict(order, return_dtype=pl.Int64)
    frame = frame.sort(by_method, maintain_order=True)
    return Estimates(
        frame=frame,
        source=first.setting,
        target=second.setting,
        line=line,
        errors=_errors(frame),
        not_computable=missing,
        accuracy_line=None if second.right is None else _accuracy_line(right, second.right),
        rehearsed=rehearsed,
        most=most,
        level=level,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Estimates(Charted):
    """Estimates of OOD accuracy; ``frame`` has a row per method and model.

    model, method, id_accuracy, estimate, low, high, truth, n_id, n_ood, note, error.
    """

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
    most: int
    level: float

    def to_dict(self) -> dict[str, Any]:
        lines: dict[str, Any] = {}
        if (line := self.line) is not None:
            lines["agreement_line"] = {
                "slope": line.slope,
                "slope_error": line.slope_error,
                "bias": line.bias,
                "bias_error": line.bias_error,
                "r2": line.r2,
                "pairs": line.pairs,
                "dropped_pairs": line.dropped,
                "scale": "probit",
            }
            lines["check"] = {"holds": line.holds, "reasons": list(line.reasons)}
        if self.accuracy_line is not None:
            slope, bias = self.accuracy_line
            lines["accuracy_line"] = {"slope": slope, "bias": bias, "scale": "probit"}
        if isinstance(self.rehearsed, str):
            lines["rehearsal"] = {"mae": None, "why": self.rehearsed}
        else:
            names = ("mae", "r2", "models")
            lines["rehearsal"] = dict(zip(names, self.rehearsed, strict=True))
        return {
            "id": self.source,
            "ood": self.target,
            "estimates": records(self.frame),
            "errors": records(self.errors),
            **lines,
            "not_computable": dict(self.not_computable),
        }

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
            f"Accuracy on {self.target} estimated from {self.source} without labels (%), "
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
        yield "Intervals cover noise of images and models, not a premise that is wrong."

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


_SCHEMA = {
    "model": pl.String,
    "method": pl.String,
    "id_accuracy": pl.Float64,
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "truth": pl.Float64,
    "n_id": pl.Int64,
    "n_ood": pl.Int64,
    "note": pl.String,
}


def _line(
    source: JointAnswers, target: JointAnswers, level: float, missing: dict[str, str]
) -> AgreementLine | None:
    if source.classes is None or target.classes is None:
        why = "needs the predicted classes, and only right and wrong are there"
    else:
        try:
            return agreement_on_the_line(
                source.judged(), source.classes, target.classes, level=level
            )
        except InputError as error:
            why = str(error)
    missing.update({"ALine-S": why, "ALine-D": why})
    return None


def _estimates(
    source: JointAnswers, target: JointAnswers, line: AgreementLine | None, i: int, level: float
) -> Iterator[tuple[str, Estimate]]:
    right, sizes = source.judged()[i], {"n_id": source.n, "n_ood": target.n}
    if line is not None:
        note = "ID accuracy outside the agreements' range" if line.extrapolated[i] else ""
        for method, name in (("ALine-S", "simple"), ("ALine-D", "direct")):
            value, low, high = (
                float(getattr(line, name + end)[i]) for end in ("", "_low", "_high")
            )
            alone = "" if np.isfinite(value) else "agrees always or never with every other model"
            notes = "; ".join(filter(None, [note, alone]))
            yield method, Estimate(value=value, low=low, high=high, note=notes, **sizes)
    methods: dict[str, Callable[[NDArray[Any], NDArray[Any]], Estimate]] = {
        "ATC-MC": lambda s, t: thresholded_confidence(s, right, t, level=level),
        "ATC-NE": lambda s, t: thresholded_confidence(s, right, t, level=level),
        "DoC": lambda s, t: difference_of_confidences(s, right, t, level=level),
        "AC": lambda s, t: average_confidence(t, level=level),
    }
    for method, estimate in methods.items():
        scores = [side.scores.get(_NEEDS[method]) for side in (source, target)]
        rows = [None if score is None else score[i] for score in scores]
        if all(row is not None and np.isfinite(row).all() for row in rows):
            yield method, estimate(np.asarray(rows[0]), np.asarray(rows[1]))
    unknown = float("nan")
    note = "no interval: it is no estimate of OOD accuracy"
    yield "ID", Estimate(value=float(right.mean()), low=unknown, high=unknown, note=note, **sizes)


def _errors(estimates: pl.DataFrame) -> pl.DataFrame:
    """Against the labels, by method; ``covered`` is the share of intervals that hold the truth."""
    judged = estimates.filter(pl.col("error").is_not_null())
    inside = pl.col("truth").is_between(pl.col("low"), pl.col("high"))
    return judged.group_by("method", maintain_order=True).agg(
        pl.col("error").abs().mean().alias("mae"),
        pl.col("error").mean().alias("bias"),
        pl.col("error").abs().max().alias("largest"),
        inside.mean().alias("covered"),
        pl.len().alias("models"),
    )


def _accuracy_line(
    right_id: NDArray[np.bool_], right_ood: NDArray[np.bool_]
) -> tuple[float, float] | None:
    x, y = (
        ndtri(off_boundary(right.mean(axis=1), right.shape[1])) for right in (right_id, right_ood)
    )
    if len(x) < 2 or float(np.ptp(x)) < 1e-9:
        return None
    slope = float(np.cov(x, y)[0, 1] / np.var(x, ddof=1))
    return slope, float(y.mean() - slope * x.mean())


def rehearsal(source: JointAnswers, *, seed: int = 0) -> tuple[float, float, int] | str:
    """Agreement-on-the-line where the answer is known: from half of the ID classes to the others.

    Mean absolute error of ALine-S, R² of the agreements' line, and the number of models; or why
    there is none. A change of classes is a mild shift: a large error here warns, a small one does
    not promise.
    """
    right, labels, classes = source.judged(), source.labels, source.classes
    if labels is None or classes is None:
        return "needs labels and predicted classes"
    there = np.unique(labels[labels >= 0])
    if len(there) < 4:
        return f"needs at least four classes, there are {len(there)}"
    half = np.random.default_rng(seed).permutation(there)[: len(there) // 2]
    first = np.isin(labels, half)
    second = ~first & (labels >= 0)
    try:
        line = agreement_on_the_line(right[:, first], classes[:, first], classes[:, second])
    except InputError as error:
        return str(error)
    off = np.abs(line.simple - right[:, second].mean(axis=1))
    return float(off.mean()), line.r2, len(right)
