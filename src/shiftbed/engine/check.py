"""Is the pipeline right? A checkpoint with a published accuracy through the user's own data.

An error in preprocessing is as large as most effective robustness: a wrong interpolation costs
half a point, swapped channels several. So the published figure is compared with what this loader
and preprocessing give on the ID set, and where they differ the usual causes are tried one by one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_fractions
from shiftbed.display import Result, Table, interval, percent, points
from shiftbed.engine.evaluate import evaluate
from shiftbed.engine.plan import ModelSpec
from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models import Model, resolve
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PipelineCheck(Result):
    """The pipeline's accuracy beside the published one; the frame has the causes tried."""

    json_keys = (
        "model n measured published discrepancy low high likely not_interpretable_below agrees"
    )
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
    level: float = 0.95

    @property
    def not_interpretable_below(self) -> float:
        """|ρ| smaller than this may be the pipeline's doing."""
        return abs(self.discrepancy)

    @property
    def agrees(self) -> bool:
        return self.low <= 0.0 <= self.high

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"causes": [asdict(cause) for cause in self.causes]}

    def answer(self) -> Iterable[str]:
        found = "agrees with" if self.agrees else "differs from"
        yield (
            f"The pipeline {found} the published accuracy: {points(self.discrepancy)} points "
            f"({interval(self.low, self.high)}). Likely cause: {self.likely}."
        )

    def tables(self) -> Iterable[Table]:
        yield Table.of(
            f"{self.model}: {percent(self.measured)} % measured on {self.n:,} images, "
            f"{percent(self.published)} % published",
            self.frame,
            {
                "change": "change",
                "accuracy": ("accuracy", percent),
                "gain": ("gain", points),
                f"{100 * self.level:g} % interval": lambda row: interval(row["low"], row["high"]),
            },
            notes=[
                f"Effective robustness below {percent(self.not_interpretable_below)} points is not "
                "interpretable with this pipeline.",
            ],
        )


def check(
    model: str | Model,
    test_set: "str | Path | TestSet",
    *,
    published: float | None = None,
    published_n: int | None = None,
    images: int = 2000,
    batch_size: int = 64,
    seed: int = 0,
    level: float = 0.95,
    **options: Any,
) -> PipelineCheck:
    """Measure on a seeded sample of images, and try the causes if the figures differ.

    ``published`` is the accuracy to reproduce (default: the shipped timm table's) on a set of
    ``published_n`` images. The discrepancy's interval is ±z·√(p(1−p)/n) at the published p,
    smaller by the finite population factor √(1 − n/N) where the sample is drawn from the published
    set itself (``test_set`` has its N images); a subset of it is a sample of its own. ``options``
    open the model: ``weights``, ``preprocessing``, ``device``, ``precision``.
    """
    own = dict(options.pop("preprocessing", None) or {})

    def opened(changes: Mapping[str, Any]) -> Model:
        if isinstance(model, Model):
            changed = replace(model.preprocessing, **changes) if changes else model.preprocessing
            return replace(model, preprocessing=changed)
        return resolve(model, preprocessing=own | dict(changes), **options)

    if published is None:
        published, published_n = _published(model if isinstance(model, str) else model.id)
    check_fractions([published], "published")
    whole = test_set if isinstance(test_set, TestSet) else TestSet.open(test_set)
    labelled = np.flatnonzero(np.asarray(whole.labels) >= 0)
    if not len(labelled):
        raise InputError(f"{whole.name} has no labels to check against")
    rows = np.sort(np.random.default_rng(seed).permutation(labelled)[:images])
    sample, labels = whole.subset(rows), np.asarray(whole.labels)[rows]
    first = opened({})

    def predicted(one: Model) -> NDArray[np.int64]:
        variant = ModelSpec(source=one, name="variant")
        found = evaluate([variant], [sample], backend="torch", batch_size=batch_size)
        best = found.store.read("variant", sample.name, ["class_1"])["class_1"]
        return best.cast(pl.Int64).fill_null(-1).to_numpy()

    base = predicted(first)
    right = base == labels
    measured, n = float(right.mean()), len(rows)
    z = float(ndtri(0.5 + level / 2))
    finite = 1.0
    if published_n is not None and len(labelled) == published_n:
        finite = 1.0 - n / published_n if n < published_n else 1.0 / n
    half = z * float(np.sqrt(max(published * (1 - published), 0.25 / n) / n * finite)) + 0.5 / n
    discrepancy = measured - published
    causes: list[Cause] = []
    if abs(discrepancy) > half:
        for change, changes in _variants(first.preprocessing):
            try:
                other = predicted(opened(changes)) == labels
            except (InputError, RuntimeError, ValueError):
                continue
            causes.append(_cause(change, right, other, z))
        causes.append(_label_order(base, labels, right, z))
    causes.sort(key=lambda cause: -cause.gain)
    types = dict.fromkeys(("accuracy", "gain", "low", "high"), pl.Float64)
    return PipelineCheck(
        frame=pl.DataFrame(
            [asdict(cause) for cause in causes], schema={"change": pl.String, **types}
        ),
        model=first.id,
        n=n,
        measured=measured,
        published=published,
        discrepancy=discrepancy,
        low=discrepancy - half,
        high=discrepancy + half,
        causes=tuple(causes),
        likely=_likely(discrepancy, half, published, causes),
        level=level,
    )


def _published(model: str) -> tuple[float, int]:
    """The model's ImageNet accuracy in the shipped timm table, and on how many images."""
    from shiftbed.testbed import published

    prefix, _, name = model.partition(":")
    if prefix != "timm":
        raise InputError(f"give --published: the shipped table has timm's models, not {model!r}")
    bed = published("timm")
    row = bed.model_index(name.partition("?")[0])
    column = bed.setting_index("imagenet")
    return float(bed.value[row, column]), int(bed.n[row, column]) or bed.usual_size("imagenet")


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
