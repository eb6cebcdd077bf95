"""A corruption as a value: a name, a severity and a seed, applied to batches."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.corruptions.checks import check_array, check_ids, check_range
from shiftbed.evaluation.corruptions.params import NAMES, parameters
from shiftbed.evaluation.corruptions.philox import image_keys
from shiftbed.evaluation.corruptions.plans import plan

Batch = NDArray[np.float32]
CHUNK = 4  # images a thread takes at a time


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """One of the twenty corruptions at a severity.

    ``seed`` and each image's id fix its randomness. ``frost`` is a folder of pictures of frost to
    use in place of the synthesized textures. ``threads`` (all cores if None) changes the time
    taken and nothing else.

    >>> blur = Corruption(name="gaussian_blur", severity=3)
    >>> blur.id
    'gaussian_blur:3'
    >>> blur(np.full((1, 3, 32, 32), 0.5, np.float32), ["a"]).shape
    (1, 3, 32, 32)
    """

    name: str
    severity: int
    seed: int = 0
    frost: str | None = None
    threads: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise unknown("corruption", self.name, NAMES)
        parameters(self.name, self.severity, 224, 224)
        if self.frost is not None and self.name != "frost":
            raise InputError(f"a folder of frost pictures is of no use to {self.name}")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1, got {self.threads}")

    @property
    def id(self) -> str:
        """The name and severity as a setting spells them: ``gaussian_noise:3``."""
        return f"{self.name}:{self.severity}"

    def __call__(self, x: Any, ids: Sequence[str]) -> Any:
        """Corrupt images in [0, 1], float32 (N, C, H, W), an array or a tensor on any device.

        The result is of the same kind, in the same memory format; the input is not changed.
        """
        if not isinstance(x, np.ndarray):
            from shiftbed.evaluation.corruptions.tensors import corrupt_tensor

            return corrupt_tensor(self, x, ids)
        return self.arrays(x, ids)

    def arrays(self, x: Batch, ids: Sequence[str]) -> Batch:
        """Corrupt an array with the compiled kernels."""
        check_array(x)
        keys = image_keys(check_ids(ids, len(x)), self.seed, self.name, self.severity)
        pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        out = np.empty_like(pixels)
        if len(x):
            height, width = pixels.shape[1:3]
            values = parameters(self.name, self.severity, height, width)
            run = plan(self.name, values, height, width, self.frost)

            def some(part: slice) -> None:
                check_range(pixels[part])
                run(pixels[part], out[part], keys[part])

            over_parts(some, len(x), self.threads)
        result = out.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(result) if x.flags.c_contiguous else result


def over_parts(some: Callable[[slice], None], count: int, threads: int | None) -> None:
    """Call ``some`` on slices of ``count`` images, on several threads; the first error is raised.

    >>> over_parts(print, 5, 1)
    slice(0, 4, None)
    slice(4, 8, None)
    """
    parts = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    threads = min(threads or _cores(), len(parts))
    if threads == 1:
        for part in parts:
            some(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(some, parts):
            pass


def _cores() -> int:
    """The cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def corrupt(
    x: Any,
    ids: Sequence[str],
    name: str,
    severity: int,
    *,
    seed: int = 0,
    frost: str | None = None,
) -> Any:
    """Corrupt a batch: ``Corruption(name=…, severity=…)(x, ids)``.

    >>> x = np.full((2, 3, 32, 32), 0.5, np.float32)
    >>> corrupt(x, ["a", "b"], "brightness", 5).max()
    np.float32(0.8)
    """
    return Corruption(name=name, severity=severity, seed=seed, frost=frost)(x, ids)


@dataclass(frozen=True, kw_only=True)
class FunctionCorruption:
    """A corruption of one's own: ``function(x, ids, severity, seed)``, checked on both sides."""

    function: Callable[[Batch, Sequence[str], int, int], Batch]
    name: str
    severity: int
    seed: int = 0

    @property
    def id(self) -> str:
        """The name and severity, as for the others."""
        return f"{self.name}:{self.severity}"

    def __call__(self, x: Batch, ids: Sequence[str]) -> Batch:
        """Apply the function to images in [0, 1], float32 (N, C, H, W); it sees them read-only."""
        check_array(x)
        check_range(x)
        seen = x.view()
        seen.flags.writeable = False
        out = np.asarray(self.function(seen, check_ids(ids, len(x)), self.severity, self.seed))
        if out.shape != x.shape or out.dtype != np.float32:
            raise InputError(
                f"corruption {self.name} must return float32 {x.shape}, got {out.dtype} {out.shape}"
            )
        try:
            check_range(out)
        except InputError as error:
            raise InputError(f"corruption {self.name} returned: {error}") from None
        return out


def from_function(
    function: Callable[[Batch, Sequence[str], int, int], Batch],
    severity: int,
    *,
    seed: int = 0,
    name: str | None = None,
) -> FunctionCorruption:
    """Use a plain function ``f(x, ids, severity, seed)`` as a corruption.

    >>> def darker(x, ids, severity, seed):
    ...     return x * np.float32(1 - severity / 10)
    >>> half = from_function(darker, 5)
    >>> half.id, half(np.ones((1, 1, 8, 8), np.float32), ["a"]).max()
    ('darker:5', np.float32(0.5))
    """
    called = name or function.__name__
    if called in NAMES:
        raise InputError(f"corruption {called!r} exists; give yours a name of its own")
    if severity < 1:
        raise InputError(f"corruption {called}: severity must be at least 1, got {severity!r}")
    return FunctionCorruption(function=function, name=called, severity=severity, seed=seed)
