"""OOD accuracy of one model without OOD labels, from how sure it is.

Average thresholded confidence (Garg, Balakrishnan, Lipton, Neyshabur and Sedghi 2022): a threshold
t on a score s is learnt on ID data so that as many examples fall below it as are wrong,
P_ID(s < t) = P_ID(wrong), and the estimate is P_OOD(s ≥ t). The score is the largest probability or
the negative entropy Σ p log p.

Difference of confidences (Guillory, Shankar, Ebrahimi, Darrell and Schmidt 2021): the estimate is
a_ID − (c_ID − c_OOD), c the mean confidence; their regression over several calibration shifts needs
labelled ones and is not used here. Average confidence is c_OOD itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit, xlogy

from shiftbed.analysis.agreement_line import image_groups
from shiftbed.analysis.intervals import check_level
from shiftbed.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate of OOD accuracy with its interval."""

    value: float
    low: float
    high: float
    n_id: int
    n_ood: int
    note: str = ""


def negative_entropy(probabilities: ArrayLike) -> Floats:
    """Σ_c p_c log p_c over the last axis: 0 if sure, −log K if all classes are alike.

    >>> negative_entropy([[1.0, 0.0], [0.5, 0.5]]).round(4).tolist()
    [0.0, -0.6931]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    return np.asarray(xlogy(p, p).sum(axis=-1))


def thresholded_confidence(
    score_id: ArrayLike,
    right_id: NDArray[np.bool_],
    score_ood: ArrayLike,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Average thresholded confidence from scores (N_id,), (N_ood,) and ID correctness.

    With k wrong answers the threshold is the (k+1)-th smallest ID score, so that k lie below it if
    no scores are tied. The interval is a delete-a-group jackknife over images of both sides.

    >>> right = np.array([False, True, True, True])
    >>> found = thresholded_confidence([0.3, 0.5, 0.8, 0.9], right, [0.2, 0.6, 0.7, 0.4])
    >>> found.value
    0.5
    """
    source, target = _scores(score_id, "ID"), _scores(score_ood, "OOD")
    if len(source) != len(right_id):
        raise InputError(f"{len(source)} ID scores for {len(right_id)} ID answers")

    def estimate(some: Floats, right: NDArray[np.bool_], other: Floats) -> float:
        wrong = int((~right).sum())
        if wrong == len(right):
            return 0.0
        threshold = np.partition(some, wrong)[wrong]
        return float((other >= threshold).mean())

    value = estimate(source, right_id, target)
    parts_id, parts_ood = image_groups(len(source), seed=seed), image_groups(len(target), seed=seed)
    sides = [
        [
            estimate(np.delete(source, part), np.delete(right_id, part), target)
            for part in parts_id
            if len(part) < len(source)
        ],
        [
            estimate(source, right_id, np.delete(target, part))
            for part in parts_ood
            if len(part) < len(target)
        ],
    ]
    note = ""
    if min(map(len, sides)) < 2:
        half, note = float("nan"), "no interval: too few examples"
    else:
        variance = sum((len(side) - 1) * float(np.var(side)) for side in sides)
        dof = min(map(len, sides)) - 1
        half = float(stdtrit(dof, 0.5 + check_level(level) / 2)) * variance**0.5
    return _estimate(value, half, len(source), len(target), note)


def difference_of_confidences(
    confidence_id: ArrayLike,
    right_id: NDArray[np.bool_],
    confidence_ood: ArrayLike,
    *,
    level: float = 0.95,
) -> Estimate:
    """a_ID − (c_ID − c_OOD), with a Gaussian interval: mean(right − c)_ID + mean(c)_OOD.

    >>> right = np.array([True, True, False, True])
    >>> round(difference_of_confidences([0.9, 0.8, 0.4, 0.9], right, [0.6, 0.5]).value, 6)
    0.55
    """
    source, target = _scores(confidence_id, "ID"), _scores(confidence_ood, "OOD")
    if len(source) != len(right_id):
        raise InputError(f"{len(source)} ID confidences for {len(right_id)} ID answers")
    off = right_id.astype(np.float64) - source
    return _means([off, target], len(source), len(target), level)


def average_confidence(confidence_ood: ArrayLike, *, level: float = 0.95) -> Estimate:
    """The mean OOD confidence: right if the model is calibrated there, which it rarely is."""
    target = _scores(confidence_ood, "OOD")
    return _means([target], 0, len(target), level)


def _means(parts: list[Floats], n_id: int, n_ood: int, level: float) -> Estimate:
    value = sum(float(part.mean()) for part in parts)
    if any(len(part) < 2 for part in parts):
        return _estimate(value, float("nan"), n_id, n_ood, "no interval: too few examples")
    variance = sum(float(part.var(ddof=1)) / len(part) for part in parts)
    half = float(ndtri(0.5 + check_level(level) / 2)) * variance**0.5
    return _estimate(value, half, n_id, n_ood, "")


def _estimate(value: float, half: float, n_id: int, n_ood: int, note: str) -> Estimate:
    """Estimates are not forced into [0, 1], which would hide that the method failed."""
    if not 0.0 <= value <= 1.0:
        note = "; ".join(filter(None, [note, "outside [0, 1]: the method does not fit here"]))
    return Estimate(
        value=value, low=value - half, high=value + half, n_id=n_id, n_ood=n_ood, note=note
    )


def _scores(values: ArrayLike, side: str) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found):
        raise InputError(f"{side} scores must be (examples,), have shape {found.shape}")
    if not np.isfinite(found).all():
        at = int(np.flatnonzero(~np.isfinite(found))[0])
        raise InputError(f"{side} score of example {at} is {found[at]}")
    return found
