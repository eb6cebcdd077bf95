"""Batches that are halved when memory runs out."""

import gc
import sys
from collections.abc import Callable

import numpy as np

from shiftbed.evaluation.models.base import Floats, Pixels

Run = Callable[[Pixels], Floats]
_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's, torch's or onnxruntime's.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    True
    """
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, Exception) and any(m in str(error).lower() for m in _MEMORY)


def with_halving(run: Run, report: Callable[[int, int], None] | None = None) -> Run:
    """The same function, which halves its batches when memory runs out, and keeps them so.

    ``report(before, after)`` is called with the batch sizes each time. A single image that does not
    fit raises as before.

    >>> def run(pixels):
    ...     if len(pixels) > 3: raise MemoryError
    ...     return pixels
    >>> said = []
    >>> halving = with_halving(run, lambda *sizes: said.append(sizes))
    >>> len(halving(np.zeros((8, 3, 2, 2), np.float32))), said
    (8, [(8, 4), (4, 2)])
    """
    limit = [sys.maxsize]

    def halving(pixels: Pixels) -> Floats:
        parts: list[Floats] = []
        start = 0
        while start < len(pixels) or not parts:
            size = min(limit[0], len(pixels) - start)
            try:
                parts.append(run(pixels[start : start + size]))
            except Exception as error:
                if size <= 1 or not is_out_of_memory(error):
                    raise
                _free()
                limit[0] = size // 2
            else:
                start += size
                continue
            if report is not None:
                report(size, limit[0])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return halving


def _free() -> None:
    """Give back what an accelerator holds, now that nothing refers to it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
