"""The study's numbers as JSON, and its key tables as Markdown; nothing is computed twice."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shiftbed.results.groups import group_table
from shiftbed.results.joint_answers import answers_from_store
from shiftbed.results.predictors import AVERAGE, predictors
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore
from shiftbed.store.probes import PROBE_METRICS
from shiftbed.testbed import Testbed, testbed_from_store

__all__ = ["METRICS", "PROBED", "corruptions", "markdown", "results"]

PROBED = [metric for metric in PROBE_METRICS if not metric.endswith("_released")]
METRICS = ["cifar10", *(f"cifar10:{metric}" for metric in PROBED)]
"""What accuracies under shift are predicted from: ID accuracy and the probes."""
_NET, _AUGMENTATION = ["residual", "plain"], {"clean": "none", "augmix": "AugMix", "noise": "noise"}
_Z = 1.959963984540054
Row = dict[str, Any]


def results(folder: Path) -> dict[str, Any]:
    """Everything measured: accuracies, probes, predictors and ρ, each with n and interval."""
    store = PredictionStore.existing(folder / "store")
    bed = testbed_from_store(store)
    models = _models(bed)
    names = [row["model"] for row in models]
    columns = ["model", "setting", "metric", "value", "low", "high", "n"]
    corrupted = corruptions(folder / "store")
    return {
        "models": models,
        "accuracies": scores(store).select(columns).to_dicts(),
        "mean_corrupted": _means(store, names, corrupted),
        "probes": scores(store, metrics=PROBED).select(columns).to_dicts(),
        "predictors": {
            by or "all": predictors(bed, metric=METRICS, by=by).frame.to_dicts()
            for by in (None, "architecture", "augmentation")
        },
        "robustness": group_table(bed, corrupted, by="grid").to_dicts(),
    }


def corruptions(store: str | Path) -> list[str]:
    """The corrupted settings, which are names of shifts too."""
    return [s for s in PredictionStore.existing(store).settings() if s.startswith("cifar10+")]


def _models(bed: Testbed) -> list[Row]:
    kept = ["model", "architecture", "grid", "augmentation", "sparsity", "step", "n_train"]
    rows = bed.models.select(kept).with_columns(pl.col("sparsity").fill_null(0.0)).to_dicts()
    order = list(_AUGMENTATION)
    return sorted(
        rows,
        key=lambda r: (_NET.index(r["architecture"]), order.index(r["grid"]), r["sparsity"]),
    )


def _means(store: PredictionStore, models: Sequence[str], settings: Sequence[str]) -> list[Row]:
    """Accuracy averaged over corruptions; its interval is over images, which they share."""
    right = [answers_from_store(store, one).of(models).judged() for one in settings]
    share = np.mean(right, axis=0)
    half = _Z * share.std(axis=1, ddof=1) / np.sqrt(share.shape[1])
    return [
        {"model": name, "value": value, "low": value - h, "high": value + h,
         "n": share.shape[1], "corruptions": len(settings)}
        for name, value, h in zip(models, share.mean(axis=1).tolist(), half.tolist(), strict=True)
    ]  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """All key tables."""
    parts = [
        "# Tables of the CIFAR-10 study",
        "Made by `python -m examples.cifar10`; intervals are 95 %.",
        "## Accuracies", accuracies(found),
        "## Probes", probes(found),
        "## Accuracy of the dense models under each corruption, severity 3", dense(found),
        "## Effective robustness by augmentation", robustness(found),
    ]  # fmt: skip
    for by, rows in found["predictors"].items():
        over = "all models in one fit" if by == "all" else f"averaged over {by}"
        parts += [f"## Predictors: {over}", matrix(rows)]
    return "\n\n".join(parts) + "\n"


def accuracies(found: dict[str, Any]) -> str:
    """A row per model: clean, mean over corruptions, attacked."""
    clean, attacked = ({r["model"]: r for r in found["accuracies"] if r["setting"] == s}
                       for s in ("cifar10", _attack(found)))  # fmt: skip
    mean = {r["model"]: r for r in found["mean_corrupted"]}
    first = found["models"][0]["model"]
    head = ["net", "augmentation", "sparsity", f"clean, % (n = {clean[first]['n']:,})",
            f"{mean[first]['corruptions']} corruptions, % (n = {mean[first]['n']:,})",
            f"PGD 1/255, % (n = {attacked[first]['n']:,})"]  # fmt: skip
    rows = [
        [*_label(m), *(_percent(t[m["model"]]) for t in (clean, mean, attacked))]
        for m in found["models"]
    ]
    return _table(head, rows)


def _attack(found: dict[str, Any]) -> str:
    return next(str(r["setting"]) for r in found["accuracies"] if "pgd" in r["setting"])


def probes(found: dict[str, Any]) -> str:
    """A row per model, a column per probe."""
    there = {(r["model"], r["metric"]): r for r in found["probes"]}
    first = found["models"][0]["model"]
    head = ["net", "augmentation", "sparsity"]
    head += [f"{metric} (n = {there[first, metric]['n']})" for metric in PROBED]
    return _table(head, [
        [*_label(m), *(_ends(there[m["model"], metric]) for metric in PROBED)]
        for m in found["models"]
    ])  # fmt: skip


def dense(found: dict[str, Any]) -> str:
    """A row per corruption, a column per dense model."""
    models = [m for m in found["models"] if not m["sparsity"]]
    there = {(r["setting"], r["model"]): r for r in found["accuracies"]}
    settings = sorted({s for s, _ in there if s.startswith("cifar10+")})
    head = ["corruption", "n"]
    head += [f"{m['architecture']}, {_AUGMENTATION[m['grid']]}" for m in models]
    return _table(head, [
        [_short(s), f"{there[s, models[0]['model']]['n']:,}",
         *(_percent(there[s, m["model"]]) for m in models)]
        for s in settings
    ])  # fmt: skip


def robustness(found: dict[str, Any]) -> str:
    """Mean ρ of each augmentation's models on each shift, over the line of the clean ones."""
    there = {(r["shift"], r["group"]): r for r in found["robustness"]}
    shifts = list(dict.fromkeys(shift for shift, _ in there))
    groups = [g for g in _AUGMENTATION if any(group == g for _, group in there)]
    head = ["shift", *(f"{_AUGMENTATION[g]} (n = {there[shifts[0], g]['n']})" for g in groups)]
    return _table(head, [[_short(s), *(_points(there[s, g]) for g in groups)] for s in shifts])


def matrix(rows: Sequence[Row]) -> str:
    """R² by shift and metric with its interval, n beside them; best bold, second best in italics.

    An arrow says which way the (averaged) slope goes.
    """
    average = {(r["ood"], r["metric"]): r for r in rows if r["group"] == AVERAGE}
    shifts = list(dict.fromkeys(ood for ood, _ in average))
    head = ["shift", "n", *(_metric(m) for m in METRICS)]
    return _table(head, [
        [_short(s), str(average[s, METRICS[0]]["n"]), *(_r2(average[s, m]) for m in METRICS)]
        for s in shifts
    ])  # fmt: skip


def _r2(row: Row) -> str:
    if row["r2"] is None:
        return row["note"] or "–"
    text = f"{'↓' if (row['slope'] or 0) < 0 else '↑'}{row['r2']:.2f}"
    text = {1: f"**{text}**", 2: f"*{text}*"}.get(row["rank"] or 0, text)
    if row["r2_low"] is None:
        return text
    return f"{text} ({row['r2_low']:.2f} … {row['r2_high']:.2f})"


def _label(model: Row) -> list[str]:
    return [model["architecture"], _AUGMENTATION[model["grid"]], f"{model['sparsity']:.2f}"]


def _metric(setting: str) -> str:
    return setting.rpartition(":")[2] if ":" in setting else "ID accuracy"


def _short(setting: str) -> str:
    return setting.partition("+")[2].removesuffix(":3").partition("?")[0] or setting


def _percent(row: Row) -> str:
    return f"{100 * row['value']:.1f} ({100 * row['low']:.1f} … {100 * row['high']:.1f})"


def _points(row: Row) -> str:
    ends = f"({100 * row['low']:+.1f} … {100 * row['high']:+.1f})"
    return f"{100 * row['mean']:+.1f} {ends}".replace("-", "−")


def _ends(row: Row) -> str:
    return _three(row["value"], row["low"], row["high"])


def _three(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "–"
    digits = 1 if abs(value) >= 10 else 3
    ends = "" if low is None or high is None else f" ({low:.{digits}f} … {high:.{digits}f})"
    return f"{value:.{digits}f}{ends}".replace("-", "−")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
