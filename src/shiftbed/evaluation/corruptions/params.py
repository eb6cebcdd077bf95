"""Severities: the published parameters for 224 and 32 pixels, and what holds between and below.

``IMAGENET`` are ImageNet-C's parameters, ``CIFAR`` those of CIFAR-10-C (Hendrycks & Dietterich
2019, the generating scripts released with it). An image's size is its shorter side s.

- s ≥ 224: ImageNet-C's numbers as they are, in pixels, as the reference package does.
- s = 32: CIFAR-10-C's numbers.
- 32 < s < 224: between the two by t = log(s/32)/log(7); geometrically where both ends are
  positive, linearly where one is zero; whole numbers are rounded.
- s < 32: CIFAR-10-C's numbers, lengths in pixels times s/32; whole lengths at least 1.
"""

import math
from dataclasses import KW_ONLY, dataclass

from shiftbed.errors import InputError, unknown


@dataclass(frozen=True)
class Param:
    """One parameter of a corruption: its values at severities 1 … 5 for 224 and for 32 pixels."""

    name: str
    imagenet: tuple[float, ...]
    cifar: tuple[float, ...]
    _: KW_ONLY
    pixels: bool = False
    whole: bool = False

    def at(self, severity: int, size: int) -> float:
        """The value for an image whose shorter side is ``size``."""
        large, small = self.imagenet[severity - 1], self.cifar[severity - 1]
        if size >= 224:
            value = large
        elif size > 32:
            t = math.log(size / 32) / math.log(7)
            if large > 0 and small > 0:
                value = small * (large / small) ** t
            else:
                value = small + (large - small) * t
        else:
            value = small * size / 32 if self.pixels else small
        return float(max(round(value), 1)) if self.whole else value


TABLE: dict[str, tuple[Param, ...]] = {
    "greyscale": (),
    "gaussian_noise": (
        Param("scale", (0.08, 0.12, 0.18, 0.26, 0.38), (0.04, 0.06, 0.08, 0.09, 0.1)),
    ),
    "shot_noise": (Param("photons", (60, 25, 12, 5, 3), (500, 250, 100, 75, 50)),),
    "impulse_noise": (
        Param("amount", (0.03, 0.06, 0.09, 0.17, 0.27), (0.01, 0.02, 0.03, 0.05, 0.07)),
    ),
    "speckle_noise": (Param("scale", (0.15, 0.2, 0.35, 0.45, 0.6), (0.06, 0.1, 0.12, 0.16, 0.2)),),
    "gaussian_blur": (Param("sigma", (1, 2, 3, 4, 6), (0.4, 0.6, 0.7, 0.8, 1), pixels=True),),
    "defocus_blur": (
        Param("radius", (3, 4, 6, 8, 10), (0.3, 0.4, 0.5, 1, 1.5), pixels=True),
        Param("edge", (0.1, 0.5, 0.5, 0.5, 0.5), (0.4, 0.5, 0.6, 0.2, 0.1), pixels=True),
    ),
    "glass_blur": (
        Param("sigma", (0.7, 0.9, 1, 1.1, 1.5), (0.05, 0.25, 0.4, 0.25, 0.4), pixels=True),
        Param("reach", (1, 2, 2, 3, 4), (1, 1, 1, 1, 1), pixels=True, whole=True),
        Param("rounds", (2, 1, 3, 2, 2), (1, 1, 1, 2, 2), whole=True),
    ),
    "motion_blur": (
        Param("radius", (10, 15, 15, 15, 20), (6, 6, 6, 8, 9), pixels=True, whole=True),
        Param("sigma", (3, 5, 8, 12, 15), (1, 1.5, 2, 2, 2.5), pixels=True),
    ),
    "zoom_blur": (
        Param("end", (1.11, 1.16, 1.21, 1.26, 1.31), (1.06, 1.11, 1.16, 1.21, 1.26)),
        Param("step", (0.01, 0.01, 0.02, 0.02, 0.03), (0.01, 0.01, 0.01, 0.01, 0.01)),
    ),
    "snow": (
        Param("mean", (0.1, 0.2, 0.55, 0.55, 0.55), (0.1, 0.1, 0.15, 0.25, 0.3)),
        Param("scale", (0.3, 0.3, 0.3, 0.3, 0.3), (0.2, 0.2, 0.3, 0.3, 0.3)),
        Param("zoom", (3, 2, 4, 4.5, 2.5), (1, 1, 1.75, 2.25, 1.25)),
        Param("threshold", (0.5, 0.5, 0.9, 0.85, 0.85), (0.6, 0.5, 0.55, 0.6, 0.65)),
        Param("radius", (10, 12, 12, 12, 12), (8, 10, 10, 12, 14), pixels=True, whole=True),
        Param("sigma", (4, 4, 8, 8, 12), (3, 4, 4, 6, 12), pixels=True),
        Param("keep", (0.8, 0.7, 0.7, 0.65, 0.55), (0.95, 0.9, 0.9, 0.85, 0.8)),
    ),
    "frost": (
        Param("keep", (1, 0.8, 0.7, 0.65, 0.6), (1, 1, 0.9, 0.85, 0.75)),
        Param("add", (0.4, 0.6, 0.7, 0.7, 0.75), (0.2, 0.3, 0.4, 0.4, 0.45)),
        Param("resize", (1, 1, 1, 1, 1), (0.2, 0.2, 0.2, 0.2, 0.2), pixels=True),
    ),
    "fog": (
        Param("thickness", (1.5, 2, 2.5, 2.5, 3), (0.2, 0.5, 0.75, 1, 1.5)),
        Param("decay", (2, 2, 1.7, 1.5, 1.4), (3, 3, 2.5, 2, 1.75)),
    ),
    "spatter": (
        Param("mean", (0.65, 0.65, 0.65, 0.65, 0.67), (0.62, 0.65, 0.65, 0.65, 0.65)),
        Param("scale", (0.3, 0.3, 0.3, 0.3, 0.4), (0.1, 0.1, 0.3, 0.1, 0.1)),
        Param("sigma", (4, 3, 2, 1, 1), (0.7, 0.8, 1, 0.7, 0.5), pixels=True),
        Param("threshold", (0.69, 0.68, 0.68, 0.65, 0.65), (0.7, 0.7, 0.69, 0.69, 0.68)),
        Param("strength", (0.6, 0.6, 0.5, 0, 0), (0.5, 0.5, 0.5, 0, 0)),
        Param("mud", (0, 0, 0, 1.5, 1.5), (0, 0, 0, 0.6, 0.6), pixels=True),
    ),
    "brightness": (Param("add", (0.1, 0.2, 0.3, 0.4, 0.5), (0.05, 0.1, 0.15, 0.2, 0.3)),),
    "contrast": (Param("factor", (0.4, 0.3, 0.2, 0.1, 0.05), (0.75, 0.5, 0.4, 0.3, 0.15)),),
    "saturate": (
        Param("factor", (0.3, 0.1, 2, 5, 20), (0.3, 0.1, 1.5, 2, 2.5)),
        Param("add", (0, 0, 0, 0.1, 0.2), (0, 0, 0, 0.1, 0.2)),
    ),
    "pixelate": (Param("factor", (0.6, 0.5, 0.4, 0.3, 0.25), (0.95, 0.9, 0.85, 0.75, 0.65)),),
    "jpeg_compression": (Param("quality", (25, 18, 15, 10, 7), (80, 65, 58, 50, 40), whole=True),),
    "elastic_transform": (
        Param("alpha", (488, 488, 12.2, 17.08, 29.28), (0, 1.6, 2.56, 3.2, 3.2), pixels=True),
        Param("sigma", (170.8, 19.52, 2.44, 2.44, 2.44), (0, 6.4, 1.92, 1.28, 0.96), pixels=True),
        Param("affine", (24.4, 48.8, 4.88, 4.88, 4.88), (2.56, 2.24, 1.92, 1.6, 0.96), pixels=True),
    ),
}

NAMES: tuple[str, ...] = tuple(TABLE)


def severities(name: str) -> tuple[int, ...]:
    """The severities a corruption has: 1 … 5, and only 1 for greyscale, which has no strength.

    >>> severities("greyscale"), severities("fog")
    ((1,), (1, 2, 3, 4, 5))
    """
    if name not in TABLE:
        raise unknown("corruption", name, NAMES)
    return (1,) if name == "greyscale" else (1, 2, 3, 4, 5)


def parameters(name: str, severity: int, height: int, width: int) -> dict[str, float]:
    """The parameters of a corruption for images of a size.

    >>> parameters("shot_noise", 3, 224, 300), parameters("shot_noise", 3, 32, 32)
    ({'photons': 12}, {'photons': 100})
    >>> round(parameters("shot_noise", 3, 64, 64)["photons"], 1)
    47.0
    >>> parameters("motion_blur", 1, 8, 8)
    {'radius': 2.0, 'sigma': 0.25}
    """
    known = severities(name)
    if severity not in known or isinstance(severity, bool):
        allowed = "1" if known == (1,) else "1 to 5"
        raise InputError(f"corruption {name}: severity must be {allowed}, got {severity!r}")
    size = min(height, width)
    return {p.name: p.at(severity, size) for p in TABLE[name]}
