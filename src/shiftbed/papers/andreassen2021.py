"""Andreassen et al. 2021, "The Evolution of Out-of-Distribution Robustness Throughout Fine-Tuning".

Its lines through testbeds (Appendix A, Tables 2 and 3) and the images no testbed model gets right
(Section 5.4). The ImageNet line goes through all 201 models of taori2020's testbed that have both
accuracies. The CIFAR-10 line and the hard images need published predictions of single images,
which do not ship; what is said of fine-tuned models cannot be recomputed.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.errors import InputError
from shiftbed.papers import Key, Recomputed
from shiftbed.scales import SCALES
from shiftbed.testbed import published

TAKES_PREDICTIONS = True
IMAGES = 50_000
"""Images of the ImageNet validation set."""
Arrays = Mapping[str, NDArray[np.generic]]
CIFAR10 = ("models", "original", "v6", "labels_original", "labels_v6")
IMAGENET = ("models", "top1", "labels")
LACKS_CIFAR10 = "needs the predictions of the 30 public CIFAR-10 models (--predictions)"
LACKS_IMAGENET = "needs the predictions of the 67 models for ImageNet validation (--predictions)"


def recompute(predictions: Sequence[Path]) -> Mapping[Key, Recomputed]:
    """Tables 2 and 3 and the testbed's part of the text, as far as the given files allow."""
    cifar10: Arrays | None = None
    imagenet: Arrays | None = None
    for path in predictions:
        arrays = _load(path)
        if set(CIFAR10) <= arrays.keys():
            cifar10 = arrays
        elif set(IMAGENET) <= arrays.keys() and len(arrays["labels"]) == IMAGES:
            imagenet = arrays
        else:
            raise InputError(
                f"{path}: expected predictions of CIFAR-10 models (arrays {', '.join(CIFAR10)}) "
                f"or of {IMAGES:,} ImageNet validation images (arrays {', '.join(IMAGENET)})"
            )
    testbed = published("imagenet-testbed-2020")
    resnet18 = float(100.0 * testbed.accuracy("val")[testbed.model_index("resnet18")])
    return {
        **imagenet_line(),
        **cifar10_line(cifar10),
        **hard_images(imagenet),
        ("Section 1 (text)", "testbed of taori2020", "models"): Recomputed(
            value=len(testbed.models)
        ),
        ("Section 5.5 (text)", "resnet18", "ImageNet accuracy, before fine-tuning"): Recomputed(
            value=resnet18, if_differs="the print looks cut off rather than rounded"
        ),
    }


def imagenet_line() -> dict[Key, Recomputed]:
    """ImageNet → ImageNetV2 through every model that has both accuracies."""
    testbed = published("imagenet-testbed-2020")
    fits = {
        name: testbed.fit("imagenet-v2", models="all", scale=name, bootstrap=0) for name in SCALES
    }
    why = f"{fits['logit'].n} models"
    line = {"A": fits["logit"].weights[0], "B": fits["logit"].intercept}
    return {
        ("Table 2", name, "ImageNet"): Recomputed(value=fit.r2, why=why)
        for name, fit in fits.items()
    } | {
        ("Table 3", "ImageNet/ImageNetV2", letter): Recomputed(value=value, why=why)
        for letter, value in line.items()
    }


def cifar10_line(arrays: Arrays | None) -> dict[Key, Recomputed]:
    """CIFAR-10 → CIFAR-10.1 (v6) through the public models."""
    keys = {name: ("Table 2", name, "CIFAR-10") for name in SCALES}
    slope, intercept = (("Table 3", "CIFAR-10/10.1", letter) for letter in "AB")
    if arrays is None:
        return dict.fromkeys((*keys.values(), slope, intercept), Recomputed(why=LACKS_CIFAR10))
    x = _accuracy(arrays["original"], arrays["labels_original"])
    y = _accuracy(arrays["v6"], arrays["labels_v6"])
    fits = {name: fit_baseline(x, y, scale=name, bootstrap=0) for name in SCALES}
    found = {key: fits[name].r2 for name, key in keys.items()}
    found |= {slope: fits["logit"].weights[0], intercept: fits["logit"].intercept}
    other = "the paper adds scikit-learn models that it was sent (its footnote 1)"
    return {
        key: Recomputed(value=value, why=f"{len(x)} public models", if_differs=other)
        for key, value in found.items()
    }


def hard_images(arrays: Arrays | None) -> dict[Key, Recomputed]:
    """Images of ImageNet validation that no testbed model gets right."""
    share = ("Section 5.4 (text)", "ImageNet images no testbed model gets right", "share (%)")
    of_those = (share[0], "of those, right by the BiT model at its largest ρ", share[2])
    if arrays is None:
        return dict.fromkeys((share, of_those), Recomputed(why=LACKS_IMAGENET))
    hard = int((arrays["top1"] != arrays["labels"]).all(axis=0).sum())
    why = f"{hard:,} of {IMAGES:,} images, {len(arrays['models'])} models"
    return {
        share: Recomputed(value=100.0 * hard / IMAGES, why=why),
        of_those: Recomputed(value=100.0 * 237 / hard, why=why),
    }


def _accuracy(top1: NDArray[np.generic], labels: NDArray[np.generic]) -> NDArray[np.float64]:
    """(models,) share of right predictions of shape (models, images)."""
    return np.asarray((top1 == labels).mean(axis=1), dtype=np.float64)


def _load(path: Path) -> Arrays:
    try:
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile, EOFError):
        reason = "cannot be read as an .npz file" if path.exists() else "no such file"
        raise InputError(f"{path}: {reason}") from None
