"""Mean corruption error: errors under corruption as multiples of a reference model's.

Hendrycks and Dietterich (ICLR 2019), Section 3. With E_{s,c} the top-1 error at severity s of
corruption c, E_0 the error on clean images, and the same of AlexNet:

    CE_c          = Σ_s E_{s,c} / Σ_s E^AlexNet_{s,c}
    relative CE_c = Σ_s (E_{s,c} − E_0) / Σ_s (E^AlexNet_{s,c} − E^AlexNet_0)

mCE and relative mCE are their means over the corruptions. Both are weighted sums of errors, so an
interval needs the variance of one sum. Where it is known who was wrong on which image, the sum is
taken per image and its spread over images gives the variance. Where only errors are known, the
variance is the largest that they allow (all errors move together): all corruptions are made of the
same images, so treating them as independent would promise too much.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_fractions, check_level
from shiftbed.errors import InputError

Floats = NDArray[np.float64]

ALEXNET: Mapping[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
"""AlexNet's top-1 errors on ImageNet-C, means over the five severities, as published."""
ALEXNET_CLEAN = 0.435
"""AlexNet's top-1 error on ImageNet, as published (Table 1)."""
BENCHMARK: tuple[str, ...] = tuple(ALEXNET)
"""The fifteen corruptions of the benchmark; the other four of ImageNet-C are for validation."""


@dataclass(frozen=True, kw_only=True)
class CorruptionError:
    """mCE and relative mCE of one model, as fractions of the reference's (1 = the reference)."""

    mce: float
    low: float
    high: float
    relative: float
    relative_low: float
    relative_high: float
    ce: Floats
    """(corruptions,)"""
    relative_ce: Floats
    """(corruptions,)"""
    n: int
    """Images per setting, 0 if unknown; then there are no intervals (NaN)."""
    paired: bool
    """Whether the intervals use results per image; otherwise they are conservative."""


def corruption_error(
    errors: ArrayLike,
    clean: float,
    reference: ArrayLike,
    reference_clean: float,
    *,
    n: int = 0,
    wrong: NDArray[np.bool_] | None = None,
    clean_wrong: NDArray[np.bool_] | None = None,
    level: float = 0.95,
) -> CorruptionError:
    """mCE and relative mCE of one model with Gaussian intervals.

    ``errors`` (corruptions, severities), ``reference`` (corruptions,) the reference's mean errors.
    ``wrong`` (corruptions, severities, images) and ``clean_wrong`` (images,) say who was wrong on
    which image. The reference's errors are taken as given, without noise.

    >>> twice = corruption_error([[0.2, 0.4], [0.5, 0.7]], 0.1, [0.6, 0.3], 0.2)
    >>> twice.ce.round(3).tolist(), round(twice.mce, 3)
    ([0.5, 2.0], 1.25)
    """
    check_level(level)
    e = np.asarray(errors, dtype=np.float64)
    ref = np.asarray(reference, dtype=np.float64)
    if e.ndim != 2 or ref.shape != e.shape[:1] or not e.size:
        raise InputError(
            f"errors must be (corruptions, severities) with a reference each, got {e.shape} and "
            f"{ref.shape}"
        )
    check_fractions(np.append(e.ravel(), clean), "error")
    if (ref <= 0).any() or (ref == reference_clean).any():
        raise InputError(
            "the reference must err under every corruption, and not just as on clean images"
        )
    harm = ref - reference_clean
    weights = np.broadcast_to((1 / ref / e.size)[:, None], e.shape)
    relative = np.broadcast_to((1 / harm / e.size)[:, None], e.shape)
    paired = wrong is not None and clean_wrong is not None
    half = relative_half = float("nan")
    if wrong is not None and clean_wrong is not None:
        z, n = float(ndtri(0.5 + level / 2)), wrong.shape[-1]
        half = z * _spread(weights, wrong, 0.0, clean_wrong)
        relative_half = z * _spread(relative, wrong, -float(relative.sum()), clean_wrong)
    elif n > 0:
        z = float(ndtri(0.5 + level / 2))
        deviation = np.sqrt(e * (1 - e) / n)
        half = z * float((weights * deviation).sum())
        own = float(np.sqrt(clean * (1 - clean) / n)) * abs(float(relative.sum()))
        relative_half = z * (float((np.abs(relative) * deviation).sum()) + own)
    ce = e.mean(axis=1) / ref
    relative_ce = (e.mean(axis=1) - clean) / harm
    mce, mean = float(ce.mean()), float(relative_ce.mean())
    return CorruptionError(
        mce=mce,
        low=max(0.0, mce - half) if half == half else half,
        high=mce + half,
        relative=mean,
        relative_low=mean - relative_half,
        relative_high=mean + relative_half,
        ce=ce,
        relative_ce=relative_ce,
        n=n,
        paired=paired,
    )


def _spread(
    weights: Floats, wrong: NDArray[np.bool_], own: float, clean_wrong: NDArray[np.bool_]
) -> float:
    """Standard error of Σ w·wrong + own·clean_wrong, a mean over images."""
    per_image = own * clean_wrong.astype(np.float64)
    for row, weight in zip(wrong.reshape(-1, wrong.shape[-1]), weights.ravel(), strict=True):
        per_image += weight * row
    scaled = per_image.std(ddof=1) if len(per_image) > 1 else float("nan")
    return float(scaled / np.sqrt(len(per_image)))
