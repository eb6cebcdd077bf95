"""Is the pipeline right? A checkpoint with a published accuracy through the user's own data.

An error in preprocessing is as large as most effective robustness: a wrong interpolation costs
half a point, swapped channels several. So the published figure is compared with what this loader
and preprocessing give on the ID set, and where they differ the usual causes are tried one by one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, batches
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.preprocessing import Preprocessing

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One change of the pipeline, and what it does to accuracy on the same images."""

    change: str
    accuracy: float
    gain: float
    low: float
    high: float
    """Interval of the gain, from the images that the two pipelines answer differently."""


@dataclass(frozen=True, kw_only=True)
class PipelineCheck:
    """The pipeline's accuracy beside the published one."""

    model: str
    n: int
    measured: float
    published: float
    discrepancy: float
    """measured − published."""
    low: float
    high: float
    """Interval of the discrepancy: binomial, on the images used."""
    causes: tuple[Cause, ...]
    likely: str
    """What explains the discrepancy, or why nothing does."""

    @property
    def not_interpretable_below(self) -> float:
        """|ρ| smaller than this may be the pipeline's doing."""
        return abs(self.discrepancy)

    @property
    def agrees(self) -> bool:
        return self.low <= 0.0 <= self.high


def check_pipeline(
    open_model: Callable[[dict[str, Any]], Model],
    test_set: TestSet,
    published: float,
    *,
    images: int = 2000,
    batch_size: int = 64,
    seed: int = 0,
    level: float = 0.95,
) -> PipelineCheck:
    """Measure on a seeded sample of images, and try the causes if the figures differ.

    ``open_model`` opens the model with some fields of its preprocessing changed (none for {}).
    The discrepancy's interval is ±z·√(p(1−p)/n) at the published p, smaller by the finite
    population factor √(1 − n/N) when the sample is part of the published set.
    """
    rng = np.random.default_rng(seed)
    labelled = np.flatnonzero(np.asarray(test_set.labels) >= 0)
    if not len(labelled):
        raise InputError(f"{test_set.name} has no labels to check against")
    rows = np.sort(rng.permutation(labelled)[:images])
    labels = np.asarray(test_set.labels)[rows]
    model = open_model({})

    def predicted(changes: dict[str, Any]) -> NDArray[np.int64]:
        changed = open_model(changes) if changes else model
        answers = np.full(len(rows), -1, dtype=np.int64)
        for some, pixels, _ in batches(test_set, rows, changed.preprocessing.pixels, batch_size):
            if len(some):
                best = changed.logits(pixels.transpose(0, 3, 1, 2)).argmax(axis=1)
                answers[np.searchsorted(rows, some)] = best
        return answers

    base = predicted({})
    right = base == labels
    measured, n = float(right.mean()), len(rows)
    z = float(ndtri(0.5 + level / 2))
    finite = max(0.0, 1.0 - n / len(labelled)) if n < len(labelled) else 1.0 / n
    half = z * float(np.sqrt(max(published * (1 - published), 0.25 / n) / n * finite)) + 0.5 / n
    discrepancy = measured - published
    causes: list[Cause] = []
    if abs(discrepancy) > half:
        for change, changes in _variants(model.preprocessing):
            try:
                other = predicted(changes) == labels
            except (InputError, RuntimeError, ValueError):
                continue
            causes.append(_cause(change, right, other, z))
        causes.append(_label_order(base, labels, right, z))
    causes.sort(key=lambda cause: -cause.gain)
    return PipelineCheck(
        model=model.id,
        n=n,
        measured=measured,
        published=published,
        discrepancy=discrepancy,
        low=discrepancy - half,
        high=discrepancy + half,
        causes=tuple(causes),
        likely=_likely(discrepancy, half, published, causes),
    )


def _variants(own: Preprocessing) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pipelines that people use by mistake, each one change away."""
    for interpolation in ("bicubic", "bilinear", "nearest", "lanczos"):
        if interpolation != own.interpolation:
            yield f"interpolation {interpolation}", {"interpolation": interpolation}
    if own.crop == "center" and min(own.size) >= 16:
        for share in (0.875, 0.9, 0.95, 1.0):
            shorter = round(own.size[0] / share)
            if shorter != own.resize:
                yield f"crop {share:g} (resize to {shorter})", {"resize": shorter}
    if own.channels == 3:
        other = "BGR" if own.mode == "RGB" else "RGB"
        yield f"channel order {other}", {"mode": other}
        statistics = {
            "ImageNet's": IMAGENET,
            "0.5": ((0.5,) * 3, (0.5,) * 3),
            "none": ((0.0,) * 3, (1.0,) * 3),
        }
        for name, (mean, std) in statistics.items():
            if (own.mean, own.std) != (mean, std):
                yield f"mean and std {name}", {"mean": list(mean), "std": list(std)}


def _cause(change: str, right: NDArray[np.bool_], other: NDArray[np.bool_], z: float) -> Cause:
    """Paired difference of two accuracies on the same images."""
    gain = other.astype(np.float64) - right
    half = z * float(gain.std() / np.sqrt(len(gain)))
    mean = float(gain.mean())
    return Cause(
        change=change, accuracy=float(other.mean()), gain=mean, low=mean - half, high=mean + half
    )


def _label_order(
    predicted: NDArray[np.int64],
    labels: NDArray[np.int64],
    right: NDArray[np.bool_],
    z: float,
) -> Cause:
    """Accuracy if classes were renumbered as well as possible (half the images choose how)."""
    classes = int(max(predicted.max(), labels.max())) + 1
    fit, rest = np.arange(len(labels)) % 2 == 0, np.arange(len(labels)) % 2 == 1
    table = np.zeros((classes, classes))
    there = fit & (predicted >= 0)
    np.add.at(table, (predicted[there], labels[there]), 1)
    rows, columns = linear_sum_assignment(-table)
    order = np.arange(classes)
    order[rows] = columns
    seen = table.sum(axis=1) > 0
    order[~seen] = np.flatnonzero(~seen) if not seen.all() else order[~seen]
    other = np.where(predicted >= 0, order[np.maximum(predicted, 0)], -1) == labels
    return _cause("label order (another numbering of the classes)", right[rest], other[rest], z)


def _likely(discrepancy: float, half: float, published: float, causes: list[Cause]) -> str:
    if abs(discrepancy) <= half:
        return "none needed: the published accuracy is reproduced"
    if discrepancy > 0:
        return "the pipeline does better than published; is this the published test set?"
    best = causes[0] if causes else None
    if best is None or best.low <= 0:
        return "none of the usual causes explains it"
    whole = abs(best.accuracy - published) <= half
    return f"{best.change}, which {'explains it' if whole else 'explains part of it'}"
