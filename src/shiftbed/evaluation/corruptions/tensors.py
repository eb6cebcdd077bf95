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

import torch
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import device_blurs, device_layers, device_points
from shiftbed.evaluation.corruptions.corruption import Corruption, check_shape
from shiftbed.evaluation.corruptions.params import parameters
from shiftbed.evaluation.corruptions.philox import image_keys
from shiftbed.evaluation.image_batches import check_values, ids_of

AT_ONCE = 16  # images corrupted together on a device: bounds the memory of the draws


Ids = Sequence[str] | None


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
        if name in device_points.NAMES:
            made = device_points.apply(name, x[part], keys[part], p)
        elif name in device_blurs.NAMES:
            made = device_blurs.apply(name, x[part], keys[part], p)
        else:
            made = device_layers.apply(name, x[part], keys[part], p, corruption.frost)
        out[part] = made.clamp(0, 1)
    return out
