"""``python:MODULE:FUNCTION``: anything that returns logits; ``MODULE`` may be a file, ``net.py``.

The function gets (N, C, H, W) float32 pixels in [0, 1] and returns (N, classes) logits. With ``()``
behind it, as in ``python:my.nets:build()``, it is called and what it returns is the model: a
function, a torch module or a ``Model``. Attributes ``preprocessing`` (a mapping with ``size`` or a
``Preprocessing``) and ``class_names`` of the function are used; keys of the line come on top. A
mean and std in the preprocessing are applied before the function is called.

Keys: ``weights`` (a file of tensors, every one of which must fit the torch module), ``seed`` (0: of
weights that are drawn where none are given), ``num_classes``.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models.base import Model
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.dependencies import code_files
from shiftbed.evaluation.models.from_objects import from_object, is_module, stated
from shiftbed.evaluation.models.spec import Request, stamp
from shiftbed.evaluation.models.torch_model import network_digest, seeded
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.foreign_code import Origin


def load(request: Request) -> Model:
    """Import a function (or what a factory returns) and make it a model."""
    request.check_keys("num_classes", "weights", "seed")
    network = build(request.spec.name, request)
    query: dict[str, str | int | None] = {}
    if request.weights is not None:
        query["weights"] = stamp(request.weights)
    elif network.drawn:
        query["seed"] = request.seed or None
    return from_object(
        network.found,
        request,
        lambda native, used: request.identity(shown(request.spec.name), native, used, **query),
        facts={"spec": request.spec.text, **network.facts},
        native=network.native,
    )


class Built(NamedTuple):
    """What a line names."""

    found: Any
    native: Preprocessing | None
    """The preprocessing that its factory states."""
    drawn: bool
    """Whether its weights are random, drawn with the seed."""
    facts: dict[str, Any]


def build(name: str, request: Request) -> Built:
    """The object that ``MODULE:ATTRIBUTE[()]`` names, made with the seed.

    A class of modules is called like a factory, and so is a function that weights are given for.
    """
    made, facts = find(name.removesuffix("()"), request.origin, request.seed)
    torch = sys.modules.get("torch")
    called = name.endswith("()") or (request.weights is not None and inspect.isroutine(made))
    if torch is not None and isinstance(made, type):
        called = called or issubclass(made, torch.nn.Module)
    if not called:
        if request.text("seed") is not None and not is_module(made):
            raise InputError(f"python:{name}: takes no seed: nothing is drawn when it is named")
        return Built(made, None, False, facts)
    found = _called(made, name, request.seed)
    if not is_module(found) or request.weights is not None:
        return Built(found, stated(made), False, facts)
    other = _called(made, name, request.seed + 1)
    drawn = network_digest(found) != network_digest(other)
    origin = {"random": True, "seed": request.seed} if drawn else {"made_by": shown(name)}
    return Built(found, stated(made), drawn, {**facts, "weights": origin})


def _called(factory: Any, name: str, seed: int) -> Any:
    """What a factory makes, with the seed in torch's generator."""
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise InputError(f"python:{name}: must be callable without arguments: {error}") from None
    except ValueError:  # built in, without a signature
        pass
    with seeded(seed) if find_spec("torch") else nullcontext():
        return factory()


def find(name: str, origin: Origin, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """The object that ``MODULE:ATTRIBUTE`` names, and what is known of where it lies.

    With ``()`` behind it, it is called. What a module draws while it is imported has the seed. The
    one place that executes code by name: only if its ``origin`` may.
    """
    origin.check(f"python:{name}")
    _unchanged(name)
    module_name, colon, attribute = name.rpartition(":")
    called = attribute.endswith("()")
    attribute = attribute.removesuffix("()")
    if not colon or not module_name or not attribute:
        raise InputError(f"python:{name}: must be python:MODULE:FUNCTION")
    with seeded(seed) if "torch" in sys.modules else nullcontext():
        module = _module(module_name)
    found: Any = module
    for part in attribute.split("."):
        if part not in dir(found):
            raise unknown(f"name in {module_name}", part, [n for n in dir(found) if n[0] != "_"])
        found = getattr(found, part)
    facts: dict[str, Any] = {"architecture": shown(f"{module_name}:{attribute}")}
    source = Path(getattr(module, "__file__", None) or "")
    if source.suffix == ".py":
        facts["code"] = code_of(source)
    return _called(found, name, seed) if called else found, facts


def code_of(source: Path) -> dict[str, str]:
    """What a record says of a source file."""
    return {"file": source.name, "sha256": digest(source)}


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        file = existing(name, "python")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise InputError(f"{file}: cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    here = os.getcwd()  # modules in it can be imported, as with python -m
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"no module {name!r} here ({here}) or installed") from None
        raise
    finally:
        if here in sys.path:
            sys.path.remove(here)


_sources: dict[Path, str] = {}
"""SHA-256 of the source files of modules as they were imported."""


def _unchanged(name: str) -> None:
    """Refuse code of which this process runs an earlier state, its own or of what it imports.

    A file that is named as such is executed anew each time, what it imports is not.
    """
    module = name.rpartition(":")[0]
    again = Path(module).resolve() if module.endswith(".py") else None
    for source in (one for one in code_files(name) if one != again):
        now = digest(source)
        if _sources.setdefault(source, now) != now:
            raise InputError(f"{source.name} has changed since it was imported: start again")


def shown(name: str) -> str:
    """Without the folders of a file: where it lies is no part of an identity."""
    module, _, attribute = name.rpartition(":")
    return f"{Path(module).name if module.endswith('.py') else module}:{attribute}"
