"""Each estimate of OOD accuracy, from what models answered: without labels, and with a few."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.few_labels import (
    agreeing_share,
    guesses,
    labels_alone,
    prediction_powered,
)
from shiftbed.analysis.intervals import off_boundary
from shiftbed.analysis.label_free import (
    AgreementLine,
    Estimate,
    agreement_on_the_line,
    average_confidence,
    difference_of_confidences,
    shift_bias,
    thresholded_confidence,
    widened,
)
from shiftbed.errors import InputError
from shiftbed.results.joint_answers import (
    MAX_PROBABILITY,
    NEGATIVE_ENTROPY,
    JointAnswers,
    matched,
)

NEEDS = {
    "ATC-MC": MAX_PROBABILITY,
    "ATC-NE": NEGATIVE_ENTROPY,
    "DoC": MAX_PROBABILITY,
    "AC": MAX_PROBABILITY,
}
WORDS = {
    MAX_PROBABILITY: "probabilities, and there are only predicted classes",
    NEGATIVE_ENTROPY: "the probabilities of all classes (evaluate with logits kept)",
}


def agreement_line(
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


Bias = tuple[float, int] | str
"""How far agreement-on-the-line was off on how many labelled shifts; or why that is unknown."""


def learnt_bias(source: JointAnswers, others: Sequence[JointAnswers], target: str) -> Bias:
    """Learnt on the labelled shifts, of which the one to be estimated is none."""
    others = [one for one in others if one.setting != target]
    if len(others) < 2:
        return f"how far off the whole shift is needs two other labelled shifts, got {len(others)}"
    estimates, truths = [], []
    for other in others:
        first, second = matched(source, other)
        if first.classes is None or second.classes is None:
            return "labelled shifts need the predicted classes"
        line = agreement_on_the_line(first.judged(), first.classes, second.classes)
        estimates.append(line.simple)
        truths.append(off_boundary(second.judged().mean(axis=1), second.n))
    return shift_bias(estimates, truths), len(others)


def labelled_places(
    target: JointAnswers, labels: int | Sequence[int] | NDArray[Any], seed: int
) -> NDArray[np.int64]:
    """Which OOD images have a label that may be used."""
    _, known = _known(target)
    if isinstance(labels, int):
        there = np.flatnonzero(known)
        most = min(len(there), target.n - 1)
        if not 4 <= labels <= most:
            raise InputError(
                f"labels must be 4 to {most} ({len(there)} of {target.n} images of "
                f"{target.setting!r} have one), got {labels}"
            )
        drawn = there[np.random.default_rng(seed).permutation(len(there))[:labels]]
        return np.sort(drawn).astype(np.int64)
    places = np.asarray(labels)
    if places.dtype == bool and len(places) == target.n:
        places = np.flatnonzero(places)
    whole = places.ndim == 1 and np.issubdtype(places.dtype, np.integer)
    inside = whole and len(places) and places.min() >= 0 and places.max() < target.n
    if not inside or len(np.unique(places)) < len(places):
        raise InputError(f"labels must be a number, or places of 0 to {target.n - 1}, each once")
    if not known[places].all():
        raise InputError(f"labels must be places of labelled images of {target.setting!r}")
    return np.sort(places).astype(np.int64)


def _known(target: JointAnswers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(M, N) who is right, and (N,) on which examples that is known."""
    if target.right is not None:
        return target.right, np.ones(target.n, dtype=bool)
    if target.partly is None:
        raise InputError(f"labels: {target.setting!r} has no labels")
    return target.partly


def with_labels(
    source: JointAnswers, target: JointAnswers, chosen: NDArray[np.int64], i: int, level: float
) -> list[tuple[str, Estimate]]:
    """Prediction-powered where there is something to guess from, and the labels alone."""
    features = []
    if len(source.models) > 2 and source.classes is not None and target.classes is not None:
        features.append([agreeing_share(side, i) for side in (source.classes, target.classes)])
    for score in (MAX_PROBABILITY, NEGATIVE_ENTROPY):
        rows = [side.scores[score][i] for side in (source, target) if score in side.scores]
        if len(rows) == 2 and all(np.isfinite(row).all() for row in rows):
            features.append([np.asarray(row, np.float64) for row in rows])
    right, rest = _known(target)[0][i], np.setdiff1d(np.arange(target.n), chosen)
    found = [("labels", labels_alone(right[chosen], level=level))]
    if features:
        known, new = zip(*features, strict=True)
        f = guesses(source.judged()[i], known, new)
        powered = prediction_powered(right[chosen], f[chosen], f[rest], level=level)
        found.insert(0, ("PPI", powered))
    return found


def without_labels(
    source: JointAnswers,
    target: JointAnswers,
    line: AgreementLine | None,
    bias: Bias,
    i: int,
    level: float,
) -> Iterator[tuple[str, Estimate]]:
    right, sizes = source.judged()[i], {"n_id": source.n, "n_ood": target.n}
    if line is not None:
        note = "ID accuracy outside the agreements' range" if line.extrapolated[i] else ""
        for method, name in (("ALine-S", "simple"), ("ALine-D", "direct")):
            value, low, high = (
                float(getattr(line, name + end)[i]) for end in ("", "_low", "_high")
            )
            alone = "" if np.isfinite(value) else "agrees always or never with every other model"
            if isinstance(bias, str):
                low = high = float("nan")
            elif np.isfinite(value):
                low, high = widened(value, low, high, *bias, level)
            notes = "; ".join(filter(None, [note, alone]))
            yield method, Estimate(value=value, low=low, high=high, note=notes, **sizes)
    methods: dict[str, Callable[[NDArray[Any], NDArray[Any]], Estimate]] = {
        "ATC-MC": lambda s, t: thresholded_confidence(s, right, t, level=level),
        "ATC-NE": lambda s, t: thresholded_confidence(s, right, t, level=level),
        "DoC": lambda s, t: difference_of_confidences(s, right, t, level=level),
        "AC": lambda s, t: average_confidence(t, level=level),
    }
    for method, estimate in methods.items():
        scores = [side.scores.get(NEEDS[method]) for side in (source, target)]
        rows = [None if score is None else score[i] for score in scores]
        if all(row is not None and np.isfinite(row).all() for row in rows):
            yield method, estimate(np.asarray(rows[0]), np.asarray(rows[1]))
    unknown = float("nan")
    note = "no interval: it is no estimate of OOD accuracy"
    yield "ID", Estimate(value=float(right.mean()), low=unknown, high=unknown, note=note, **sizes)


def accuracy_line(
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
