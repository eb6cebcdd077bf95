"""OOD accuracy without OOD labels: from how sure a model is, and from how models agree.

Average thresholded confidence (Garg, Balakrishnan, Lipton, Neyshabur and Sedghi 2022): a threshold
t on a score s is learnt on ID data so that as many examples fall below it as are wrong,
P_ID(s < t) = P_ID(wrong), and the estimate is P_OOD(s ≥ t). The score is the largest probability or
the negative entropy Σ p log p.

Difference of confidences (Guillory, Shankar, Ebrahimi, Darrell and Schmidt 2021): the estimate is
a_ID − (c_ID − c_OOD), c the mean confidence; their regression over several calibration shifts needs
labelled ones and is not used here. Average confidence is c_OOD itself.

Agreement-on-the-line: Baek, Jiang, Raghunathan and Kolter (2022) observe that where accuracies
under shift fall on a line in probit space, agreements of pairs of models do too, and it is the same
line. Agreement needs no labels, so the line can be fitted on unlabelled OOD data: with A, A′ the
agreements of a pair on ID and OOD data and a, a′ accuracies,

    Φ⁻¹(A′) = w·Φ⁻¹(A) + b            fitted by least squares over all pairs,
    ALine-S: a′_i = Φ(w·Φ⁻¹(a_i) + b),
    ALine-D: ½(z_i + z_j) = Φ⁻¹(A′_ij) + w·(½(Φ⁻¹(a_i) + Φ⁻¹(a_j)) − Φ⁻¹(A_ij)), a′_i = Φ(z_i),

the latter by least squares over all pairs, so that a model's own distance from the line counts.
Errors come from a delete-a-group jackknife over ID images, OOD images and models, in probit space.
They do not cover what no unlabelled data of the shift can show: that the line of agreements is not
that of accuracies, which moves all models of a shift together. How far it does is learnt from other
shifts that have labels (``shift_bias``); without these the interval is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit, xlogy

from shiftbed.analysis.intervals import check_level, off_boundary
from shiftbed.analysis.joint_counts import same_counts
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


Counts = NDArray[np.int64]
TRUSTED_R2 = 0.95
"""R² of the agreements' line from which on Baek and others take the estimates as good."""
GROUPS = 20
"""Groups of images, and at most of models, that the jackknife leaves out in turn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AgreementLine:
    """The line of agreements, and each model's OOD accuracy from it."""

    slope: float
    bias: float
    slope_error: float
    bias_error: float
    """Jackknife standard errors."""
    r2: float
    """Of the agreements' fit, in probit space."""
    pairs: int
    dropped: int
    """Pairs that agree always or never, which have no finite probit."""
    agreement_id: Floats
    agreement_ood: Floats
    """(M, M)"""
    simple: Floats
    simple_low: Floats
    simple_high: Floats
    """(M,): ALine-S and its interval."""
    direct: Floats
    direct_low: Floats
    direct_high: Floats
    """(M,): ALine-D and its interval; NaN for fewer than three models."""
    extrapolated: NDArray[np.bool_]
    """(M,): ID accuracy outside the range of ID agreements that the line was fitted on."""

    @property
    def holds(self) -> bool:
        """Whether the agreements lie on a line well enough (R² ≥ 0.95)."""
        return self.r2 >= TRUSTED_R2

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against the estimates; nothing if nothing is seen to."""
        found = []
        if not self.holds:
            found.append(f"R² of the agreements' line is {self.r2:.3f}, below {TRUSTED_R2}")
        if self.pairs < 10:
            found.append(f"only {self.pairs} pairs of models determine the line")
        if self.slope <= 0:
            found.append("agreement OOD falls with agreement ID")
        outside = int(self.extrapolated.sum())
        if outside:
            have = "1 model has" if outside == 1 else f"{outside} models have"
            found.append(f"{have} an ID accuracy outside the range of the pairs' ID agreements")
        return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fit:
    slope: float
    bias: float
    r2: float
    simple: Floats
    direct: Floats
    """Both in probit space."""


def image_groups(n: int, groups: int = GROUPS, seed: int = 0) -> list[NDArray[np.int64]]:
    """Images in random groups of the same size, give or take one: files are often sorted."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, min(groups, n))]


def agreement_on_the_line(
    right_id: NDArray[np.bool_],
    classes_id: NDArray[np.integer[Any]],
    classes_ood: NDArray[np.integer[Any]],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> AgreementLine:
    """OOD accuracies of M models from right and classes (M, N_id) and OOD classes (M, N_ood).

    An ID accuracy of 0 or 1 is moved to (k+½)/(n+1). Needs three models: two make one pair, and a
    line needs two points.
    """
    m, n_id = classes_id.shape
    n_ood = classes_ood.shape[1]
    if m != len(classes_ood):
        raise InputError(f"{m} models on ID but {len(classes_ood)} on OOD data")
    if m < 3:
        raise InputError(f"agreement-on-the-line needs at least three models, got {m}")
    if n_id < 2 or n_ood < 2:
        raise InputError(f"agreement-on-the-line needs images, got {n_id} ID and {n_ood} OOD")
    parts_id, parts_ood = image_groups(n_id, seed=seed), image_groups(n_ood, seed=seed + 1)
    same_id = np.stack([same_counts(classes_id[:, part]) for part in parts_id])
    same_ood = np.stack([same_counts(classes_ood[:, part]) for part in parts_ood])
    right = np.stack([right_id[:, part].sum(axis=1) for part in parts_id])
    whole = (right.sum(axis=0), same_id.sum(axis=0), same_ood.sum(axis=0))
    models = np.arange(m)
    fit = _fit(*whole, n_id, n_ood)

    drawn = []  # (replicate of slope, bias, simple, direct), by what was left out
    replicates = [
        _fit(whole[0] - right[g], whole[1] - same_id[g], whole[2], n_id - len(part), n_ood)
        for g, part in enumerate(parts_id)
    ]
    drawn.append([(models, one) for one in replicates])
    replicates = [
        _fit(whole[0], whole[1], whole[2] - same_ood[g], n_id, n_ood - len(part))
        for g, part in enumerate(parts_ood)
    ]
    drawn.append([(models, one) for one in replicates])
    if m > 3:
        rest = [np.setdiff1d(models, part) for part in image_groups(m, seed=seed + 2)]
        cut = [(whole[0][k], whole[1][np.ix_(k, k)], whole[2][np.ix_(k, k)]) for k in rest]
        drawn.append([(k, _fit(*c, n_id, n_ood)) for k, c in zip(rest, cut, strict=True)])
    variance = sum(_jackknife(one, fit, m) for one in drawn)
    assert isinstance(variance, np.ndarray)
    return _finish(fit, np.sqrt(variance), whole, (n_id, n_ood), level)


def shift_bias(estimates: Sequence[ArrayLike], truths: Sequence[ArrayLike]) -> float:
    """How far agreement-on-the-line is off on shifts with labels: a root mean square of probits.

    √(mean over shifts of the mean over models of (Φ⁻¹(estimate) − Φ⁻¹(accuracy))²), from one array
    per shift. A shift's models are off together, so shifts count, not models.

    >>> round(shift_bias([[0.5, 0.5], [0.6]], [[0.5, 0.5], [0.5]]), 3)
    0.179
    """
    if len(estimates) < 2 or len(estimates) != len(truths):
        raise InputError(f"the bias of a shift needs two shifts with labels, got {len(estimates)}")
    squares = []
    for one, true in zip(estimates, truths, strict=True):
        off = ndtri(np.asarray(one, np.float64)) - ndtri(np.asarray(true, np.float64))
        squares.append(float(np.mean(off[np.isfinite(off)] ** 2)))
    return float(np.sqrt(np.mean(squares)))


def widened(
    value: float, low: float, high: float, bias: float, shifts: int, level: float = 0.95
) -> tuple[float, float]:
    """The interval of an estimate with the bias of ``shifts`` labelled shifts in it.

    In probit space: √(half² + (t·bias)²) on either side, t of as many degrees of freedom as there
    are shifts.

    >>> low, high = widened(0.5, 0.45, 0.55, 0.05, 4)
    >>> round(low, 3), round(high, 3)
    (0.426, 0.574)
    """
    centre = float(ndtri(value))
    more = float(stdtrit(shifts, 0.5 + check_level(level) / 2)) * bias
    down, up = (np.hypot(float(ndtri(end)) - centre, more) for end in (low, high))
    return float(ndtr(centre - down)), float(ndtr(centre + up))


def _finish(
    fit: _Fit, errors: Floats, counts: tuple[Counts, ...], sizes: tuple[int, int], level: float
) -> AgreementLine:
    m = len(fit.simple)
    agreement_id, agreement_ood = counts[1] / sizes[0], counts[2] / sizes[1]
    usable = _usable(agreement_id, agreement_ood)
    inside = agreement_id[usable]
    accuracy = counts[0] / sizes[0]
    half = float(stdtrit(GROUPS - 1, 0.5 + check_level(level) / 2)) * errors
    simple, direct = half[2 : 2 + m], half[2 + m :]
    return AgreementLine(
        slope=fit.slope,
        bias=fit.bias,
        slope_error=float(errors[0]),
        bias_error=float(errors[1]),
        r2=fit.r2,
        pairs=int(usable.sum()),
        dropped=m * (m - 1) // 2 - int(usable.sum()),
        agreement_id=agreement_id,
        agreement_ood=agreement_ood,
        simple=ndtr(fit.simple),
        simple_low=ndtr(fit.simple - simple),
        simple_high=ndtr(fit.simple + simple),
        direct=ndtr(fit.direct),
        direct_low=ndtr(fit.direct - direct),
        direct_high=ndtr(fit.direct + direct),
        extrapolated=(accuracy < inside.min()) | (accuracy > inside.max()),
    )


def _usable(agreement_id: Floats, agreement_ood: Floats) -> NDArray[np.bool_]:
    """(M, M), upper triangle: pairs whose agreements have finite probits."""
    inside = (agreement_id > 0) & (agreement_id < 1) & (agreement_ood > 0) & (agreement_ood < 1)
    return np.triu(inside, 1)


def _fit(right: Counts, same_id: Counts, same_ood: Counts, n_id: int, n_ood: int) -> _Fit:
    m = len(right)
    agreement = same_id / n_id, same_ood / n_ood
    usable = _usable(*agreement)
    if usable.sum() < 2:
        raise InputError(
            "agreement-on-the-line needs two pairs of models that agree on some examples and "
            "disagree on others; all others are alike"
        )
    with np.errstate(divide="ignore"):
        x, y = ndtri(agreement[0]), ndtri(agreement[1])
    across, up = x[usable], y[usable]
    spread = across - across.mean()
    if float(spread @ spread) < 1e-12 * len(across):
        raise InputError("agreement-on-the-line: all pairs agree equally often on the ID data")
    slope = float(spread @ up / (spread @ spread))
    bias = float(up.mean() - slope * across.mean())
    total = float(((up - up.mean()) ** 2).sum())
    left = float(((up - bias - slope * across) ** 2).sum())
    z = ndtri(off_boundary(right / n_id, n_id))
    j, k = np.nonzero(usable)
    target = up + slope * ((z[j] + z[k]) / 2 - across)
    # normal equations of ½(z_j + z_k) = target over the usable pairs
    beside = usable | usable.T
    gram = (np.diag(beside.sum(axis=1)) + beside) / 4
    sums = (np.bincount(j, target, m) + np.bincount(k, target, m)) / 2
    lonely = ~beside.any(axis=1)
    direct = np.linalg.lstsq(gram, sums, rcond=None)[0]
    return _Fit(
        slope=slope,
        bias=bias,
        r2=1.0 - left / total if total > 0 else float("nan"),
        simple=slope * z + bias,
        direct=np.where(lonely, np.nan, direct),
    )


def _jackknife(replicates: list[tuple[NDArray[np.int64], _Fit]], fit: _Fit, m: int) -> Floats:
    """(2 + 2M,): variance of slope, bias, ALine-S and ALine-D when groups are left out in turn.

    (G−1)/G·Σ(θ_g − θ̄)². A model that was left out itself is placed by the line without it; it
    has no ALine-D there, and its other replicates count for that one.
    """
    rows = np.full((len(replicates), 2 + 2 * m), np.nan)
    z = (fit.simple - fit.bias) / fit.slope if fit.slope else np.zeros(m)
    for row, (kept, one) in zip(rows, replicates, strict=True):
        row[:2] = one.slope, one.bias
        row[2 : 2 + m] = one.slope * z + one.bias
        row[2 + kept] = one.simple
        row[2 + m + kept] = one.direct
    there = np.isfinite(rows)
    count = there.sum(axis=0)
    mean = np.where(there, rows, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(there, rows - mean, 0.0) ** 2
    each = squares.sum(axis=0) / np.maximum(count, 1)
    return np.where(count > 1, (len(replicates) - 1) * each, np.nan)
