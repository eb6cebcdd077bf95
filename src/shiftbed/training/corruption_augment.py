"""Training on noise and on the package's corruptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import NAMES, Corruption, severities
from shiftbed.training.arguments import one_of, share
from shiftbed.training.augment import Keys, Step, normals, uniforms


@final
@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Step):
    """x + σ·n with n standard normal per pixel and channel, clipped to [0, 1].

    ``share`` of the images, drawn again in every epoch, get it.
    """

    name: ClassVar[str] = "gaussian-noise"
    sigma: float = 0.1
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise InputError(
                f"augmentation gaussian-noise: sigma must be above 0, got {self.sigma!r}"
            )
        share(self.share, f"augmentation {self.name}: share", "(0, 1]")

    @property
    def label(self) -> str:
        return f"{self.name}:{self.sigma:g}" + _part(self.share)

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        at = _chosen(keys, self.share)
        noise = torch.from_numpy(normals(keys[at], tuple(pixels.shape[1:]))).to(pixels.device)
        out = pixels.clone()
        out[at] = (pixels[at] + self.sigma * noise).clamp_(0, 1)
        return out


@final
@dataclass(frozen=True, kw_only=True)
class Corrupt(Step):
    """A corruption and one of its severities drawn per image, evenly from those given.

    ``names``: a corruption, several, or ``"all"``. ``severities``: a number, several, or ``"all"``
    that the corruption has. ``share`` of the images are corrupted, the rest stay clean. ``frost``
    is a folder of pictures of frost.

    >>> Corrupt(names="fog", severities=3).label, Corrupt(names="fog").label, Corrupt().label
    ('fog:3', 'fog', 'corruption')
    """

    name: ClassVar[str] = "corruption"
    names: str | Sequence[str] = "all"
    severities: int | str | Sequence[int] = "all"
    share: float = 1.0
    frost: str | None = None

    def __post_init__(self) -> None:
        share(self.share, f"augmentation {self.name}: share", "(0, 1]")
        if not self.kinds or not all(self.kinds.values()):
            raise InputError("augmentation corruption: names and severities must not be empty")
        for name, levels in self.kinds.items():
            for level in levels:
                self._corruption(name, level)

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names as they were given."""
        return (self.names,) if isinstance(self.names, str) else tuple(self.names)

    @property
    def kinds(self) -> dict[str, tuple[int, ...]]:
        """The corruptions drawn from, with their severities."""
        names = NAMES if self.chosen == ("all",) else self.chosen
        return {name: self._levels(name) for name in names}

    def _levels(self, name: str) -> tuple[int, ...]:
        one_of(name, "corruption", NAMES)
        if self.severities == "all":
            return tuple(severities(name))
        if isinstance(self.severities, str):
            raise InputError(
                "augmentation corruption: severities must be numbers or 'all', got "
                f"{self.severities!r}"
            )
        return (self.severities,) if isinstance(self.severities, int) else tuple(self.severities)

    @property
    def label(self) -> str:
        what = self.name if self.chosen == ("all",) else "/".join(self.chosen)
        if self.severities != "all":
            what += ":" + "/".join(map(str, next(iter(self.kinds.values()))))
        return what + _part(self.share)

    def _corruption(self, name: str, severity: int) -> Corruption:
        frost = self.frost if name == "frost" else None
        threads = torch.get_num_threads()
        return Corruption(name=name, severity=severity, frost=frost, threads=threads)

    def drawn(self, keys: Keys) -> list[tuple[str, int] | None]:
        """The corruption and severity of each image, None where it stays clean."""
        kinds = list(self.kinds.items())
        found: list[tuple[str, int] | None] = []
        for spared, which, strong in uniforms(keys, 3).tolist():
            name, levels = kinds[int(which * len(kinds))]
            drawn = (name, levels[int(strong * len(levels))])
            found.append(drawn if spared < self.share else None)
        return found

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        drawn = self.drawn(keys)
        out = pixels.clone()
        for one in sorted({d for d in drawn if d is not None}):
            at = [i for i, d in enumerate(drawn) if d == one]
            ids = [f"{key:x}" for key in keys[at].tolist()]
            out[at] = self._corruption(*one)(pixels[at], ids)
        return out


def _part(share: float) -> str:
    return "" if share == 1 else f"@{share:g}"


def _chosen(keys: Keys, share: float) -> NDArray[np.int64]:
    """The images that are augmented: each with probability ``share``."""
    if share == 1:
        return np.arange(len(keys))
    return np.flatnonzero(uniforms(~keys, 1)[:, 0] < share)  # not the words of the noise itself
