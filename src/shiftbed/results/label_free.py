"""OOD accuracies without OOD labels, as a finished table, with their errors where labels exist."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import off_boundary
from shiftbed.analysis.label_free import (
    AgreementLine,
    Estimate,
    agreement_on_the_line,
    average_confidence,
    difference_of_confidences,
    thresholded_confidence,
)
from shiftbed.errors import InputError
from shiftbed.results.answers import (
    MAX_PROBABILITY,
    NEGATIVE_ENTROPY,
    JointAnswers,
    matched,
)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelFree:
    """Estimates of OOD accuracy by several methods."""

    source: str
    target: str
    line: AgreementLine | None
    """None where there are too few models for it."""
    estimates: pl.DataFrame
    """model, method, id_accuracy, estimate, low, high, truth, error, n_id, n_ood, note."""
    errors: pl.DataFrame
    """method, mae, bias, largest, covered, models: against the labels, where there are."""
    not_computable: dict[str, str] = field(default_factory=dict)
    """Why a method is missing."""
    accuracy_line: tuple[float, float] | None = None
    """Slope and bias of the line of accuracies in probit space, where OOD labels exist."""


def label_free(source: JointAnswers, target: JointAnswers, *, level: float = 0.95) -> LabelFree:
    """All methods for the models that two settings share; OOD labels only serve to judge them."""
    source, target = matched(source, target)
    right = source.judged()
    missing: dict[str, str] = {}
    line = _line(source, target, level, missing)
    rows: list[dict[str, Any]] = []
    for i, model in enumerate(source.models):
        row = {
            "model": model,
            "id_accuracy": float(right[i].mean()),
            "truth": None if target.right is None else float(target.right[i].mean()),
            "n_id": source.n,
            "n_ood": target.n,
        }
        for method, one in _estimates(source, target, line, i, level):
            ends = {"estimate": one.value, "low": one.low, "high": one.high, "note": one.note}
            rows.append(row | {"method": method} | ends)
    for method, score in _NEEDS.items():
        without = len(source.models) - sum(row["method"] == method for row in rows)
        if without:
            which = "" if without == len(source.models) else f"for {without} models: "
            missing[method] = f"{which}needs {_WORDS[score]}"
    estimates = pl.DataFrame(rows, schema=_SCHEMA, orient="row").with_columns(
        pl.col("estimate", "low", "high").fill_nan(None),
        (pl.col("estimate") - pl.col("truth")).alias("error"),
    )
    order = {name: i for i, name in enumerate(METHODS)}
    by_method = pl.col("method").replace_strict(order, return_dtype=pl.Int64)
    estimates = estimates.sort(by_method, maintain_order=True)
    return LabelFree(
        source=source.setting,
        target=target.setting,
        line=line,
        estimates=estimates,
        errors=_errors(estimates),
        not_computable=missing,
        accuracy_line=None if target.right is None else _accuracy_line(right, target.right),
    )


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

    Mean absolute error of ALine-S, R² of the agreements' line, and the number of models; or why it
    cannot be had. A change of classes is a mild shift: a large error here warns, a small one does
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
