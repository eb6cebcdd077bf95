"""Blurs in torch: images (N, C, H, W)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d

from shiftbed.evaluation.corruptions.blur import wander
from shiftbed.evaluation.corruptions.lens import soft_disk, zoom_layers
from shiftbed.evaluation.corruptions.philox import Keys
from shiftbed.evaluation.corruptions.plans import motion_path
from shiftbed.evaluation.corruptions.smooth import gaussian_taps

NAMES = frozenset({"defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"})


def apply(name: str, x: Tensor, keys: Keys, p: dict[str, float]) -> Tensor:
    """One of the blurs; the caller clips."""
    match name:
        case "gaussian_blur":
            return _smooth(x, p["sigma"])
        case "glass_blur":
            return glass(x, keys, p)
        case "defocus_blur":
            weights = soft_disk(p["radius"], p["edge"])
            reach = weights.shape[0] // 2
            return _correlate(_padded(x, reach, "reflect"), weights)
        case "motion_blur":
            return _motion(x, *motion_path(keys, p, -45, 45))
        case _:
            return _zoom(x, p)


def _padded(x: Tensor, reach: int, how: str) -> Tensor:
    """Both sides extended, edges repeated (``edge``) or reflected about themselves."""
    for axis in (2, 3):
        at = np.arange(-reach, x.shape[axis] + reach)
        if how == "edge":
            at = at.clip(0, x.shape[axis] - 1)
        else:
            period = 2 * (x.shape[axis] - 1)
            at = np.minimum(np.abs(at) % period, period - np.abs(at) % period)
        x = x.index_select(axis, torch.from_numpy(at).to(x.device))
    return x


def _correlate(x: Tensor, weights: NDArray[np.float64]) -> Tensor:
    """Every channel correlated with the weights, in full float32 also where TF32 is allowed."""
    each = torch.from_numpy(weights.astype(np.float32)).to(x.device).expand(x.shape[1], 1, -1, -1)
    with torch.backends.cudnn.flags(allow_tf32=False):
        return conv2d(x, each.contiguous(), groups=x.shape[1])


def _smooth(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur, edges repeated."""
    half = gaussian_taps(sigma).astype(np.float64)
    taps = np.concatenate([half[:0:-1], half])
    wide = _padded(x, half.size - 1, "edge")
    return _correlate(_correlate(wide, taps[:, None]), taps[None, :])


def glass(x: Tensor, keys: Keys, p: dict[str, float]) -> Tensor:
    """Blur, round down to 8 bits, move pixels, blur; the moves are drawn on the host."""
    count, channels, height, width = x.shape
    coarse = (_smooth(x, p["sigma"]).clamp(0, 1) * 255 + 1e-4).floor() / 255
    moved = np.empty((count, height, width), np.int32)
    for n, key in enumerate(keys):
        wander(moved[n], key, int(p["reach"]), int(p["rounds"]))
    source = torch.from_numpy(moved.astype(np.int64)).to(x.device).reshape(count, 1, -1)
    shuffled = coarse.reshape(count, channels, -1).gather(2, source.expand(-1, channels, -1))
    return _smooth(shuffled.reshape(x.shape), p["sigma"])


def _motion(x: Tensor, offsets: NDArray[np.int64], weights: NDArray[np.float32]) -> Tensor:
    """Σ wᵢ·(x moved by the i-th offset), edges repeated."""
    count, channels, height, width = x.shape
    images = torch.arange(count, device=x.device)[:, None, None, None]
    every = torch.arange(channels, device=x.device)[None, :, None, None]
    total = torch.zeros_like(x)
    for i, weight in enumerate(weights.tolist()):
        rows = (np.arange(height)[None] - offsets[:, i, :1]).clip(0, height - 1)
        columns = (np.arange(width)[None] - offsets[:, i, 1:]).clip(0, width - 1)
        y = torch.from_numpy(rows).to(x.device)[:, None, :, None]
        z = torch.from_numpy(columns).to(x.device)[:, None, None, :]
        total += weight * x[images, every, y, z]
    return total


def _zoom(x: Tensor, p: dict[str, float]) -> Tensor:
    """The mean of an image and its enlarged copies."""
    layers = zoom_layers(p["end"], p["step"], *x.shape[2:])
    low_y, part_y, low_x, part_x = (torch.from_numpy(table).to(x.device) for table in layers)
    total = x.clone()
    for z in range(len(low_y)):
        rows = torch.lerp(x[:, :, low_y[z]], x[:, :, low_y[z] + 1], part_y[z][:, None])
        total += torch.lerp(rows[..., low_x[z]], rows[..., low_x[z] + 1], part_x[z])
    return total / (len(low_y) + 1)


def interpolate(x: Tensor, at_y: Tensor, at_x: Tensor, border: bool) -> Tensor:
    """Linear interpolation of (N, C, H, W) at places (N, H, W); see ``digital.sample``."""
    count, channels, height, width = x.shape
    low = -0.5 if border else 0.0
    places = []
    for at, size in ((at_y, height), (at_x, width)):
        span = float(size if border else size - 1)
        off = (at - low).abs() % (2 * span)
        places.append((torch.minimum(off, 2 * span - off) + low).clamp(0, size - 1))
    y = places[0].long().clamp(max=height - 2)
    z = places[1].long().clamp(max=width - 2)
    v, u = (places[0] - y)[:, None], (places[1] - z)[:, None]
    flat = x.reshape(count, channels, -1)

    def corner(down: int, right: int) -> Tensor:
        at = ((y + down) * width + z + right).reshape(count, 1, -1).expand(-1, channels, -1)
        return flat.gather(2, at).reshape(x.shape)

    upper = torch.lerp(corner(0, 0), corner(0, 1), u.expand_as(x))
    lower = torch.lerp(corner(1, 0), corner(1, 1), u.expand_as(x))
    return torch.lerp(upper, lower, v.expand_as(x))
