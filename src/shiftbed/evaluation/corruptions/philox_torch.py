"""The same random numbers as ``philox``, drawn by torch on any device.

Words are 64-bit integers below 2³² (torch has no full set of unsigned operations). A 64-bit product
may wrap into the sign; its bits are those of the unsigned one, which is all that is used.
"""

import numpy as np
import torch
from torch import Tensor

from shiftbed.evaluation.corruptions.philox import FAR, LOG, MULTIPLIERS, NEAR, TILE, WEYL, Keys

MASK = 0xFFFFFFFF


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
