"""RandAugment and AugMix on whole batches, with torchvision's operations and strengths.

torchvision draws one operation per call, so that a batch would share it. Here every image draws
its own from its key, and images that drew the same operation and strength go through torchvision's
function together.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaincinv
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.training.augment import Keys, Step, uniforms

LONGEST = 3
"""Operations in a chain of AugMix at most, where the depth is drawn."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class _Operations:
    """torchvision's table of operations for one image size."""

    transform: Any
    names: tuple[str, ...]
    strengths: tuple[tuple[float, ...], ...]
    """By operation: the strengths to draw from."""
    signed: tuple[bool, ...]

    def apply(self, x: Tensor, which: Integers, level: Integers, minus: Integers) -> Tensor:
        """Operation ``which`` at strength ``level``, turned round where ``minus``, per image."""
        out = torch.empty_like(x)
        drawn = np.stack([which, level, minus], axis=1)
        kinds, inverse = np.unique(drawn, axis=0, return_inverse=True)
        for number, (operation, strong, sign) in enumerate(kinds.tolist()):
            at = torch.from_numpy(np.flatnonzero(inverse.ravel() == number)).to(x.device)
            strength = self.strengths[operation][strong] * (-1 if sign else 1)
            out[at] = self.transform._apply_image_or_video_transform(
                x[at],
                self.names[operation],
                strength,
                interpolation=self.transform.interpolation,
                fill=self.transform._fill,
            )
        return out

    def drawn(self, draws: NDArray[np.float64]) -> tuple[Integers, Integers, Integers]:
        """(B,) operation, strength and sign from (B, 3) uniform numbers."""
        which = (draws[:, 0] * len(self.names)).astype(np.int64)
        counts = np.array([len(s) for s in self.strengths])[which]
        level = (draws[:, 1] * counts).astype(np.int64)
        minus = ((draws[:, 2] < 0.5) & np.array(self.signed)[which]).astype(np.int64)
        return which, level, minus


def _operations(
    transform: Any, space: Any, bins: int, levels: slice, pixels: Tensor
) -> _Operations:
    """Read torchvision's table; operations without a strength have the one strength 0."""
    channels, height, width = pixels.shape[1:]
    if channels not in (1, 3):
        name = type(transform).__name__.lower()
        raise InputError(
            f"augmentation {name} needs images of one or three channels, got {channels}"
        )
    found = [magnitudes(bins, height, width) for magnitudes, _ in space.values()]
    return _Operations(
        transform=transform,
        names=tuple(space),
        strengths=tuple((0.0,) if one is None else tuple(one[levels].tolist()) for one in found),
        signed=tuple(bool(signed) for _, signed in space.values()),
    )


def _torchvisions() -> Any:
    ensure_torchvision()
    from torchvision.transforms import v2

    return v2


@final
@dataclass(frozen=True, kw_only=True)
class RandAugment(Step):
    """``num_ops`` of torchvision's fourteen operations in a row, each at ``magnitude``.

    Cubuk et al. 2020; the options and their defaults are torchvision's.
    """

    name: ClassVar[str] = "randaugment"
    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        if self.num_ops < 1 or not 0 <= self.magnitude < self.num_magnitude_bins:
            raise InputError(
                "augmentation randaugment: num_ops must be 1 or more and magnitude below "
                f"{self.num_magnitude_bins}, got {self.num_ops} and {self.magnitude}"
            )

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        bins, one = self.num_magnitude_bins, slice(self.magnitude, self.magnitude + 1)
        own = _torchvisions().RandAugment(self.num_ops, self.magnitude, bins)
        table = _operations(own, own._AUGMENTATION_SPACE, bins, one, pixels)
        draws = uniforms(keys, 3 * self.num_ops)
        for k in range(self.num_ops):
            pixels = table.apply(pixels, *table.drawn(draws[:, 3 * k : 3 * k + 3]))
        return pixels


@final
@dataclass(frozen=True, kw_only=True)
class AugMix(Step):
    """m·x + (1 − m)·Σ wᵢ·chainᵢ(x), w ~ Dirichlet(α, …), m ~ Beta(α, α).

    Hendrycks et al. 2020, Algorithm 1: ``mixture_width`` chains of ``chain_depth`` operations (−1:
    one to three, drawn), strengths among the ``severity`` mildest of torchvision's ten. Without
    ``all_ops``, those that overlap with test corruptions (brightness, colour, contrast, sharpness)
    are left out, as in the paper; torchvision's default has them. Images are mixed as real numbers.
    """

    name: ClassVar[str] = "augmix"
    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.severity <= 10 or self.mixture_width < 1 or not self.alpha > 0:
            raise InputError(
                "augmentation augmix: severity must lie in 1 … 10, mixture_width be 1 or more and "
                f"alpha above 0, got {self.severity}, {self.mixture_width} and {self.alpha}"
            )

    def weights(self, draws: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(B,) m and (B, K) w from (B, 1 + K) uniform numbers, by inversion."""
        m = betaincinv(self.alpha, self.alpha, draws[:, 0])
        gammas = gammaincinv(self.alpha, draws[:, 1:])
        return m.astype(np.float32), (gammas / gammas.sum(1, keepdims=True)).astype(np.float32)

    def __call__(self, pixels: Tensor, keys: Keys) -> Tensor:
        own = _torchvisions().AugMix(self.severity, self.mixture_width, all_ops=self.all_ops)
        space = own._AUGMENTATION_SPACE if self.all_ops else own._PARTIAL_AUGMENTATION_SPACE
        table = _operations(own, space, 10, slice(self.severity), pixels)
        longest = self.chain_depth if self.chain_depth >= 1 else LONGEST
        n, width, each = len(pixels), self.mixture_width, 1 + 3 * longest
        draws = uniforms(keys, 1 + width + width * each)
        m, w = self.weights(draws[:, : 1 + width])
        plans = draws[:, 1 + width :].reshape(n * width, each)
        depths = 1 + (plans[:, 0] * LONGEST).astype(np.int64)
        if self.chain_depth >= 1:
            depths[:] = longest
        chains = pixels.repeat_interleave(width, dim=0)
        for k in range(longest):
            at = np.flatnonzero(depths > k)
            some = table.drawn(plans[at, 1 + 3 * k : 4 + 3 * k])
            chains[at] = table.apply(chains[at], *some)
        shares = torch.from_numpy((1 - m)[:, None] * w).to(pixels.device)
        stacked = chains.view(n, width, *pixels.shape[1:])
        mixed = torch.einsum("nk,nkchw->nchw", shares, stacked)
        kept = torch.from_numpy(m).to(pixels.device)[:, None, None, None]
        return torch.addcmul(mixed, kept, pixels, out=torch.empty_like(pixels)).clamp_(0, 1)
