"""Metrics of cells, from what the store keeps: arrays (…, examples) in, numbers (…) out.

wenzel2022, Section 3 and Appendix C: error, NLL, ECE, demographic disparity on inferred
environments. All take arrays over examples, of one cell or of many with the same examples;
unreadable and unlabelled examples are left out before, and counted.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError

Floats = NDArray[np.float64]


def negative_log_likelihood(label_prob: ArrayLike) -> Floats:
    """Mean of −ln p_y. A probability of exactly 0 is taken as the smallest float32.

    >>> round(float(negative_log_likelihood([0.5, 0.25])), 4)
    1.0397
    """
    p = np.asarray(label_prob, dtype=np.float64)
    return np.asarray(-np.log(np.maximum(p, float(np.finfo(np.float32).tiny))).mean(axis=-1))


def brier(label_prob: ArrayLike, sum_squares: ArrayLike) -> Floats:
    """Multi-class Brier score, mean of Σ_c (p_c − 1[c = y])² = Σ_c p_c² − 2 p_y + 1.

    >>> float(brier([1.0, 0.5], [1.0, 0.5]))
    0.25
    """
    p, squares = np.asarray(label_prob, np.float64), np.asarray(sum_squares, np.float64)
    return np.asarray((squares - 2.0 * p + 1.0).mean(axis=-1))


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> Floats:
    """Expected calibration error: Σ_b (n_b/n)·|accuracy_b − confidence_b|.

    Bins are equal-width and left-closed, [0, 0.1), [0.1, 0.2), … [0.9, 1.0], a confidence of 1.0
    in the last (torchmetrics closes bins on the right, which differs only for confidences exactly
    on an edge).

    >>> round(float(calibration_error([0.95, 0.95], [True, False])), 6)
    0.45
    """
    p, hit = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    if p.shape[-1] == 0:
        raise InputError("calibration error of no examples is undefined")
    index = np.minimum(np.searchsorted(bin_edges(bins), p, side="right") - 1, bins - 1)
    gap = _counts(index, bins, weights=hit - p)
    return np.asarray(np.abs(gap).sum(axis=-1) / p.shape[-1])


def bin_edges(bins: int) -> Floats:
    """Edges of the bins in single precision, as confidences are stored."""
    return np.linspace(0.0, 1.0, bins + 1, dtype=np.float32).astype(np.float64)


def _counts(index: NDArray[np.intp], kinds: int, **weights: Any) -> NDArray[Any]:
    """(…, kinds): how often, or with which weight, each kind is among the last axis.

    >>> _counts(np.array([[0, 0], [1, 0]]), 2).tolist()
    [[2, 0], [1, 1]]
    """
    rows = index.reshape(-1, index.shape[-1])
    at = rows + kinds * np.arange(len(rows))[:, None]
    flat = {key: np.asarray(value).ravel() for key, value in weights.items()}
    found = np.bincount(at.ravel(), minlength=kinds * len(rows), **flat)
    return found.reshape(*index.shape[:-1], kinds)


def _numbered(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """What occurs, in order, and each value's place in it: ``np.unique``, faster for classes.

    >>> [one.tolist() for one in _numbered(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if low >= 0 and high < 4 * len(values):
            there = np.bincount(values) > 0
            return np.flatnonzero(there), (np.cumsum(there) - 1)[values]
    names, index = np.unique(values, return_inverse=True)
    return names, index


def group_accuracy(right: ArrayLike, group: ArrayLike) -> dict[Any, tuple[float, int]]:
    """Accuracy and n of each group (class, domain, video).

    >>> group_accuracy([True, False, True], ["a", "a", "b"])
    {'a': (0.5, 2), 'b': (1.0, 1)}
    """
    names, accuracy, count = group_accuracies(np.asarray(right), np.asarray(group))
    pairs = zip(accuracy.tolist(), count.tolist(), strict=True)
    return dict(zip(names.tolist(), pairs, strict=True))


def group_accuracies(
    right: NDArray[Any], group: NDArray[Any]
) -> tuple[NDArray[Any], Floats, NDArray[np.int64]]:
    """The groups (G,), accuracies (…, G) of cells (…, n) in them, and how many are in each (G,)."""
    names, index = _numbered(group)
    count = np.bincount(index, minlength=len(names))
    every = np.broadcast_to(index, right.shape)
    total = _counts(every, len(names), weights=right.astype(np.float64))
    return names, total / count, count


def environments(scale_gradient: ArrayLike) -> NDArray[np.bool_]:
    """The two environments that maximise the IRM penalty (EIIL), in closed form.

    With g_i = Σ_c p_c z_c − z_y, the derivative of example i's cross entropy by a scale on the
    logits, the two environments' gradients sum to a constant, so the optimum is e_i = 1[g_i > 0].

    >>> environments([0.3, -0.1, 0.0]).tolist()
    [True, False, False]
    """
    return np.asarray(scale_gradient, dtype=np.float64) > 0.0


def demographic_disparity(predicted: ArrayLike, environment: ArrayLike) -> Floats:
    """Σ_e (n_e/n)·TV(P(ŷ), P(ŷ | e)) over the environments, of argmax predictions.

    >>> round(float(demographic_disparity([0, 0, 1, 1], [True, True, False, False])), 6)
    0.5
    """
    label, where = np.asarray(predicted), np.asarray(environment)
    names, flat = _numbered(label.ravel())
    index, n = flat.reshape(label.shape), label.shape[-1]
    overall = _counts(index, len(names)) / n
    total = np.zeros(label.shape[:-1])
    for e in (True, False) if where.dtype == bool else np.unique(where):
        inside = where == e
        size = inside.sum(axis=-1)
        share = _counts(index, len(names), weights=inside) / np.maximum(size, 1)[..., None]
        total += np.where(size > 0, size / n * 0.5 * np.abs(overall - share).sum(axis=-1), 0.0)
    return total


@dataclass(frozen=True, kw_only=True, eq=False)
class Reliability:
    """Accuracy over confidence in bins of equal width; arrays are (bins,), NaN in empty bins."""

    edges: Floats
    """(bins + 1,)"""
    confidence: Floats
    """Mean confidence of a bin's examples."""
    accuracy: Floats
    low: Floats
    high: Floats
    """Clopper–Pearson interval of the accuracy."""
    n: NDArray[np.int64]
    level: float

    @property
    def error(self) -> float:
        """ECE = Σ_b (n_b/n)·|accuracy_b − confidence_b|."""
        there = self.n > 0
        gaps = np.abs(self.accuracy[there] - self.confidence[there])
        return float((self.n[there] * gaps).sum() / self.n.sum())


def reliability(
    confidence: ArrayLike, right: ArrayLike, *, bins: int = 10, level: float = 0.95
) -> Reliability:
    """Bins [i/b, (i+1)/b), the last one with 1.0 in it, as ``calibration_error`` has them.

    >>> found = reliability([0.95, 0.95, 0.55, 1.0], [True, False, True, True])
    >>> found.n.tolist(), round(found.error, 4)
    ([0, 0, 0, 0, 0, 1, 0, 0, 0, 3], 0.3375)
    """
    p, hit = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
    if p.ndim != 1 or p.shape != hit.shape or not p.size:
        raise InputError(f"confidences and answers must be two lists of one length, not {p.shape}")
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError("confidences must lie between 0 and 1")
    if bins < 1:
        raise InputError(f"bins must be at least 1, is {bins}")
    at = np.minimum((p * bins).astype(np.int64), bins - 1)
    n = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(at, weights=p, minlength=bins) / n
        share = np.bincount(at, weights=hit, minlength=bins) / n
    low, high = np.full(bins, np.nan), np.full(bins, np.nan)
    there = n > 0
    low[there], high[there] = clopper_pearson(share[there], n[there], level)
    return Reliability(
        edges=np.linspace(0, 1, bins + 1),
        confidence=mean,
        accuracy=share,
        low=low,
        high=high,
        n=n,
        level=level,
    )
