"""Weather, elastic deformation and JPEG for tensors: layers from the host, mixing in torch."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.evaluation.corruptions import digital, frost, weather
from shiftbed.evaluation.corruptions.device_blurs import interpolate
from shiftbed.evaluation.corruptions.philox import Keys
from shiftbed.evaluation.corruptions.plans import snow_layer, spatter_layers

Params = dict[str, float]


def apply(name: str, x: Tensor, keys: Keys, p: Params, folder: str | None) -> Tensor:
    """Snow, frost, fog, spatter, elastic_transform or jpeg_compression; the caller clips."""
    match name:
        case "snow":
            return _snow(x, keys, p)
        case "frost":
            return _frost(x, keys, p, folder)
        case "fog":
            return _fog(x, keys, p)
        case "spatter":
            return _spatter(x, keys, p)
        case "elastic_transform":
            return _elastic(x, keys, p)
        case _:
            return _jpeg(x, p)


def _moved(layer: NDArray[np.float32], x: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(layer)).to(x.device)


def _snow(x: Tensor, keys: Keys, p: Params) -> Tensor:
    layer = _moved(snow_layer(keys, p, *x.shape[2:])[..., 0], x)[:, None]
    flakes = (layer * 255 + 0.5).floor() / 255
    grey = x
    if x.shape[1] == 3:
        grey = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    white = p["keep"] * x + (1 - p["keep"]) * torch.maximum(x, grey * 1.5 + 0.5)
    return white + flakes + flakes.flip(2, 3)


def _frost(x: Tensor, keys: Keys, p: Params, folder: str | None) -> Tensor:
    made = frost.textures(folder, p["resize"], *x.shape[2:])
    height, width = x.shape[2:]
    cuts = [
        texture[top : top + height, left : left + width]
        for texture, top, left in frost.places(keys, made, height, width)
    ]
    layer = _moved(np.stack(cuts), x).permute(0, 3, 1, 2)
    if x.shape[1] == 1:
        layer = 0.2989 * layer[:, :1] + 0.587 * layer[:, 1:2] + 0.114 * layer[:, 2:]
    return p["keep"] * x + p["add"] * layer


def _fog(x: Tensor, keys: Keys, p: Params) -> Tensor:
    height, width = x.shape[2:]
    size = 1 << (max(height, width) - 1).bit_length()
    heights = np.empty((len(keys), size, size), np.float32)
    for n, key in enumerate(keys):
        weather.plasma(key, p["decay"], heights[n])
    veil = _moved(heights[:, :height, :width], x)[:, None]
    highest = x.amax(dim=(1, 2, 3), keepdim=True)
    return (x + p["thickness"] * veil) * (highest / (highest + p["thickness"]))


def _spatter(x: Tensor, keys: Keys, p: Params) -> Tensor:
    layer = _moved(spatter_layers(keys, p, *x.shape[2:]), x)[:, None]
    mud = p["mud"] > 0
    colour = torch.tensor([float(c) for c in weather.tint(mud)], device=x.device)
    if x.shape[1] == 1:
        colour = (colour * torch.tensor([0.2989, 0.587, 0.114], device=x.device)).sum()[None]
    return x * (1 - layer if mud else 1) + colour[:, None, None] * layer


def _elastic(x: Tensor, keys: Keys, p: Params) -> Tensor:
    height, width = x.shape[2:]
    maps = _moved(digital.affine_maps(keys, height, width, p["affine"]), x)
    fields = np.empty((2, len(keys), height, width), np.float32)
    for n, key in enumerate(keys):
        fields[0, n], fields[1, n] = digital.displacement(
            key, height, width, p["alpha"], p["sigma"]
        )
    down, right = _moved(fields[0], x), _moved(fields[1], x)
    rows = torch.arange(height, device=x.device, dtype=torch.float32)[None, :, None]
    columns = torch.arange(width, device=x.device, dtype=torch.float32)[None, None, :]
    a = maps[:, :, :, None, None]
    at_x = a[:, 0, 0] * columns + (a[:, 0, 1] * rows + a[:, 0, 2])
    at_y = a[:, 1, 0] * columns + (a[:, 1, 1] * rows + a[:, 1, 2])
    turned = interpolate(x, at_y, at_x, border=False)
    return interpolate(turned, rows + down, columns + right, border=True)


def _jpeg(x: Tensor, p: Params) -> Tensor:
    pixels = np.ascontiguousarray(x.permute(0, 2, 3, 1).cpu().numpy())
    coded = np.empty_like(pixels)
    digital.jpeg(pixels, coded, int(p["quality"]))
    return torch.from_numpy(coded).permute(0, 3, 1, 2).to(x.device)
