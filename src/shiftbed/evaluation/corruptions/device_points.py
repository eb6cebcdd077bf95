"""Noise, colour and pixelation in torch: images (N, C, H, W), draws by (row, column, channel)."""

import numpy as np
import torch
from torch import Tensor

from shiftbed.evaluation.corruptions.digital import bounds
from shiftbed.evaluation.corruptions.noise import LEVELS, poisson_table
from shiftbed.evaluation.corruptions.philox import Keys
from shiftbed.evaluation.corruptions.philox_torch import normals, words

NAMES = frozenset(
    {
        "brightness",
        "contrast",
        "gaussian_noise",
        "greyscale",
        "impulse_noise",
        "pixelate",
        "saturate",
        "shot_noise",
        "speckle_noise",
    }
)


def apply(name: str, x: Tensor, keys: Keys, p: dict[str, float]) -> Tensor:
    """One of the corruptions above; the caller clips."""
    match name:
        case "gaussian_noise":
            return x + p["scale"] * normals(_draw(x, keys, 0))
        case "speckle_noise":
            return x + x * (p["scale"] * normals(_draw(x, keys, 0)))
        case "impulse_noise":
            drawn = _draw(x, keys, 0)
            kept = torch.where(drawn < int(p["amount"] * 2.0**32), torch.zeros_like(x), x)
            return torch.where(drawn < int(p["amount"] * 2.0**31), torch.ones_like(x), kept)
        case "shot_noise":
            return shot(x, keys, p["photons"])
        case "greyscale":
            return _luma(x).expand_as(x)
        case "brightness":
            return brightness(x, p["add"])
        case "contrast":
            mean = x.double().mean(dim=(2, 3), keepdim=True)
            return x * p["factor"] + (mean * (1 - float(np.float32(p["factor"])))).float()
        case "saturate":
            return saturate(x, p["factor"], p["add"])
        case _:
            return pixelate(x, p["factor"])


def _draw(x: Tensor, keys: Keys, stream: int) -> Tensor:
    """A word for each value of (N, C, H, W), drawn in the order row, column, channel."""
    count, channels, height, width = x.shape
    drawn = words(keys, stream, channels * height * width, x.device)
    return drawn.reshape(count, height, width, channels).permute(0, 3, 1, 2)


def _luma(x: Tensor) -> Tensor:
    """0.299 R + 0.587 G + 0.114 B, (N, 1, H, W); grey stays."""
    if x.shape[1] == 1:
        return x
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def brightness(x: Tensor, add: float) -> Tensor:
    """HSV's value raised; see ``colour.brightness``."""
    value = x.amax(dim=1, keepdim=True)
    raised = (value + add).clamp(max=1)
    black = value <= 0
    return torch.where(black, raised, x * (raised / torch.where(black, 1.0, value)))


def saturate(x: Tensor, factor: float, add: float) -> Tensor:
    """HSV's saturation changed; see ``colour.saturate``."""
    if x.shape[1] == 1:
        return x
    value = x.amax(dim=1, keepdim=True)
    spread = value - x.amin(dim=1, keepdim=True)
    top = torch.minimum(spread * factor + add * value, value)
    grey = spread <= 0
    moved = value - (value - x) * (top / torch.where(grey, 1.0, spread))
    red = torch.cat([value, value - top, value - top], dim=1)
    return torch.where(grey, red, moved)


def pixelate(x: Tensor, factor: float) -> Tensor:
    """Average into fewer pixels, then repeat them."""
    matrices, shown = [], []
    for size in x.shape[2:]:
        first, last, show = bounds(size, factor)
        at = np.arange(size)[None, :]
        inside = (at >= first[:, None]) & (at < last[:, None])
        mean = inside / inside.sum(axis=1, keepdims=True)
        matrices.append(torch.from_numpy(mean.astype(np.float32)).to(x.device))
        shown.append(torch.from_numpy(show).to(x.device))
    few = matrices[0] @ (x @ matrices[1].T)
    return few[:, :, shown[0]][:, :, :, shown[1]]


def shot(x: Tensor, keys: Keys, photons: float) -> Tensor:
    """Poisson(x·photons)/photons from the same tables and words as ``noise.shot``."""
    cdf, start, _ = poisson_table(photons)
    entries = torch.from_numpy(cdf.astype(np.int64)).to(x.device)
    starts = torch.from_numpy(start.astype(np.int64)).to(x.device)
    level = x.clamp(0, 1) * float(LEVELS)
    k = (level + 1e-3).long()
    left = level - k.float()
    drawn = _draw(x, keys, 0)
    j = starts[k, drawn >> 24]
    while bool((more := drawn > entries[k, j]).any()):
        j = j + more.long()
    if bool((left > 1e-3).any()):
        rate = torch.where(left > 1e-3, left.double() * photons / LEVELS, 0.0)
        uniform = (_draw(x, keys, 1).double() + 0.5) * 2.0**-32
        chance = torch.exp(-rate)
        total = chance.clone()
        for step in range(1, 61):
            more = uniform > total
            if not bool(more.any()):
                break
            j = j + more.long()
            chance = chance * (rate / step)
            total = total + chance
    return j.float() / photons
