"""Compiled functions, with their Python types kept.

Kernels release the interpreter lock and are run over images by a pool of threads. numba's own
threads are not used: one of its threading layers ends the process when two Python threads meet in
it, and compiling for it takes several times as long.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile with every rounding as written, so that torch can repeat it bit for bit."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def loose(function: F) -> F:
    """Compile with sums reordered and multiply-adds fused: for filters, never for draws."""
    flags = {"contract", "reassoc", "nsz", "arcp"}
    return cast(F, njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)(function))


def inlined(function: F) -> F:
    """Compile a few lines that only other kernels call."""
    return cast(F, njit(inline="always", error_model="numpy")(function))
