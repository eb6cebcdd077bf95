"""What a probe is: its kind and the numbers that make it one measurement and not another."""

from dataclasses import dataclass, replace
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.probes.paths import POINTS
from shiftbed.store.probes import PROBES

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

    def describe(self) -> dict[str, Any]:
        """What its results depend on, as JSON types.

        >>> default_probe("jacobian", (32, 32)).describe()
        {'projections': 0, 'seed': 0}
        """
        return {name: getattr(self, name) for name in (*_USED[self.name], "seed")}


def is_small(size: tuple[int, int]) -> bool:
    """Whether images are nearer to 32 px than to 224, by the ratio of their shorter sides.

    >>> is_small((64, 64)), is_small((96, 96))
    (True, False)
    """
    return min(size) <= _BOUND


def default_probe(name: str, size: tuple[int, int], **changes: Any) -> Probe:
    """The probe as the paper has it for images of (height, width), with some numbers changed.

    fridovich2022, Section 3: the lowest 40 % of the frequencies per axis on CIFAR-10 (w = 0.2);
    on ImageNet 20 % for phase (w = 0.1) and all for amplitude (w = 0.5). Images whose shorter
    side is at most 84 px are taken like CIFAR-10's, larger ones like ImageNet's.
    """
    if name not in PROBES:
        raise unknown("probe", name, PROBES)
    windows = _FOURIER["small" if is_small(size) else "large"]
    base = Probe(name=name, w=windows.get(name, 0.5))
    given = {key: value for key, value in changes.items() if value is not None}
    return replace(base, **given)


def default_pairs(name: str, size: tuple[int, int], images: int) -> int | None:
    """How many amplitude or phase paths: 5,000 (small images) or 7,000, at most ⌊images/2⌋.

    None for pixel paths, whose number follows from the classes; 400 images for the Jacobian.

    >>> default_pairs("phase", (32, 32), 10_000), default_pairs("phase", (32, 32), 600)
    (5000, 300)
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
