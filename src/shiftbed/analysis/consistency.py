"""Consistency of video frames: pm-k accuracy (taori2020, Section 3.1 and Appendix E).

An anchor frame counts under pm-k only if it *and* every reviewed frame within ±k of it is right:

    pm-k = (1/A) Σ_a Π_{f: |f − a| ≤ k} 1[ŷ_f ∈ Y],    pm-0 = accuracy on the anchors.

Y is the frame's own set of labels (ImageNet-Vid-Robust) or the anchor's (YTBB-Robust). Predictions
are in superclasses: ``shiftbed.labels.class_map`` merges a model's logits into them by max.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError, unknown

RULES = ("frame", "anchor")
"""Frames are judged by their own labels, or by their anchor's."""
Integers = NDArray[np.int64]
Labels = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class FrameSets:
    """Anchors and the frames about them, as pairs; an anchor is paired with itself at distance 0.

    Made by ``frame_sets``.
    """

    anchors: tuple[str, ...]
    frames: tuple[str, ...]
    """All frames, anchors among them."""
    anchor_of: Integers
    """(pairs,): number of the anchor."""
    frame_of: Integers
    """(pairs,): number of the frame."""
    distance: Integers
    """(pairs,): frames between them, 0 for the anchor itself."""
    labels: tuple[tuple[int, ...], ...]
    """(pairs,): right answers of the frame in this pair."""
    rule: str

    @cached_property
    def _answers(self) -> tuple[Integers, Integers]:
        """Every right answer, with the pair it belongs to."""
        sizes = [len(own) for own in self.labels]
        flat = [label for own in self.labels for label in own]
        return np.repeat(np.arange(len(sizes)), sizes), np.array(flat, dtype=np.int64)

    def right(self, predicted: Integers) -> NDArray[np.bool_]:
        """(pairs,): whether predictions (frames,) are right in each pair."""
        pair, answer = self._answers
        hits = pair[predicted[self.frame_of[pair]] == answer]
        return np.bincount(hits, minlength=len(self.labels)) > 0


def frame_sets(
    neighbours: Mapping[str, Mapping[str, int]],
    labels: Mapping[str, Sequence[int]],
    *,
    rule: str = "frame",
) -> FrameSets:
    """Frame sets from each anchor's frames with their distances, and labels of frames or anchors.

    ``rule`` frame needs labels of all frames, anchor only those of anchors.

    >>> sets = frame_sets({"v/5": {"v/4": 1, "v/7": 2}}, {"v/5": [3]}, rule="anchor")
    >>> sets.frames, sets.distance.tolist()
    (('v/5', 'v/4', 'v/7'), [0, 1, 2])
    """
    if rule not in RULES:
        raise unknown("judging rule", rule, RULES)
    if not neighbours:
        raise InputError("there is no anchor frame")
    pairs = [
        (anchor, frame, distance)
        for anchor, own in neighbours.items()
        for frame, distance in ((anchor, 0), *own.items())
    ]
    for anchor, frame, distance in pairs:
        if (distance == 0) != (anchor == frame) or distance < 0:
            raise InputError(f"frame {frame!r} is {distance} from its anchor {anchor!r}")
        judged = anchor if rule == "anchor" else frame
        if not labels.get(judged):
            hint = "; judge by the anchor's labels" if rule == "frame" and anchor != frame else ""
            raise InputError(f"frame {judged!r} has no label{hint}")
    anchors = {anchor: number for number, anchor in enumerate(neighbours)}
    frames = {frame: number for number, frame in enumerate(dict.fromkeys(f for _, f, _ in pairs))}
    return FrameSets(
        anchors=tuple(anchors),
        frames=tuple(frames),
        anchor_of=np.array([anchors[a] for a, _, _ in pairs], dtype=np.int64),
        frame_of=np.array([frames[f] for _, f, _ in pairs], dtype=np.int64),
        distance=np.array([d for _, _, d in pairs], dtype=np.int64),
        labels=tuple(tuple(labels[a if rule == "anchor" else f]) for a, f, _ in pairs),
        rule=rule,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PmK:
    """pm-k for several k, over the same anchors, so that it can only fall with k."""

    k: tuple[int, ...]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: int
    """Anchors that count."""
    left_out: int
    """Anchors that do not, because a frame within ±max(k) has no prediction."""
    missing: tuple[str, ...]
    """These frames."""
    right: NDArray[np.bool_]
    """(k, anchors): whether an anchor and all its frames within ±k are right."""
    counted: NDArray[np.bool_]
    """(anchors,): whether it counts."""


def pm_k(
    sets: FrameSets, predicted: ArrayLike, k: Sequence[int] = (0, 10), *, level: float = 0.95
) -> PmK:
    """pm-k accuracies of predictions (frames,), −1 or less where there is none.

    Anchors with a frame missing within ±max(k) are left out of every k, and counted; the interval
    is Clopper–Pearson's over the others. If no anchor is left, values are NaN with n = 0.

    >>> sets = frame_sets({"5": {"4": 1, "7": 2}, "9": {}}, {"5": [3], "9": [1]}, rule="anchor")
    >>> pm_k(sets, [3, 3, 0, 1], (0, 1, 2)).value.tolist()
    [1.0, 1.0, 0.5]
    """
    guess = np.asarray(predicted, dtype=np.int64)
    if guess.shape != (len(sets.frames),):
        raise InputError(f"{len(sets.frames)} frames need as many predictions, got {guess.shape}")
    if not k or min(k) < 0:
        raise InputError(f"k must be numbers of frames from 0 on, got {list(k)}")
    near = sets.distance <= max(k)
    unknown_pair = near & (guess[sets.frame_of] < 0)
    size = len(sets.anchors)
    counts = np.ones(size, dtype=bool)
    counts[sets.anchor_of[unknown_pair]] = False
    n = int(counts.sum())
    wrong = ~sets.right(guess)
    first = np.full(size, np.iinfo(np.int64).max)  # distance of the nearest wrong frame
    np.minimum.at(first, sets.anchor_of[wrong], sets.distance[wrong])
    right = np.array([first > one for one in k])
    value = right[:, counts].mean(axis=1) if n else np.full(len(k), np.nan)
    low, high = clopper_pearson(value, n, level)
    return PmK(
        k=tuple(int(one) for one in k),
        value=value,
        low=low,
        high=high,
        n=n,
        left_out=size - n,
        missing=tuple(sets.frames[i] for i in np.unique(sets.frame_of[unknown_pair])),
        right=right,
        counted=counts,
    )
