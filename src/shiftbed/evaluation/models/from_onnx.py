"""``onnx:FILE``: a graph run by onnxruntime.

Layout, size, channels and type of the input come from the graph; the rest of the preprocessing
from ``NAME.preprocessing.json`` beside it or from keys. A graph that takes uint8 needs neither.
"""

from pathlib import Path

import numpy as np

from shiftbed.errors import InputError
from shiftbed.evaluation.models.base import FunctionModel, Model, versions
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.ort import Graph, open_graph
from shiftbed.evaluation.models.sidecar import native_preprocessing
from shiftbed.evaluation.models.spec import Request, stamp
from shiftbed.evaluation.preprocessing import Preprocessing


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
    return FunctionModel(
        id=request.identity(stamp(file), native, used),
        classes=_classes(graph, used, file),
        preprocessing=used,
        facts={
            "spec": request.spec.text,
            "architecture": "onnx",
            "weights": {"file": file.name, "sha256": digest(file)},
            "libraries": versions("onnxruntime"),
        },
        device=request.device,
        content=digest(file),
        function=graph,
        engine="onnxruntime",
    )


def _classes(graph: Graph, used: Preprocessing, file: Path) -> int:
    """Columns of its output, found by running one empty image."""
    try:
        found = graph(np.zeros((1, used.channels, *used.size), np.float32))
    except Exception as error:  # onnxruntime's own exceptions share no base
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{file} does not take an image of {used.size}: {reason}") from None
    if found.ndim != 2 or len(found) != 1:
        raise InputError(f"{file} must return (N, classes) logits, got {found.shape} for N = 1")
    return int(found.shape[1])
