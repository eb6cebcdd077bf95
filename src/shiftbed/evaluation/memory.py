"""Memory that is used again for the next batch instead of returned to the system after every layer.

The C library maps large blocks anew for each tensor or batch of images and unmaps them when they
are freed, so that the system zeroes every page again: half to three quarters of the time of a
forward pass on a processor (EfficientNet-Lite0, 64 images of 224 pixels, two threads: 67 images per
second, 210 with blocks that are kept). Within ``reused_memory`` blocks of up to ``LARGEST`` bytes
are kept; afterwards the system gets back what is free, and the limits are those that the C library
reaches by itself. glibc alone; what the environment says of its limits (``MALLOC_…``,
``GLIBC_TUNABLES``) is left as it is.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

LARGEST = 1 << 30
"""Bytes of the largest block that is used again."""
KEPT = (1 << 31) - 1
"""Free bytes that are kept at most (the C library takes an int)."""
USUAL = 1 << 25
"""The largest block that glibc comes to use again by itself; it keeps twice as much."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_GIVEN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")
_lock = Lock()
_within = 0


@contextmanager
def reused_memory() -> Iterator[None]:
    """Keep large blocks for the next batch, in this process; given back at the outermost end."""
    global _within
    library = _glibc()
    if library is None:
        yield
        return
    with _lock:
        _within += 1
        if _within == 1 and not library.mallopt(_MMAP_THRESHOLD, LARGEST):  # glibc before 2.35
            library.mallopt(_MMAP_THRESHOLD, USUAL)
        if _within == 1:
            library.mallopt(_TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if not _within:
                library.mallopt(_MMAP_THRESHOLD, USUAL)
                library.mallopt(_TRIM_THRESHOLD, 2 * USUAL)
                library.malloc_trim(0)


@cache
def _glibc() -> Any:
    """The C library, if it is glibc and nobody has said how it is to allocate."""
    given = any(name in os.environ for name in _GIVEN)
    if not sys.platform.startswith("linux") or given or "malloc" in os.getenv("GLIBC_TUNABLES", ""):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
