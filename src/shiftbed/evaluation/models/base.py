"""What a model is: pixels in [0, 1] go in, logits come out."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.places import without_folders

Floats = NDArray[np.float32]
Pixels = NDArray[np.float32] | NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Model(ABC):
    """A classifier with its identity and the preprocessing it was made for.

    Normalisation happens inside ``logits``: corruptions and attacks act on pixels in [0, 1].
    """

    id: str
    """Canonical: whatever changes the predictions belongs to it (weights, image size, precision,
    changed preprocessing); where the weights lie and the device do not."""
    classes: int
    preprocessing: Preprocessing
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is known: spec as given, architecture, weights, libraries."""
    class_names: tuple[str, ...] = ()
    """One per class, where the model says."""
    device: str = "cpu"
    precision: str = "float32"
    content: str | None = None
    """SHA-256 of what computes the logits, where that is a file or an estimator."""
    differentiable: ClassVar[bool] = False
    """Whether there is a ``module`` to take gradients of."""

    @abstractmethod
    def logits(self, pixels: Pixels, *, within: bool = True) -> Floats:
        """(N, classes) logits of (N, C, H, W) pixels: float32 in [0, 1], or uint8.

        With ``within`` false, pixels may leave [0, 1], as they do along a probe's path.
        """

    @property
    def spec(self) -> str | None:
        """The line of text that it was made from; None for one made from an object."""
        found = self.facts.get("spec")
        return None if found is None else str(found)

    @cached_property
    def fingerprint(self) -> str | None:
        """Identity of what it computes: SHA-256 of weights, architecture and preprocessing.

        None where that cannot be known, as of a function. Computed when first asked for.
        """
        content = self._content()
        if content is None:
            return None
        parts = [content, self.precision, self.preprocessing.describe()]
        return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}"

    def _content(self) -> str | None:
        return self.content

    def describe(self) -> dict[str, Any]:
        """Everything that identifies it, as JSON types, for the record beside every result."""
        return {
            "id": self.id,
            "classes": self.classes,
            **without_folders(self.facts),
            "precision": self.precision,
            "device": self.device,
            "preprocessing": self.preprocessing.describe(),
        }


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionModel(Model):
    """Any callable from normalised (N, C, H, W) float32 pixels to (N, classes) scores.

    With the default mean 0 and std 1 of its preprocessing, it gets pixels in [0, 1].

    >>> model = FunctionModel(id="python:mean", classes=3, function=lambda x: x.mean(axis=(2, 3)),
    ...                       preprocessing=Preprocessing(size=(4, 4)))
    >>> model.logits(np.full((2, 3, 4, 4), 0.5, np.float32)).tolist()
    [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
    """

    function: Callable[[Floats], Any]
    engine: str = "python"
    """Name of its only backend."""

    def logits(self, pixels: Pixels, *, within: bool = True) -> Floats:
        x = normalised(as_fractions(pixels, self.preprocessing, within=within), self.preprocessing)
        found = np.asarray(self.function(x))
        if found.shape != (len(x), self.classes):
            raise InputError(
                f"{self.id} must return logits of shape {(len(x), self.classes)}, got {found.shape}"
            )
        return found.astype(np.float32, copy=False)


def check_pixels(pixels: Pixels, preprocessing: Preprocessing, *, within: bool = True) -> None:
    """Refuse what are no pixels of this model: wrong axes, type, channels or range.

    The range is looked at in the first image only, and only if pixels must be ``within`` it.
    """
    channels = preprocessing.channels
    if pixels.ndim != 4 or pixels.shape[1] != channels:
        raise InputError(f"pixels must be (N, {channels}, height, width), got {pixels.shape}")
    if pixels.dtype == np.uint8:
        return
    if pixels.dtype != np.float32:
        raise InputError(f"pixels must be float32 in [0, 1] or uint8, got {pixels.dtype}")
    if within and len(pixels) and not (pixels[0].min() >= -0.01 and pixels[0].max() <= 1.01):
        low, high = float(pixels[0].min()), float(pixels[0].max())
        raise InputError(
            f"pixels must lie in [0, 1], got [{low:.3g}, {high:.3g}]; "
            "models normalise by themselves"
        )


def as_fractions(
    pixels: Pixels,
    preprocessing: Preprocessing,
    *,
    within: bool = True,
    order: Literal["K", "C"] = "K",
) -> Floats:
    """Checked pixels as float32 in [0, 1]; in memory as they came, or by rows for ``order`` C."""
    check_pixels(pixels, preprocessing, within=within)
    if pixels.dtype == np.uint8:
        return np.divide(pixels, np.float32(255), dtype=np.float32, order=order)
    return pixels  # type: ignore[return-value]


def normalised(x: Floats, preprocessing: Preprocessing) -> Floats:
    """(x − mean) / std per channel."""
    if set(preprocessing.mean) == {0.0} and set(preprocessing.std) == {1.0}:
        return x
    mean = np.array(preprocessing.mean, np.float32)[:, None, None]
    std = np.array(preprocessing.std, np.float32)[:, None, None]
    return (x - mean) / std


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of packages, for provenance."""
    return {package: metadata.version(package) for package in packages}
