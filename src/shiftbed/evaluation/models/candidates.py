"""Other ways to run a torch module: exported to onnxruntime, or compiled."""

import logging
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.models.base import Floats, Pixels, as_fractions
from shiftbed.evaluation.models.ort import open_graph
from shiftbed.evaluation.models.torch_model import TorchModel

Run = Callable[[Pixels], Floats]


class GaveUp(Exception):
    """Preparing a candidate took too long."""


def has_compiler() -> bool:
    """Whether there is a C++ compiler, without which torch cannot compile for the CPU."""
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    return any(shutil.which(name) for name in names if name)


def exported(model: TorchModel, *, within: bool = True) -> Run:
    """The module as an ONNX graph with a dynamic batch, opened by onnxruntime."""
    import torch

    p = model.preprocessing
    example = torch.rand(2, p.channels, *p.size, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory(prefix="shiftbed-") as folder, _quiet():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model.module,
            (example,),
            str(path),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
        graph = open_graph(path)

    def run(pixels: Pixels) -> Floats:
        return graph(as_fractions(pixels, p, within=within))

    return run


def compiled(
    model: TorchModel, batch: Pixels | None, seconds: float, *, within: bool = True
) -> Run:
    """The module compiled for one batch size, that of ``batch`` or of the first one run.

    Smaller batches are filled up.
    """
    import torch

    fast = torch.compile(model.module, dynamic=False)
    size = [0 if batch is None else len(batch)]

    def run(pixels: Pixels) -> Floats:
        size[0] = size[0] or len(pixels)
        parts = []
        for start in range(0, len(pixels), size[0]):
            part: NDArray[Any] = pixels[start : start + size[0]]
            full = np.concatenate([part, np.repeat(part[-1:], size[0] - len(part), axis=0)])
            with torch.inference_mode():
                tensor = model.tensor(full, within=within)
                parts.append(fast(tensor).cpu().numpy()[: len(part)])
        return np.concatenate(parts)

    if batch is not None:
        with _deadline(seconds), _quiet():
            run(batch)
    return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters and compilers warn about themselves and print; neither is the user's concern."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch._inductor")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Give up what takes longer; only the main thread of a POSIX process can be interrupted."""
    main = threading.current_thread() is threading.main_thread()
    if sys.platform == "win32" or not main or not math.isfinite(seconds):
        yield
        return

    def stop(*_: object) -> None:
        raise GaveUp(f"compiling took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
