"""``onnx:FILE``: a graph run by onnxruntime.

Layout, size, channels and type of the input come from the graph; the rest of the preprocessing
from ``NAME.preprocessing.json`` beside it or from keys. A graph that takes uint8 needs neither.
"""

import sys
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, brief
from shiftbed.evaluation.data.images import cores
from shiftbed.evaluation.models.base import Floats, FunctionModel, Model
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.spec import Request, native_preprocessing, stamp
from shiftbed.evaluation.preprocessing import Preprocessing


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """An ONNX graph with one image input, as a function from (N, C, H, W) float32 to its output.

    Graphs of fixed batch size get batches filled up; graphs of uint8 get 255 times the pixels.
    """

    session: Any
    name: str
    layout: str
    """``NCHW`` or ``NHWC``."""
    dtype: type
    batch: int | None
    """The only batch size it takes, or None for any."""
    size: tuple[int, int] | None
    channels: int | None
    named: tuple[str, ...] = ()
    """Names of classes that its metadata has."""

    def __call__(self, x: Floats) -> Floats:
        if self.batch is None:
            return self._run(x)
        lacking = -len(x) % self.batch
        full = np.concatenate([x, np.repeat(x[-1:], lacking, axis=0)]) if lacking else x
        starts = range(0, len(full), self.batch)
        return np.concatenate([self._run(full[at : at + self.batch]) for at in starts])[: len(x)]

    def _run(self, x: Floats) -> Floats:
        found: NDArray[Any] = x.transpose(0, 2, 3, 1) if self.layout == "NHWC" else x
        if self.dtype is np.uint8:
            found = np.rint(found * 255)
        fed: NDArray[Any] = np.ascontiguousarray(found, dtype=self.dtype)
        out = self.session.run(None, {self.name: fed})[0]
        return np.asarray(out, dtype=np.float32)


def load(request: Request) -> Model:
    """Open an ONNX file."""
    request.check_keys("num_classes")
    request.only_float32()
    file = existing(request.spec.name, request.spec.prefix)
    graph = open_graph(file, request.device)
    native = native_preprocessing(
        request,
        file,
        size=graph.size,
        channels=graph.channels,
        needed=() if graph.dtype is np.uint8 else ("mean", "std"),
    )
    used = request.preprocess(native)
    classes = _classes(graph, used, file)
    return FunctionModel(
        id=request.identity(stamp(file), native, used),
        classes=classes,
        preprocessing=used,
        facts=request.facts("onnx", file, "onnxruntime"),
        device=request.device,
        content=digest(file),
        class_names=request.class_names or (graph.named if len(graph.named) == classes else ()),
        function=graph,
        engine="onnxruntime",
    )


def _classes(graph: Graph, used: Preprocessing, file: Path) -> int:
    """Columns of its output, found by running one empty image."""
    try:
        found = graph(np.zeros((1, used.channels, *used.size), np.float32))
    except Exception as error:  # onnxruntime's own exceptions share no base
        raise InputError(f"{file} does not take an image of {used.size}: {brief(error)}") from None
    if found.ndim != 2 or len(found) != 1:
        raise InputError(f"{file} must return (N, classes) logits, got {found.shape} for N = 1")
    return int(found.shape[1])


_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


def threads() -> int:
    """torch's number of threads where torch is loaded, else the cores this process may use."""
    torch = sys.modules.get("torch")
    return cores() if torch is None else int(torch.get_num_threads())


def open_graph(file: Path, device: str = "cpu") -> Graph:
    """Open an ONNX file with onnxruntime and look at its input."""
    try:
        import onnxruntime
    except ImportError:
        raise InputError("onnxruntime is not installed: pip install 'shiftbed[evaluate]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    provider = "CUDAExecutionProvider" if device.startswith("cuda") else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise InputError(f"device {device!r}: this onnxruntime has no {provider}")
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=[provider])
    except Exception as error:  # onnxruntime's own exceptions share no base
        raise InputError(f"{file}: onnxruntime cannot open it: {brief(error)}") from None
    return _graph(session, file)


def _graph(session: Any, file: Path) -> Graph:
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in _TYPES:
        shown = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
        raise InputError(f"{file}: must take one image batch (four axes), but takes {shown}")
    shape = [side if isinstance(side, int) else None for side in inputs[0].shape]
    last = shape[1] not in (1, 3) and shape[3] in (1, 3)
    batch, (height, width) = shape[0], (shape[1:3] if last else shape[2:4])
    return Graph(
        session=session,
        name=inputs[0].name,
        layout="NHWC" if last else "NCHW",
        dtype=_TYPES[inputs[0].type],
        batch=batch,
        size=(height, width) if height and width else None,
        channels=shape[3] if last else shape[1],
        named=_named(session.get_modelmeta().custom_metadata_map),
    )


def _named(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Names of classes in a graph's metadata: a list, or a mapping from their numbers."""
    for key in ("class_names", "classes", "labels", "names"):
        try:
            found = literal_eval(metadata.get(key, ""))  # JSON lists and Python's alike
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict):
            numbered = {str(at): name for at, name in found.items()}
            found = [numbered.get(str(at)) for at in range(len(found))]
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return tuple(found)
    return ()
