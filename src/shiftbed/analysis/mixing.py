"""Classifiers made of others: mixed ones on the chord, and ensembles that vote.

A mixed classifier takes model A's prediction with probability α and B's otherwise (andreassen2021,
Appendix D.1), so on any data its expected accuracy is α·a + (1−α)·b: the chord between A and B. The
line of the baseline is curved in accuracies, so the chord leaves it, and a mixed classifier has
some effective robustness for free; an intervention should have more.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.intervals import check_fractions
from shiftbed.analysis.noise import image_covariance
from shiftbed.analysis.robustness import Robustness, effective_robustness
from shiftbed.errors import InputError

Floats = NDArray[np.float64]
Classes = NDArray[np.integer[Any]]


def mixed(a: ArrayLike, b: ArrayLike, alpha: ArrayLike) -> Floats:
    """α·a + (1−α)·b for each α (last axis of the result): expected accuracy, or per example.

    >>> mixed(0.8, 0.6, [0.0, 0.5, 1.0]).tolist()
    [0.6, 0.7, 0.8]
    """
    share = check_fractions(alpha, "α")
    first = np.asarray(a, dtype=np.float64)[..., None]
    second = np.asarray(b, dtype=np.float64)[..., None]
    return np.asarray(share * first + (1.0 - share) * second)


def majority_vote(classes: Classes) -> Classes:
    """(N,): the class most of the M models (M, N) answer.

    Of classes with as many votes the one answered by the earliest model wins: list the model to
    trust most first.

    >>> majority_vote(np.array([[3, 1, 2], [4, 1, 5], [4, 1, 0]])).tolist()
    [4, 1, 2]
    """
    if classes.ndim != 2 or not len(classes):
        raise InputError(f"a vote needs (models, examples), got shape {classes.shape}")
    best = np.zeros(classes.shape[1], dtype=np.int64)
    winner: Classes = classes[0].copy()
    for row in classes:
        votes = (classes == row).sum(axis=0)
        better = votes > best
        best[better], winner[better] = votes[better], row[better]
    return winner


def robustness_of(
    baseline: Baseline,
    right_id: NDArray[Any],
    right_ood: NDArray[Any],
    fitted_id: NDArray[np.bool_],
    fitted_ood: NDArray[np.bool_],
    *,
    level: float = 0.95,
) -> Robustness:
    """ρ of P made classifiers against a baseline, from their results (P, N_id) and (P, N_ood).

    Results are right (1) or wrong (0) per example, or the probability of being right. ``fitted_id``
    and ``fitted_ood`` are the results of all models the baseline was fitted on, in the order they
    were given to the fit: intervals are paired, as a made classifier shares its parts' examples.
    """
    p = len(right_id)
    if p != len(right_ood):
        raise InputError(f"{p} classifiers on ID but {len(right_ood)} on OOD data")
    rows = (np.vstack([fitted_id, right_id]), np.vstack([fitted_ood, right_ood]))
    covariance = image_covariance(list(rows), ["id", "ood"])
    position = np.concatenate([np.arange(len(fitted_id)), np.full(p, -1)])
    means = [np.asarray(side, dtype=np.float64).mean(axis=1) for side in rows]
    found = effective_robustness(
        baseline,
        means[0],
        means[1],
        n_id=rows[0].shape[1],
        n_ood=rows[1].shape[1],
        position=position,
        covariance=covariance,
        level=level,
    )
    last = slice(len(means[0]) - p, None)
    return Robustness(**{name: values[last] for name, values in found.columns().items()})
