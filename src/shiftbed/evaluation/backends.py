"""What runs a model: torch as it is, torch compiled, or onnxruntime; measured, then chosen.

A backend is taken only if its logits agree with torch's: with s the largest absolute logit of the
reference on the sample, every |Δ| ≤ TOLERANCE · s, and the same argmax, except where torch itself
separates the two classes by no more than 2 · TOLERANCE · s. Models without a torch module have
one backend, their own.
"""

import gc
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.kept_graphs import any_kept, is_kept, kept_graph
from shiftbed.evaluation.models.base import Floats, FunctionModel, Model, Pixels, as_fractions
from shiftbed.evaluation.models.from_onnx import Graph
from shiftbed.evaluation.models.torch_model import TorchModel, quiet, torch_threads

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shiftbed.evaluation.models.heads import Split

BACKENDS = ("auto", "torch", "compile", "onnxruntime")
TOLERANCE = 1e-3
COMPILE_SECONDS = 120.0
"""How long compiling may take before it is given up."""
EXPORT_SECONDS = 15.0
"""What exporting to ONNX usually costs; runs of less than three times this stay with torch."""
OPEN_SECONDS = 2.0
"""The same of opening what was exported before."""
_LOGGERS = ("torch.onnx", "onnxscript", "torch._inductor")
"""Exporters and compilers log and warn about themselves."""
Run = Callable[[Pixels], Floats]


@dataclass(frozen=True, kw_only=True, eq=False)
class Backend:
    """A way to run one model, and how it came to be chosen.

    ``report`` has ``chosen``, ``threads``, ``tolerance`` and ``candidates``: for each, seconds to
    prepare, seconds per batch, images per second, largest difference of a logit and share of equal
    argmax against torch, or why it was left out. One that was asked for by name alone is timed.
    """

    name: str
    run: Run
    report: dict[str, Any]

    def logits(self, pixels: Pixels) -> Floats:
        """(N, classes) logits of (N, C, H, W) pixels, as the model's own ``logits``."""
        return self.run(pixels)


def choose_backend(
    model: Model,
    sample: Sequence[Pixels],
    backend: str = "auto",
    *,
    images: int | None = None,
    rounds: int = 3,
    compile_seconds: float = COMPILE_SECONDS,
    within: bool = True,
) -> Backend:
    """The backend asked for, or the fastest whose logits agree with torch's on the sample.

    ``sample`` are a few batches of the size that will be run. ``images`` is how many there will be
    in all: with it, candidates that cost more to prepare than they could save are not tried, and
    compiling is tried only with it. A backend asked for by name is checked in the same way and
    refused if it does not agree; without a sample (to run again what was chosen before) it is
    taken as it is. With ``within`` false, pixels may leave [0, 1], as for ``Model.logits``.
    """
    if not isinstance(model, TorchModel):  # runs as it is, whatever was asked for
        name = model.engine if isinstance(model, FunctionModel) else "own"
        entry = {"note": "the only one: this model has no torch module"}
        if backend not in ("auto", name):
            entry["asked_for"] = backend
        report = {"chosen": name, "candidates": {name: entry}}
        return Backend(name=name, run=_own_logits(model, within), report=report)
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    batches = [batch for batch in sample if len(batch)]
    if not batches:
        return _unchecked(model, backend, compile_seconds, within)
    if images is not None:  # measuring is a small part of the work
        rounds = min(rounds, max(1, images // (20 * sum(map(len, batches)))))
    trial = _Trial(batches, rounds if backend == "auto" else 1, backend in ("auto", "torch"))
    trial.add("torch", lambda: _own_logits(model, within))
    for name in BACKENDS[2:]:
        if backend not in ("auto", name):
            continue
        reason = _left_out(name, model)
        if reason is None and backend == "auto":
            reason = _not_worth(name, model, trial, images, compile_seconds)
        if reason is None:
            trial.add(name, partial(_prepared, name, model, batches[0], compile_seconds, within))
        else:
            trial.candidates[name] = {"excluded": reason}
    trial.measure()
    chosen = trial.fastest() if backend == "auto" else backend
    if chosen not in trial.runs:
        raise InputError(f"backend {backend!r}: {trial.candidates[chosen]['excluded']}")
    return Backend(name=chosen, run=trial.runs[chosen], report=trial.report(chosen))


def _unchecked(model: TorchModel, backend: str, compile_seconds: float, within: bool) -> Backend:
    name = "torch" if backend == "auto" else backend
    reason = _left_out(name, model)
    if reason is not None:
        raise InputError(f"backend {backend!r}: {reason}")
    run = _prepared(name, model, None, compile_seconds, within)
    entry = {"note": "not measured: no sample was given"}
    return Backend(name=name, run=run, report={"chosen": name, "candidates": {name: entry}})


class _Trial:
    """Candidates prepared, compared with torch and timed in turns."""

    def __init__(self, sample: Sequence[Pixels], rounds: int, ahead: bool) -> None:
        self.sample = sample
        self.rounds = rounds
        self.ahead = ahead
        """Whether torch is timed, before others are prepared: what they may cost depends on it."""
        self.runs: dict[str, Run] = {}
        self.candidates: dict[str, dict[str, Any]] = {}
        self.reference: Floats | None = None
        self.seconds = math.inf

    def add(self, name: str, prepare: Callable[[], Run]) -> None:
        """Prepare a candidate and keep it if it agrees; the first one is the reference."""
        start = time.perf_counter()
        try:
            run = prepare()
            with nullcontext() if self.ahead or name != "torch" else torch_threads(1):
                found = np.concatenate([run(batch) for batch in self.sample])
        except Exception as error:  # exporters and compilers fail in their own ways
            if name == "torch":
                raise
            kind = "" if isinstance(error, GaveUp) else f"{type(error).__name__}: "
            self.candidates[name] = {"excluded": f"{kind}{brief(error)}"}
            return
        entry: dict[str, Any] = {"prepare_seconds": round(time.perf_counter() - start, 3)}
        if self.reference is None:
            self.reference = found
            if self.ahead:
                again = time.perf_counter()
                run(self.sample[0])
                self.seconds = time.perf_counter() - again
        entry |= agreement(self.reference, found)
        self.candidates[name] = entry
        if entry.pop("agrees"):
            self.runs[name] = run
        else:
            entry["excluded"] = "its logits differ from torch's by more than the tolerance"

    def measure(self) -> None:
        """Time candidates on every batch, in turns, so that all see the same machine.

        Where one was asked for by name, it alone: nothing is to be chosen.
        """
        timed = {name: run for name, run in self.runs.items() if self.ahead or name != "torch"}
        times: dict[str, list[float]] = {name: [] for name in timed}
        if list(timed) == ["torch"]:
            times, timed = {"torch": [self.seconds]}, {}
        for _ in range(self.rounds):
            for name, run in timed.items():
                for batch in self.sample:
                    start = time.perf_counter()
                    run(batch)
                    times[name].append(time.perf_counter() - start)
        size = float(np.mean([len(batch) for batch in self.sample]))
        for name, found in times.items():
            typical = median(found)
            self.candidates[name]["seconds_per_batch"] = round(typical, 6)
            self.candidates[name]["images_per_second"] = round(size / max(typical, 1e-9), 2)

    def fastest(self) -> str:
        return min(self.runs, key=lambda name: self.candidates[name]["seconds_per_batch"])

    def report(self, chosen: str) -> dict[str, Any]:
        import torch

        return {
            "chosen": chosen,
            "threads": torch.get_num_threads(),
            "tolerance": TOLERANCE,
            "batch_sizes": [len(batch) for batch in self.sample],
            "candidates": self.candidates,
        }


def agreement(reference: Floats, found: Floats, tolerance: float = TOLERANCE) -> dict[str, Any]:
    """How far logits are from a reference's, and whether that is near enough."""
    if reference.shape != found.shape:
        return {"agrees": False, "max_difference": math.inf, "same_argmax": 0.0}
    allowed = tolerance * float(np.abs(reference).max())
    difference = np.abs(found - reference)
    first, other = reference.argmax(axis=1), found.argmax(axis=1)
    rows = np.arange(len(reference))
    gap = reference[rows, first] - reference[rows, other]
    near = bool(difference.max() <= allowed) and bool((gap <= 2 * allowed).all())
    return {
        "agrees": near,  # false for nan
        "max_difference": float(difference.max()),
        "same_argmax": float((first == other).mean()),
    }


def _own_logits(model: Model, within: bool) -> Run:
    return model.logits if within else partial(model.logits, within=False)


def _left_out(name: str, model: TorchModel) -> str | None:
    """Why a candidate cannot be had, or None."""
    if name == "onnxruntime" and not model.device.startswith("cpu"):
        return f"the model is on {model.device}"
    if name == "onnxruntime" and model.precision != "float32":
        return f"the model runs in {model.precision}"
    if name == "compile" and not has_compiler():
        return "no C++ compiler was found (g++, clang++ or $CXX)"
    return None


def _not_worth(
    name: str, model: TorchModel, trial: _Trial, images: int | None, compile_seconds: float
) -> str | None:
    """Why preparing a candidate would not pay, or None."""
    if images is None:
        return None if name == "onnxruntime" else "tried only where the number of images is given"
    cost = EXPORT_SECONDS if name == "onnxruntime" else compile_seconds
    seconds = trial.seconds / len(trial.sample[0]) * images
    if seconds > 3 * cost:  # one that is half as fast again saves a third
        return None
    if name == "onnxruntime" and seconds > 3 * OPEN_SECONDS and _is_exported(model):
        return None
    return f"{images} images take about {seconds:.0f} s, preparing it up to {cost:.0f} s"


def _prepared(
    name: str, model: TorchModel, batch: Pixels | None, compile_seconds: float, within: bool
) -> Run:
    if name == "torch":
        return _own_logits(model, within)
    if name == "onnxruntime":
        return exported(model, within)
    return compiled(model, batch, compile_seconds, within)


class GaveUp(Exception):
    """Preparing a candidate took too long."""


def has_compiler() -> bool:
    """Whether there is a C++ compiler, without which torch cannot compile for the CPU."""
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    return any(shutil.which(name) for name in names if name)


def exported(model: TorchModel, within: bool = True) -> Run:
    """The module as an ONNX graph with a dynamic batch, opened by onnxruntime.

    A network that ends in a head is exported up to it, and torch multiplies by the head's matrix:
    so a head gives the same logits alone as with others on its backbone. In one thread: a second
    one would wait for the next batch busily, on a processor that onnxruntime needs.
    """
    import torch

    body = None if model.parts is None else exported_features(model.parts, within)
    if body is None or model.parts is None:
        graph = _graph(model.module, model)
        return lambda x: graph(as_fractions(x, model.preprocessing, within=within, order="C"))
    parts, features = model.parts, body
    return lambda pixels: parts.answer(torch.from_numpy(features(pixels)), threads=1)


_graphs: dict[tuple[str, str], Graph | None] = {}


def exported_features(parts: "Split", within: bool = True) -> Run | None:
    """The backbone as an ONNX graph: pixels to features; None if the head is no part of its own.

    The last two graphs are kept, for other heads on the same backbone.
    """
    from shiftbed.evaluation.models.heads import features_module

    p = parts.model.preprocessing
    key = (parts.backbone, repr(p.describe()))
    if key not in _graphs:
        for old in list(_graphs)[:-1]:
            del _graphs[old]
        body = features_module(parts)
        _graphs[key] = None if body is None else _graph(body, parts.model)
    graph = _graphs[key]
    if graph is None:
        return None
    return lambda x: graph(as_fractions(x, p, within=within, order="C"))


def _is_exported(model: TorchModel) -> bool:
    """Whether the graph was exported before, and is kept."""
    from shiftbed.evaluation.models.heads import features_module

    if not any_kept():
        return False
    body = None if model.parts is None else features_module(model.parts)
    return is_kept(model.module if body is None else body, _example(model))


def _example(model: TorchModel) -> "torch.Tensor":
    import torch

    p = model.preprocessing
    return torch.rand(2, p.channels, *p.size, generator=torch.Generator().manual_seed(0))


def _graph(module: "nn.Module", model: TorchModel) -> Graph:
    import torch

    example = _example(model)

    def export(path: Path) -> None:
        with quiet(*_LOGGERS):
            torch.onnx.export(
                module,
                (example,),
                str(path),
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )

    def agrees(graph: Graph) -> bool:
        with torch_threads(1), torch.inference_mode():
            expected = module(example).numpy()
        return bool(agreement(expected, graph(example.numpy()))["agrees"])

    return kept_graph(module, example, export, agrees)


def compiled(model: TorchModel, batch: Pixels | None, seconds: float, within: bool = True) -> Run:
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
        with _deadline(seconds), quiet(*_LOGGERS):
            run(batch)
    return run


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


_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's, torch's or onnxruntime's."""
    torch = sys.modules.get("torch")
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    words = str(error).lower() if isinstance(error, Exception) else ""
    return isinstance(error, kinds) or any(one in words for one in _MEMORY)


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
                limit[0] = size // 2
            else:
                start += size
                continue
            gc.collect()  # what an accelerator holds, now that nothing refers to it
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_available():
                torch.cuda.empty_cache()
            if report is not None:
                report(size, limit[0])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return halving
