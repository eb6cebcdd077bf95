"""Exported ONNX graphs, kept between processes: exporting takes longer than many an evaluation.

    CACHE/graphs/KEY/model.onnx    and its external data; KEY is of weights, settings and versions

A kept graph is used only if it answers as the network does, tried on an example each time it is
opened; one that does not, or is damaged, is exported anew. The oldest go when they need more room
than ``ROOM``.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.errors import InputError
from shiftbed.evaluation.models.base import versions
from shiftbed.evaluation.models.from_onnx import Graph, open_graph
from shiftbed.evaluation.models.torch_model import network_digest
from shiftbed.places import cache_folder

if TYPE_CHECKING:
    import torch
    from torch import nn

ROOM = 4 << 30
"""Bytes of graphs that are kept at most."""
FILE = "model.onnx"


def kept_graph(
    module: "nn.Module",
    example: "torch.Tensor",
    export: Callable[[Path], Any],
    agrees: Callable[[Graph], bool],
) -> Graph:
    """The graph of a module: one that is kept and agrees with it, else exported and kept.

    ``export`` writes it to a path. Where nothing can be kept, it is exported every time.
    """
    shelf = cache_folder() / "graphs"
    place = shelf / _key(module, example)
    if (place / FILE).is_file():
        with suppress(InputError, OSError):
            graph = open_graph(place / FILE)
            if agrees(graph):
                os.utime(place)
                return graph
        shutil.rmtree(place, ignore_errors=True)
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=shelf, prefix=".exporting-"))
    except OSError:
        with tempfile.TemporaryDirectory(prefix="shiftbed-") as elsewhere:
            export(Path(elsewhere) / FILE)
            return open_graph(Path(elsewhere) / FILE)
    try:
        export(folder / FILE)
        graph = open_graph(folder / FILE)
        with suppress(OSError):  # another process was faster
            os.replace(folder, place)
        _make_room(shelf)
        return graph
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_kept(module: "nn.Module", example: "torch.Tensor") -> bool:
    """Whether there is a graph of the module that need not be exported."""
    return (cache_folder() / "graphs" / _key(module, example) / FILE).is_file()


def any_kept() -> bool:
    """Whether there are graphs at all; where there are none, nobody needs a network's digest."""
    with suppress(OSError):
        return any(not one.name.startswith(".") for one in (cache_folder() / "graphs").iterdir())
    return False


def _key(module: "nn.Module", example: "torch.Tensor") -> str:
    used = versions("torch", "onnx", "onnxscript")
    text = f"{network_digest(module)} {tuple(example.shape[1:])} {sorted(used.items())}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _make_room(shelf: Path) -> None:
    """Remove the graphs that were used longest ago."""
    left = ROOM
    with suppress(OSError):
        kept = [one for one in shelf.iterdir() if not one.name.startswith(".")]
        for one in sorted(kept, key=lambda path: path.stat().st_mtime, reverse=True):
            left -= sum(file.stat().st_size for file in one.iterdir())
            if left < 0:
                shutil.rmtree(one, ignore_errors=True)
