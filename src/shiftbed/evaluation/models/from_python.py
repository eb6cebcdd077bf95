"""``python:MODULE:FUNCTION``: anything that returns logits; ``MODULE`` may be a file, ``net.py``.

The function gets (N, C, H, W) float32 pixels in [0, 1] and returns (N, classes) logits. With ``()``
behind it, as in ``python:my.nets:build()``, it is called once and what it returns is the model: a
function, a torch module or a ``Model``. Attributes ``preprocessing`` (a mapping with ``size`` or a
``Preprocessing``) and ``class_names`` of the function are used; keys of the line come on top. A
mean and std in the preprocessing are applied before the function is called.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models.base import FunctionModel, Model
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.spec import Request
from shiftbed.evaluation.preprocessing import Preprocessing


def load(request: Request) -> Model:
    """Import a function (or what a factory returns) and make it a model."""
    request.check_keys("num_classes")
    found, facts = find(request.spec.name)
    if isinstance(found, Model):
        return found
    native = _native(found, request)
    used = request.preprocess(native)
    id = request.identity(shown(request.spec.name), native, used)
    facts = {"spec": request.spec.text, **facts}
    names = tuple(getattr(found, "class_names", ()))
    if _is_module(found):
        from shiftbed.evaluation.models.torch_model import wrap

        return wrap(
            found,
            id=id,
            preprocessing=used,
            facts=facts,
            device=request.device,
            precision=request.precision,
            class_names=names,
        )
    request.only_float32()
    if not callable(found):
        raise InputError(f"{request.spec.text}: not a function but {type(found).__name__}")
    probe = FunctionModel(id=id, classes=0, preprocessing=used, function=found)
    return FunctionModel(
        id=id,
        classes=_classes(probe, request),
        preprocessing=used,
        facts=facts,
        class_names=names,
        function=found,
    )


def find(name: str) -> tuple[Any, dict[str, Any]]:
    """The object that ``MODULE:ATTRIBUTE[()]`` names, and what is known of where it lies.

    >>> find("math:sqrt")[0](4.0)
    2.0
    """
    module_name, colon, attribute = name.rpartition(":")
    called = attribute.endswith("()")
    attribute = attribute.removesuffix("()")
    if not colon or not module_name or not attribute:
        raise InputError(f"python:{name}: must be python:MODULE:FUNCTION")
    module = _module(module_name)
    found: Any = module
    for part in attribute.split("."):
        if part not in dir(found):
            raise unknown(f"name in {module_name}", part, [n for n in dir(found) if n[0] != "_"])
        found = getattr(found, part)
    facts: dict[str, Any] = {"architecture": f"{module_name}:{attribute}"}
    source = Path(getattr(module, "__file__", None) or "")
    if source.suffix == ".py":
        facts["code"] = {"file": source.name, "sha256": digest(source)}
    return found() if called else found, facts


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        file = existing(name, "python")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise InputError(f"{file}: cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    try:
        with _here_too():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"no module {name!r} here ({os.getcwd()}) or installed") from None
        raise


@contextmanager
def _here_too() -> Iterator[None]:
    """Modules in the working directory can be imported, as with ``python -m``."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _native(found: Any, request: Request) -> Preprocessing:
    stated = getattr(found, "preprocessing", None)
    if isinstance(stated, Preprocessing):
        return stated
    if isinstance(stated, Mapping):
        return Preprocessing.from_dict(stated)
    if not request.asks_for("size"):
        raise InputError(
            f"{request.spec.text} does not say its image size: add ?size=224, give preprocessing, "
            "or set FUNCTION.preprocessing = {'size': (224, 224)}"
        )
    return Preprocessing(size=(1, 1))


def _classes(probe: FunctionModel, request: Request) -> int:
    """As asked for, or the columns for one grey image."""
    wanted = request.integer("num_classes") or request.classes
    if wanted is not None:
        return wanted
    p = probe.preprocessing
    shape = np.shape(probe.function(np.full((1, p.channels, *p.size), 0.5, np.float32)))
    if len(shape) != 2 or shape[0] != 1:
        raise InputError(f"{probe.id} must return (N, classes) logits, got {shape} for N = 1")
    return int(shape[1])


def _is_module(found: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(found, torch.nn.Module)


def shown(name: str) -> str:
    """Without the folders of a file: where it lies is no part of an identity."""
    module, _, attribute = name.rpartition(":")
    return f"{Path(module).name if module.endswith('.py') else module}:{attribute}"
