"""shiftbed: is an image classifier robust to distribution shift, or merely accurate?

>>> import shiftbed as sb
>>> bed = sb.published("imagenet-testbed-2020")
>>> line = bed.fit("imagenet-v2")
>>> line.n, round(line.weights[0], 4), round(line.intercept, 4), round(line.r2, 4)
(78, 0.9217, -0.4947, 0.9965)

A function per command, under the command's name; it takes objects or what the command takes (one
alone where several may be given: ``shift="imagenet-v2"``) and
returns a result that knows its table (``print``), its frame, its JSON and its chart (``plot``).
Everything is loaded when it is first used: ``import shiftbed`` needs no deep-learning framework.
"""

import re
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.M)}
"""Where each public name lives: the stub is for type checkers and for this."""
__all__ = [*sorted(_MODULE)]  # noqa: PLE0604
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'shiftbed' has no attribute {name!r}")
    if name == "attacks":
        return import_module("shiftbed.evaluation.attacks")
    found = getattr(import_module(_MODULE[name]), name)
    if isinstance(found, FunctionType):
        found = import_module("shiftbed.one_or_several").takes_one_for_several(found)
        setattr(import_module(found.__module__), name, found)  # where pickle looks for it
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
