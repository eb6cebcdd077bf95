"""``torch:FILE``: an exported program (``.pt2``), or a state dict with ``?arch=PREFIX:NAME``.

``arch`` is ``timm:NAME``, ``torchvision:NAME``, ``open_clip:ARCH``, or ``python:MODULE:CLASS`` for
an architecture of one's own. Checkpoints hold tensors only (``weights_only=True``); TorchScript and
whole pickled modules are refused. Preprocessing comes from the architecture, or from
``NAME.preprocessing.json`` beside the file, or from keys.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models.base import Model, versions
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.exported import load_program
from shiftbed.evaluation.models.sidecar import native_preprocessing
from shiftbed.evaluation.models.spec import Request, Spec, stamp
from shiftbed.evaluation.models.torch_model import wrap

_LIBRARIES = ("timm", "torchvision", "open_clip")


def load(request: Request) -> Model:
    """Load an exported program, or weights into an architecture."""
    file = existing(request.spec.name, request.spec.prefix)
    architecture = request.text("arch")
    if architecture is None:
        if file.suffix != ".pt2":
            raise InputError(
                f"{request.spec.text}: a state dict needs its architecture, ?arch=timm:NAME; "
                "exported programs (torch.export.save) end in .pt2"
            )
        return _exported(file, request)
    kind, _, name = architecture.partition(":")
    if kind == "python":
        return _own(file, name, request)
    if kind not in _LIBRARIES:
        raise unknown("kind of architecture", kind, (*_LIBRARIES, "python"))
    return _of_library(file, kind, name, request)


def _of_library(file: Path, kind: str, name: str, request: Request) -> Model:
    """The same as ``KIND:NAME?weights=FILE``, and under that name."""
    from importlib import import_module

    query = {k: v for k, v in request.spec.query.items() if k != "arch"}
    spec = Spec(text=request.spec.text, prefix=kind, name=name, query=query)
    loader = import_module(f"shiftbed.evaluation.models.from_{kind}")
    model: Model = loader.load(replace(request, spec=spec, weights=file))
    return model


def _own(file: Path, name: str, request: Request) -> Model:
    """A module class or factory of the user's, filled with the weights."""
    from shiftbed.evaluation.models.from_objects import from_object, is_module, stated
    from shiftbed.evaluation.models.from_python import build, shown

    request.check_keys("arch", "num_classes")
    request = replace(request, weights=file)
    network = build(name, request)
    if not is_module(network.found):
        raise InputError(
            f"python:{name} must be a torch module, its class or a function making one"
        )
    native = stated(network.found) or network.native or native_preprocessing(request, file)
    return from_object(
        network.found,
        request,
        lambda own, used: request.identity(stamp(file), own, used, arch=f"python:{shown(name)}"),
        facts={"spec": request.spec.text, **network.facts, "libraries": versions("torch")},
        native=native,
    )


def _exported(file: Path, request: Request) -> Model:
    from shiftbed.evaluation.models.modules import Unregistered

    request.check_keys("arch", "num_classes")
    request.only_float32()
    program = load_program(file)
    batch, channels, *size = _input(program, file)
    if batch is not None:
        raise InputError(
            f"{file} takes batches of {batch} only: export it with a dynamic first dimension, "
            "dynamic_shapes=({0: torch.export.Dim('batch')},)"
        )
    known = (size[0], size[1]) if size[0] and size[1] else None
    native = native_preprocessing(request, file, size=known, channels=channels)
    used = request.preprocess(native)
    module = program.module()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return wrap(
        Unregistered(module),
        id=request.identity(stamp(file), native, used),
        preprocessing=used,
        facts={"spec": request.spec.text, "architecture": "exported program", **_facts(file)},
        device=_cpu_only(request),
        channels_last=False,
        content=digest(file),
    )


def _input(program: Any, file: Path) -> list[int | None]:
    """Shape of its one input; None where it is dynamic."""
    names = program.graph_signature.user_inputs
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    shapes = [n.meta["val"].shape for n in nodes if "val" in n.meta]
    if len(names) != 1 or len(shapes) != 1 or len(shapes[0]) != 4:
        raise InputError(f"{file}: must take one image batch (N, C, H, W), takes {len(names)}")
    return [side if isinstance(side, int) else None for side in shapes[0]]


def _cpu_only(request: Request) -> str:
    if request.device != "cpu":
        raise InputError(f"{request.spec.text}: exported programs run on the cpu only")
    return request.device


def _facts(file: Path) -> dict[str, Any]:
    return {
        "weights": {"file": file.name, "sha256": digest(file)},
        "libraries": versions("torch"),
    }
