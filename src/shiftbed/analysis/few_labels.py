"""OOD accuracy from a few labels and many answers: prediction-powered inference.

Labels of n randomly chosen OOD images give an unbiased accuracy that is imprecise. A guess f of how
likely each answer is right is known for all images and may be biased; the labels say by how much
(Angelopoulos, Bates, Fannjiang, Jordan and Zrnic 2023), and how much the guess is worth
(Angelopoulos, Duchi and Zrnic 2023, PPI++):

    a = mean_labelled(right − λ·f) + λ·mean_unlabelled(f),    λ = Cov(right, f)/((1 + n/N)·Var f)

is unbiased whatever f is, and more precise than the labels alone by as much as f goes with being
right. The guess used here needs no OOD labels: how many of the other models give the same answer,
and how sure the model is, turned into a probability by least squares on ID data.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.analysis.label_free import Estimate
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
FEW = 10
"""Fewer right or wrong answers than this among the labelled: the interval may be too narrow."""


def prediction_powered(
    right: NDArray[np.bool_], guess: ArrayLike, unlabelled: ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Accuracy from n labelled answers, their guesses (n,) and the guesses (N,) of all others.

    ± t·√(λ²·Var(f)/N + Var(right − λf)/n) with n − 2 degrees of freedom, as λ and the mean are
    estimated from the labels. The labelled images must be a random sample of all; λ = 0 (guesses
    that do not vary, or nothing unlabelled) leaves the labels alone.

    >>> rng = np.random.default_rng(0)
    >>> f = rng.random(5000)
    >>> right = rng.random(5000) < f
    >>> found = prediction_powered(right[:200], f[:200], f[200:])
    >>> found.high - found.low < 2 * 1.96 * (0.25 / 200) ** 0.5, found.low < 0.5 < found.high
    (True, True)
    """
    f, others = np.asarray(guess, np.float64), np.asarray(unlabelled, np.float64)
    y = np.asarray(right, np.float64)
    if y.ndim != 1 or y.shape != f.shape or others.ndim != 1:
        raise InputError(f"guesses must be (labelled,) = {y.shape}, have shape {f.shape}")
    if not (np.isfinite(f).all() and np.isfinite(others).all()):
        raise InputError("guesses must be finite")
    n, many = len(y), len(others)
    if n < 4:
        raise InputError(f"a few labels are at least 4, got {n}")
    spread = float(np.var(np.concatenate([f, others])))
    power = 0.0
    if many and spread > 1e-12:
        power = float(np.cov(y, f)[0, 1]) / ((1 + n / many) * spread)
    off = y - power * f
    value = float(off.mean()) + (power * float(others.mean()) if many else 0.0)
    variance = float(off.var(ddof=1)) * (n - 1) / (n - 2) / n
    variance += power**2 * float(others.var()) / many if many else 0.0
    half = float(stdtrit(n - 2, 0.5 + check_level(level) / 2)) * variance**0.5
    few = min(int(y.sum()), n - int(y.sum()))
    note = f"only {few} labelled answers are {'right' if y.sum() == few else 'wrong'}"
    return Estimate(
        value=value,
        low=max(value - half, 0.0),
        high=min(value + half, 1.0),
        n_id=0,
        n_ood=n,
        note=f"{note}: the interval may be too narrow" if few < FEW else "",
    )


def labels_alone(right: NDArray[np.bool_], *, level: float = 0.95) -> Estimate:
    """The accuracy on the labelled answers, with Clopper and Pearson's exact interval.

    >>> round(labels_alone(np.array([True, True, False, True])).value, 2)
    0.75
    """
    value, n = float(np.mean(right)), len(right)
    low, high = clopper_pearson(value, n, level)
    return Estimate(value=value, low=float(low), high=float(high), n_id=0, n_ood=n)


def agreeing_share(classes: NDArray[np.integer[Any]], i: int) -> Floats:
    """(N,): share of the other models (M, N) that answer as model i does.

    >>> agreeing_share(np.array([[1, 2], [1, 3], [1, 2]]), 0).tolist()
    [1.0, 0.5]
    """
    same = (classes == classes[i]).sum(axis=0) - 1
    return np.asarray(same / max(len(classes) - 1, 1), dtype=np.float64)


def guesses(
    right_id: NDArray[np.bool_], features_id: Sequence[ArrayLike], features: Sequence[ArrayLike]
) -> Floats:
    """(N,): how likely an OOD answer is right, by least squares of ID rightness on features.

    Each feature enters with its square. Any guess leaves the estimate unbiased; a good one makes
    its interval narrow.

    >>> f = np.linspace(0, 1, 50)
    >>> bool(np.all(np.diff(guesses(f > 0.5, [f], [f])) > 0))
    True
    """

    def design(columns: Sequence[ArrayLike], n: int) -> Floats:
        parts = [np.asarray(column, np.float64) for column in columns]
        return np.column_stack([np.ones(n), *parts, *(part**2 for part in parts)])

    if not features:
        raise InputError("a guess needs at least one feature")
    known = design(features_id, len(right_id))
    weights = np.linalg.lstsq(known, right_id.astype(np.float64), rcond=None)[0]
    return np.asarray(design(features, len(np.asarray(features[0]))) @ weights)
