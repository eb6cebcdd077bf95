"""Corruptions of torch tensors.

Tensors on the CPU go through the compiled kernels without a copy. On other devices the images stay
where they are: noise is drawn there from the same counters, filters and mixing run there. Layers
that do not depend on the image but need an algorithm of many small steps (plasma, snow, spatter,
displacements, the wandering of glass blur) are drawn by the kernels on the host and moved; JPEG
is a codec and makes the round trip. Apple's devices have no 64-bit floats, so for them
everything does. Only CPU devices could be run here: others are untested.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import device_blurs, device_layers, device_points
from shiftbed.evaluation.corruptions.checks import check_ids, check_shape, check_values
from shiftbed.evaluation.corruptions.params import parameters
from shiftbed.evaluation.corruptions.philox import image_keys

if TYPE_CHECKING:
    from shiftbed.evaluation.corruptions.corruption import Corruption


AT_ONCE = 16  # images corrupted together on a device: bounds the memory of the draws


def corrupt_tensor(corruption: "Corruption", x: Tensor, ids: Sequence[str]) -> Tensor:
    """Corrupt a tensor (N, C, H, W) in [0, 1]: the fast kernels on the CPU, torch elsewhere."""
    if not isinstance(x, Tensor):
        raise InputError(f"images must be an array or a tensor, got {type(x).__name__}")
    if x.device.type == "cpu":
        return torch.from_numpy(corruption.arrays(x.detach().numpy(), ids))
    if x.device.type == "mps":  # it has no 64-bit floats
        return corrupt_tensor(corruption, x.cpu(), ids).to(x.device)
    return corrupt_on_device(corruption, x, ids)


@torch.no_grad()
def corrupt_on_device(corruption: "Corruption", x: Tensor, ids: Sequence[str]) -> Tensor:
    """Corrupt a tensor where it is."""
    if x.dtype != torch.float32:
        raise InputError(f"images must be float32 in [0, 1], got {x.dtype}")
    check_shape(tuple(x.shape))
    name, severity = corruption.name, corruption.severity
    keys = image_keys(check_ids(ids, len(x)), corruption.seed, name, severity)
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
