"""``torch:FILE``: an exported program (``.pt2``), or a state dict with ``?arch=PREFIX:NAME``.

``arch`` is ``timm:NAME``, ``torchvision:NAME``, ``open_clip:ARCH``, or ``python:MODULE:CLASS`` for
an architecture of one's own. Checkpoints hold tensors only (``weights_only=True``); TorchScript and
whole pickled modules are refused. Preprocessing comes from the architecture, or from
``NAME.preprocessing.json`` beside the file, or from keys.

Exported programs are not trusted: ``torch.export.load`` unpickles whatever an archive marks as
pickled, falls back to full unpickling for sample inputs, evaluates shape expressions and looks
functions up by name. So the archive is looked through first, with torch's own reader, and refused
if it holds anything but a graph of ATen operators, plain tensors and shape expressions.
"""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.models.base import Model, versions
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.spec import Request, Spec, native_preprocessing, stamp
from shiftbed.evaluation.models.torch_model import quiet, wrap

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
    # the same as KIND:NAME?weights=FILE, and under that name
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
    if request.device != "cpu":
        raise InputError(f"{request.spec.text}: exported programs run on the cpu only")
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
    return wrap(
        Unregistered(program.module().requires_grad_(False)),
        id=request.identity(stamp(file), native, used),
        preprocessing=used,
        facts=request.facts("exported program", file, "torch"),
        device=request.device,
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


_RECORDS = re.compile(
    r"models/\w+\.json|data/weights/(weight_\d+|\w+_weights_config\.json)"
    r"|data/constants/(tensor_\d+|\w+_constants_config\.json)|data/sample_inputs/\w+\.pt"
    r"|extra/.*|archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment"
)
_TARGETS = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+\.\w+|torch\.sym_\w+|math\.\w+"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge"
    r"|and_|or_|not_)"
)
_EXPRESSION = re.compile(r"[\w\s+*/%<>=!&|~().,'\[\]-]*")
_FUNCTIONS = re.compile(r"([A-Za-z_]\w*)\s*\(")
_CALLED_AGAIN = re.compile(r"[)\]']\s*\(")
_KNOWN_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        Symbol Integer Float Rational Add Mul Pow Max Min Abs Eq Ne Lt Le Gt Ge And Or Not Where
        Mod PythonMod FloorDiv CleanDiv CeilDiv ModularIndexing PowByNatural FloatTrueDiv
        IntTrueDiv CeilToInt FloorToInt TruncToInt RoundToInt ToFloat Identity
        """,
    )
)
_TRAINING = {"aten.dropout.default": 2, "aten.batch_norm.default": 5}
"""Operators with a flag for training, and which argument it is."""
_KNOWN_GUARDS = frozenset(["size", "stride", "dim", "numel", "storage_offset"])


def load_program(file: Path) -> Any:
    """The exported program in a checked archive."""
    import torch

    check_archive(file)
    try:
        with quiet("torch.export"):  # a traceback for every archive that it fails on
            program = torch.export.load(file)
    except Exception as error:  # damaged graphs fail in many ways
        raise InputError(f"{file}: torch cannot load it: {brief(error)}") from None
    for node in program.graph.nodes:
        at = _TRAINING.get(str(node.target))
        if at is not None and len(node.args) > at and node.args[at] is True:
            raise InputError(f"{file} was exported in training mode; call .eval() before exporting")
    return program


def check_archive(file: Path) -> None:
    """Raise unless an archive holds only a graph of ATen operators and plain tensors."""
    try:
        from torch.export.pt2_archive._package import PT2ArchiveReader
    except ImportError:
        raise InputError(f"{file}: exported programs need a newer torch") from None
    try:
        archive = PT2ArchiveReader(str(file))
        names = archive.get_file_names()
        if len(set(names)) != len(names):
            raise InputError(f"{file}: refused, it holds a record twice")
        for name in names:
            _check_record(file, name, archive)
    except InputError:
        raise
    except Exception as error:  # torch's reader raises RuntimeError, json ValueError, …
        raise InputError(
            f"{file}: not an exported program (torch.export.save): {brief(error)}"
        ) from None


def _check_record(file: Path, name: str, archive: Any) -> None:
    if not _RECORDS.fullmatch(name):
        raise InputError(f"{file}: refused, {name} is no part of a graph with plain tensors")
    if name.endswith("_config.json"):
        for tensor, entry in json.loads(archive.read_string(name))["config"].items():
            if entry.get("use_pickle") or not re.fullmatch(
                r"(weight|tensor)_\d+", entry["path_name"]
            ):
                raise InputError(f"{file}: refused, {tensor} is pickled, not a plain tensor")
    elif name.startswith("data/sample_inputs/"):
        import torch

        data = archive.read_bytes(name)
        try:
            if data:
                torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        except Exception:
            raise InputError(f"{file}: refused, its sample inputs are more than tensors") from None
    elif name.startswith("models/"):
        for key, value in _texts(json.loads(archive.read_string(name))):
            _check_text(file, key, value)


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON document, with the key it lies under."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _texts(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value, key)
    elif isinstance(node, str):
        yield key, node


def _check_text(file: Path, key: str, text: str) -> None:
    if key in ("target", "as_operator") and not _TARGETS.fullmatch(text):
        # names of inputs and outputs are also targets; they are no dotted paths
        if re.fullmatch(r"\w+", text):
            return
        raise InputError(f"{file}: refused, it calls {text}, which is no ATen operator")
    known = {"expr_str": _KNOWN_FUNCTIONS, "guards_code": _KNOWN_GUARDS}.get(key)
    if known is not None:
        strange = "__" in text or not _EXPRESSION.fullmatch(text) or _CALLED_AGAIN.search(text)
        if strange or not set(_FUNCTIONS.findall(text)) <= known:
            raise InputError(f"{file}: refused, {text[:60]!r} is no shape expression")
    elif key in ("in_spec", "out_spec") and "__enum__" in text:
        raise InputError(f"{file}: refused, its arguments are more than tensors")
