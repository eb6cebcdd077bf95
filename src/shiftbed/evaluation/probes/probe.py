"""What a probe is: its kind, the numbers that make it one measurement, and the images it takes.

Pairs of rows of a test set are seeded, and the first k are the same whatever number is asked for,
so that a run can be continued and made longer. Images are drawn without replacement: no image is in
two pairs of any classes, nor in two pairs of one class (within), nor twice on its side of a pair of
classes (between).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.paths import POINTS
from shiftbed.store.probes import PROBES

Rows = NDArray[np.int64]
EACH = 200
"""Pixel paths per class within, and per pair of classes between (fridovich2022's code)."""
MOST = 10_000
"""Pixel paths unless more are asked for: CIFAR-10 has 2,000 within and 9,000 between; ImageNet
would have 25,000 and a hundred million."""
_CLASSES = 2000
"""Of more classes than this, so many are drawn for paths between them."""

_BOUND = 84
"""√(32·224), rounded down: shorter sides up to this are nearer to CIFAR-10's than ImageNet's."""
IMAGES = 400
"""Test images whose Jacobians are averaged."""
_FOURIER = {
    "small": {"amplitude": 0.2, "phase": 0.2},
    "large": {"amplitude": 0.5, "phase": 0.1},
}
_PAIRS = {"small": 5000, "large": 7000}
_USED = {
    "amplitude": ("w", "points"),
    "phase": ("w", "points"),
    "pixel_within": ("step",),
    "pixel_between": ("step",),
    "jacobian": ("projections",),
}
NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar-10": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Mean and standard deviation of training pixels, as the released code has them."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One measurement of a model: paths of a kind, or the Jacobian.

    >>> default_probe("phase", (224, 224)).w, default_probe("phase", (32, 32)).w
    (0.1, 0.2)
    """

    name: str
    """amplitude, phase, pixel_within, pixel_between or jacobian."""
    w: float = 0.2
    """Half width of the window of low frequencies, as a share of the shorter side."""
    points: int = POINTS
    """Points of an amplitude or phase path."""
    step: float = 1.0
    """ℓ2 distance of neighbours on a pixel path, in normalised space."""
    projections: int = 0
    """Random projections per image; 0: the exact Jacobian."""
    normalisation: str = "model"
    """The space of images that it measures in: normalised as the pixels of ``cifar-10`` or
    ``imagenet`` are, whatever the model does, or as the ``model`` itself does."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in PROBES:
            raise unknown("probe", self.name, PROBES)
        if not 0 < self.w <= 0.5:
            raise InputError(f"the window must be above 0 and at most 0.5, is {self.w:g}")
        if self.points < 2:
            raise InputError(f"a path has at least 2 points, not {self.points}")
        if self.step <= 0:
            raise InputError(f"the step of a path must be above 0, is {self.step:g}")
        if self.projections < 0:
            raise InputError(f"projections must be at least 0, are {self.projections}")
        if self.normalisation not in (*NORMALISATIONS, "model"):
            raise unknown("normalisation", self.normalisation, (*NORMALISATIONS, "model"))

    def space(self, preprocessing: Preprocessing) -> Preprocessing:
        """A model's preprocessing with the mean and standard deviation it measures in.

        Images of one channel have the mean of the three.
        """
        if self.normalisation == "model":
            return preprocessing
        mean, std = NORMALISATIONS[self.normalisation]
        if len(preprocessing.mean) == 1:
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
        if preprocessing.mode == "BGR":
            mean, std = mean[::-1], std[::-1]
        return replace(preprocessing, mean=mean, std=std)

    def describe(self) -> dict[str, Any]:
        """What its results depend on, as JSON types."""
        return {name: getattr(self, name) for name in (*_USED[self.name], "normalisation", "seed")}


def is_small(size: tuple[int, int]) -> bool:
    """Whether images are nearer to 32 px than to 224, by the ratio of their shorter sides."""
    return min(size) <= _BOUND


def default_probe(name: str, size: tuple[int, int], **changes: Any) -> Probe:
    """The probe as the paper has it for images of (height, width), with some numbers changed.

    fridovich2022, Section 3: the lowest 40 % of the frequencies per axis on CIFAR-10 (w = 0.2);
    on ImageNet 20 % for phase (w = 0.1) and all for amplitude (w = 0.5). Images whose shorter
    side is at most 84 px are taken like CIFAR-10's, larger ones like ImageNet's. So is their
    normalisation: the same function of pixels has the same probes, however it normalises.
    """
    if name not in PROBES:
        raise unknown("probe", name, PROBES)
    small = is_small(size)
    windows = _FOURIER["small" if small else "large"]
    space = "cifar-10" if small else "imagenet"
    base = Probe(name=name, w=windows.get(name, 0.5), normalisation=space)
    given = {key: value for key, value in changes.items() if value is not None}
    return replace(base, **given)


def default_pairs(name: str, size: tuple[int, int], images: int) -> int | None:
    """How many amplitude or phase paths: 5,000 (small images) or 7,000, at most ⌊images/2⌋.

    None for pixel paths, whose number follows from the classes; 400 images for the Jacobian.
    """
    if name == "jacobian":
        return min(IMAGES, images)
    if name not in ("amplitude", "phase"):
        return None
    return min(_PAIRS["small" if is_small(size) else "large"], images // 2)


def default_projections(classes: int) -> int:
    """0, the exact Jacobian as in the released code, up to 50 classes; else 10 projections.

    >>> default_projections(10), default_projections(1000)
    (0, 10)
    """
    return 0 if classes <= 50 else 10


def rows_of(
    probe: Probe, labels: NDArray[np.int64], size: tuple[int, int], pairs: int | None = None
) -> Rows:
    """What a probe takes of a test set: (P, 2) pairs of rows for paths, (N,) rows for the Jacobian.

    ``pairs`` is their number, by default the paper's for images of that (height, width).
    """
    if probe.name == "pixel_within":
        return within_pairs(labels, pairs, probe.seed)
    if probe.name == "pixel_between":
        return between_pairs(labels, pairs, probe.seed)
    wanted = default_pairs(probe.name, size, len(labels)) if pairs is None else pairs
    if probe.name == "jacobian":
        return some_rows(len(labels), wanted or 0, probe.seed)
    return any_pairs(len(labels), wanted, probe.seed)


def any_pairs(images: int, pairs: int | None = None, seed: int = 0) -> Rows:
    """(P, 2) rows of images of any classes; at most ⌊images/2⌋ pairs."""
    there = images // 2
    wanted = there if pairs is None else pairs
    if not 1 <= wanted <= there:
        raise InputError(
            f"pairs must be between 1 and {there}, is {wanted}: {images} images are drawn "
            "without replacement"
        )
    order = np.random.default_rng((seed, 0)).permutation(images)
    return order[: 2 * wanted].reshape(wanted, 2).astype(np.int64)


def some_rows(images: int, count: int, seed: int = 0) -> Rows:
    """(min(count, images),) rows of single images, as for the Jacobian."""
    if count < 1:
        raise InputError(f"at least 1 image is needed, not {count}")
    return np.random.default_rng((seed, 1)).permutation(images)[:count].astype(np.int64)


def within_pairs(labels: NDArray[np.int64], pairs: int | None = None, seed: int = 0) -> Rows:
    """(P, 2) rows of images of one class, as many of each class as there are.

    By default 200 per class, at most half of a class's images and 10,000 in all.

    >>> labels = np.repeat([0, 1], 50)
    >>> found = within_pairs(labels, 6)
    >>> bool((labels[found[:, 0]] == labels[found[:, 1]]).all()), labels[found[:, 0]].tolist()
    (True, [0, 1, 0, 1, 0, 1])
    """
    classes = _classes(labels)
    sizes = [min(EACH, int((labels == c).sum()) // 2) for c in classes]

    def draw(at: int) -> Rows:
        rows = np.flatnonzero(labels == classes[at])
        order = np.random.default_rng((seed, 2, classes[at])).permutation(rows)
        return order[: len(order) // 2 * 2].reshape(-1, 2)

    return _in_turn(range(len(classes)), sizes, draw, pairs)


def between_pairs(labels: NDArray[np.int64], pairs: int | None = None, seed: int = 0) -> Rows:
    """(P, 2) rows of images of two classes, as many of each pair of classes as there are.

    By default 200 per pair of classes, at most the images of the smaller one and 10,000 in all.

    >>> labels = np.repeat([0, 1, 2], 5)
    >>> found = labels[between_pairs(labels, 3)]
    >>> sorted(map(tuple, found.tolist()))
    [(0, 1), (0, 2), (1, 2)]
    """
    classes = _classes(labels)
    if len(classes) < 2:
        raise InputError("paths between classes need images of two classes")
    rng = np.random.default_rng((seed, 3))
    if len(classes) > _CLASSES:
        classes = sorted(rng.permutation(classes)[:_CLASSES].tolist())
    first, second = np.triu_indices(len(classes), 1)
    order = rng.permutation(len(first))
    count = np.array([int((labels == c).sum()) for c in classes])
    sizes = np.minimum(EACH, np.minimum(count[first], count[second])).tolist()

    def draw(at: int) -> Rows:
        sides = []
        for side, which in enumerate((first[at], second[at])):
            pair = (seed, 4 + side, classes[first[at]], classes[second[at]])
            rows = np.flatnonzero(labels == classes[which])
            sides.append(np.random.default_rng(pair).permutation(rows))
        shorter = min(map(len, sides))
        return np.stack([side[:shorter] for side in sides], axis=1)

    return _in_turn(order.tolist(), sizes, draw, pairs)


def _classes(labels: NDArray[np.int64]) -> list[int]:
    classes = np.unique(labels[labels >= 0]).tolist()
    if not classes:
        raise InputError("pixel paths need labels: within a class, or between two")
    return [int(c) for c in classes]


def _in_turn(
    order: "list[int] | range", sizes: list[int], draw: Callable[[int], Rows], pairs: int | None
) -> Rows:
    """One pair of each group in turn, until ``pairs`` or all of them are drawn."""
    there = sum(sizes)
    wanted = min(there, MOST) if pairs is None else pairs
    if not 1 <= wanted <= there:
        raise InputError(f"pairs must be between 1 and {there}, is {wanted}, for these classes")
    drawn: dict[int, Rows] = {}
    found = np.empty((wanted, 2), dtype=np.int64)
    turns = ((one, turn) for turn in range(max(sizes)) for one in order if sizes[one] > turn)
    for at, (group, turn) in zip(range(wanted), turns, strict=False):
        if group not in drawn:
            drawn[group] = draw(group)
        found[at] = drawn[group][turn]
    return found
