"""Corruptions of torch tensors.

Tensors on the CPU go through the compiled kernels without a copy. On other devices the images stay
where they are: noise is drawn there from the same counters, filters and mixing run there. Layers
that do not depend on the image but need an algorithm of many small steps (plasma, snow, spatter,
displacements, the wandering of glass blur) are drawn by the kernels on the host and moved; JPEG
is a codec and makes the round trip. Apple's devices have no 64-bit floats, so for them
everything does. Only CPU devices could be run here: others are untested.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import digital, frost, weather
from shiftbed.evaluation.corruptions.blur import motion_path, soft_disk, wander, zoom_layers
from shiftbed.evaluation.corruptions.corruption import Corruption, check_shape
from shiftbed.evaluation.corruptions.kernels import gaussian_taps
from shiftbed.evaluation.corruptions.noise import LEVELS, poisson_table
from shiftbed.evaluation.corruptions.params import parameters
from shiftbed.evaluation.corruptions.philox import (
    FAR,
    LOG,
    MULTIPLIERS,
    NEAR,
    TILE,
    WEYL,
    Keys,
    image_keys,
)
from shiftbed.evaluation.image_batches import check_values, ids_of

MASK = 0xFFFFFFFF
AT_ONCE = 16  # images corrupted together on a device: bounds the memory of the draws


Ids = Sequence[str] | None
Params = dict[str, float]


def corrupt_tensor(corruption: Corruption, x: Any, ids: Ids) -> Tensor:
    """Corrupt a tensor: the fast kernels on the CPU, torch elsewhere."""
    if not isinstance(x, Tensor) or x.device.type in ("cpu", "mps"):  # mps has no 64-bit floats
        return through_arrays(corruption, x, ids)
    return corrupt_on_device(corruption, x, ids)


def through_arrays(change: Callable[[Any, Ids], Any], x: Any, ids: Ids) -> Tensor:
    """Apply a change of arrays to a tensor; the result is where the tensor is."""
    if not isinstance(x, Tensor):
        raise InputError(f"images must be an array or a tensor, got {type(x).__name__}")
    if x.dtype == torch.bfloat16:  # numpy has none
        return through_arrays(change, x.float(), ids).to(x.dtype)
    return torch.from_numpy(change(x.detach().cpu().numpy(), ids)).to(x.device)


@torch.no_grad()
def corrupt_on_device(corruption: Corruption, x: Tensor, ids: Ids) -> Tensor:
    """Corrupt a tensor where it is."""
    if x.dtype == torch.uint8:
        if x.ndim not in (3, 4):
            raise InputError(
                f"uint8 images must have shape (N, H, W, C) or (N, H, W), got {tuple(x.shape)}"
            )
        whole = x[..., None] if x.ndim == 3 else x
        made = corrupt_on_device(corruption, (whole / 255).permute(0, 3, 1, 2), ids)
        levels = (made * 255 + 1e-3).clamp_(0, 255).to(torch.uint8)
        return levels.permute(0, 2, 3, 1).reshape(x.shape)
    if not x.is_floating_point():
        raise InputError(f"images must be uint8, or float in [0, 1], got {x.dtype}")
    if x.ndim != 4:
        raise InputError(f"float images must have shape (N, C, H, W), got {tuple(x.shape)}")
    if x.dtype != torch.float32:
        return corrupt_on_device(corruption, x.float(), ids).to(x.dtype)
    check_shape(tuple(x.shape))
    name, severity = corruption.name, corruption.severity
    keys = image_keys(ids_of(ids, len(x)), corruption.seed, name, severity)
    out = torch.empty_like(x)
    if not len(x):
        return out
    lowest, highest = (float(v) for v in torch.aminmax(x))
    check_values(lowest, highest, bool(torch.isfinite(x).all()))
    p = parameters(name, severity, *x.shape[2:])
    for start in range(0, len(x), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        if name == "frost":
            made = _frost(x[part], keys[part], p, corruption.frost)
        else:
            made = _ON_DEVICE[name](x[part], keys[part], p)
        out[part] = made.clamp(0, 1)
    return out


def words(keys: Keys, stream: int, count: int, device: torch.device) -> Tensor:
    """The first ``count`` words of a stream for each key, int64 (N, count)."""
    lanes = TILE // 4
    tiles = -(-count // TILE)
    low = torch.from_numpy((keys & np.uint64(MASK)).astype(np.int64)).to(device)[:, None]
    high = torch.from_numpy((keys >> np.uint64(32)).astype(np.int64)).to(device)[:, None]
    c0 = torch.arange(tiles * lanes, device=device)[None, :].expand(len(keys), -1)
    c1 = torch.full_like(c0, stream)
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    for _ in range(10):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = ((p1 >> 32) & MASK) ^ c1 ^ low, p1 & MASK
        c2, c3 = ((p0 >> 32) & MASK) ^ c3 ^ high, p0 & MASK
        low, high = (low + WEYL[0]) & MASK, (high + WEYL[1]) & MASK
    blocks = [c.reshape(len(keys), tiles, lanes) for c in (c0, c1, c2, c3)]
    return torch.stack(blocks, dim=2).reshape(len(keys), -1)[:, :count]


def _polynomial(at: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    value = torch.full_like(at, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * at + coefficient
    return value


def normals(drawn: Tensor) -> Tensor:
    """Standard normals, float32, from words; bit for bit those of ``philox.normal``."""
    v = ((drawn & 0x7FFFFFFF).float() + 0.5) * 2.0**-31
    bits = (v * (2 - v)).view(torch.int32)
    exponent = (bits - 0x3F3504F3) >> 23
    t = (bits - (exponent << 23)).view(torch.float32) - 1
    square = t * t
    log = ((_polynomial(t, LOG) * t) * square - 0.5 * square) + t
    w = -(log + exponent.float() * 0.6931471805599453)
    near = _polynomial(w - 2.5, NEAR)
    root = torch.sqrt(torch.clamp(w, min=0).double()).float()  # its float roots are loose
    far = _polynomial(root - 3, FAR)
    z = (torch.where(w < 5, near, far) * (1 - v)) * 1.4142135623730951
    return torch.where(drawn >> 31 == 1, -z, z)


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


def _impulse(x: Tensor, keys: Keys, p: Params) -> Tensor:
    drawn = _draw(x, keys, 0)
    kept = torch.where(drawn < int(p["amount"] * 2.0**32), torch.zeros_like(x), x)
    return torch.where(drawn < int(p["amount"] * 2.0**31), torch.ones_like(x), kept)


def _contrast(x: Tensor, keys: Keys, p: Params) -> Tensor:
    mean = x.double().mean(dim=(2, 3), keepdim=True)
    return x * p["factor"] + (mean * (1 - float(np.float32(p["factor"])))).float()


def _defocus(x: Tensor, keys: Keys, p: Params) -> Tensor:
    weights = soft_disk(p["radius"], p["edge"])
    return _correlate(_padded(x, weights.shape[0] // 2, "reflect"), weights)


def _brightness(x: Tensor, keys: Keys, p: Params) -> Tensor:
    value = x.amax(dim=1, keepdim=True)
    raised = (value + p["add"]).clamp(max=1)
    black = value <= 0
    return torch.where(black, raised, x * (raised / torch.where(black, 1.0, value)))


def _saturate(x: Tensor, keys: Keys, p: Params) -> Tensor:
    if x.shape[1] == 1:
        return x
    value = x.amax(dim=1, keepdim=True)
    spread = value - x.amin(dim=1, keepdim=True)
    top = torch.minimum(spread * p["factor"] + p["add"] * value, value)
    grey = spread <= 0
    moved = value - (value - x) * (top / torch.where(grey, 1.0, spread))
    red = torch.cat([value, value - top, value - top], dim=1)
    return torch.where(grey, red, moved)


def _pixelate(x: Tensor, keys: Keys, p: Params) -> Tensor:
    matrices, shown = [], []
    for size in x.shape[2:]:
        first, last, show = digital.bounds(size, p["factor"])
        at = np.arange(size)[None, :]
        inside = (at >= first[:, None]) & (at < last[:, None])
        mean = inside / inside.sum(axis=1, keepdims=True)
        matrices.append(torch.from_numpy(mean.astype(np.float32)).to(x.device))
        shown.append(torch.from_numpy(show).to(x.device))
    few = matrices[0] @ (x @ matrices[1].T)
    return few[:, :, shown[0]][:, :, :, shown[1]]


def _shot(x: Tensor, keys: Keys, p: Params) -> Tensor:
    photons = p["photons"]
    cdf, start = poisson_table(photons)
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


def _glass(x: Tensor, keys: Keys, p: Params) -> Tensor:
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


def _zoom(x: Tensor, keys: Keys, p: Params) -> Tensor:
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


def _moved(layer: NDArray[np.float32], x: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(layer)).to(x.device)


def _snow(x: Tensor, keys: Keys, p: Params) -> Tensor:
    layer = _moved(weather.snow_layer(keys, p, *x.shape[2:])[..., 0], x)[:, None]
    flakes = (layer * 255 + 0.5).floor() / 255
    white = p["keep"] * x + (1 - p["keep"]) * torch.maximum(x, _luma(x) * 1.5 + 0.5)
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
    layer = _moved(weather.spatter_layers(keys, p, *x.shape[2:]), x)[:, None]
    mud = p["mud"] > 0
    tint = weather.MUD if mud else weather.WATER
    colour = torch.tensor([float(c) for c in tint], device=x.device)
    if x.shape[1] == 1:
        colour = (colour * torch.tensor([0.2989, 0.587, 0.114], device=x.device)).sum()[None]
    return x * (1 - layer if mud else 1) + colour[:, None, None] * layer


def _elastic(x: Tensor, keys: Keys, p: Params) -> Tensor:
    height, width = x.shape[2:]
    maps = _moved(digital.affine_maps(keys, height, width, p["affine"]), x)
    fields = np.empty((2, len(keys), height, width), np.float32)
    for n, key in enumerate(keys):
        fields[:, n] = digital.displacement(key, height, width, p["alpha"], p["sigma"])
    down, right = _moved(fields[0], x), _moved(fields[1], x)
    rows = torch.arange(height, device=x.device, dtype=torch.float32)[None, :, None]
    columns = torch.arange(width, device=x.device, dtype=torch.float32)[None, None, :]
    a = maps[:, :, :, None, None]
    at_x = a[:, 0, 0] * columns + (a[:, 0, 1] * rows + a[:, 0, 2])
    at_y = a[:, 1, 0] * columns + (a[:, 1, 1] * rows + a[:, 1, 2])
    turned = interpolate(x, at_y, at_x, border=False)
    return interpolate(turned, rows + down, columns + right, border=True)


def _jpeg(x: Tensor, keys: Keys, p: Params) -> Tensor:
    pixels = np.ascontiguousarray(x.permute(0, 2, 3, 1).cpu().numpy())
    coded = np.empty_like(pixels)
    digital.jpeg(pixels, coded, int(p["quality"]))
    return torch.from_numpy(coded).permute(0, 3, 1, 2).to(x.device)


_ON_DEVICE: dict[str, Callable[[Tensor, Keys, Params], Tensor]] = {
    "greyscale": lambda x, keys, p: _luma(x).expand_as(x),
    "gaussian_noise": lambda x, keys, p: x + p["scale"] * normals(_draw(x, keys, 0)),
    "speckle_noise": lambda x, keys, p: x + x * (p["scale"] * normals(_draw(x, keys, 0))),
    "impulse_noise": _impulse,
    "shot_noise": _shot,
    "gaussian_blur": lambda x, keys, p: _smooth(x, p["sigma"]),
    "defocus_blur": _defocus,
    "glass_blur": _glass,
    "motion_blur": lambda x, keys, p: _motion(x, *motion_path(keys, p, -45, 45)),
    "zoom_blur": _zoom,
    "snow": _snow,
    "fog": _fog,
    "spatter": _spatter,
    "brightness": _brightness,
    "contrast": _contrast,
    "saturate": _saturate,
    "pixelate": _pixelate,
    "jpeg_compression": _jpeg,
    "elastic_transform": _elastic,
}
"""Each as the kernel of that name does it; the caller clips."""
