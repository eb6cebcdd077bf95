"""What a JSON value must look like: types, lists and keys, said in Python's own words.

A shape is a type, a tuple of shapes of which one must fit, ``[shape]`` for a list, ``{key: shape}``
for an object (a key that ends in ``?`` may be missing, ``"*"`` is any other) or a function.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError

Shape = Any

_BIG = 2**63


def whole(value: Any) -> bool:
    """A whole number that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -_BIG <= value < _BIG


def count(value: Any) -> bool:
    """A whole number of things, below 2³¹."""
    return whole(value) and 0 <= value < 2**31


def real(value: Any) -> bool:
    """A finite number."""
    return whole(value) or (isinstance(value, float) and math.isfinite(value))


def text(value: Any) -> bool:
    """A text that can be written as UTF-8, not empty."""
    if not isinstance(value, str) or not value:
        return False
    return _encodable(value)


def any_text(value: Any) -> bool:
    """The same, or an empty one."""
    return isinstance(value, str) and _encodable(value)


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def plain(value: Any) -> bool:
    """Any JSON whose numbers fit and whose texts can be written."""
    if isinstance(value, dict):
        return all(any_text(key) and plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    if isinstance(value, str):
        return any_text(value)
    return value is None or isinstance(value, bool | float) or whole(value)


def misfit(value: Any, shape: Shape, at: str = "") -> str | None:
    """Where a value is not of a shape, None if it is.

    >>> misfit({"n": 3, "names": ["a", 1]}, {"n": count, "names": [text]})
    'names[1]'
    >>> misfit({}, {"n": count, "why?": text})
    'n'
    """
    if not isinstance(shape, tuple | list | dict):
        return None if _fits(value, shape) else at or "it"
    if isinstance(shape, tuple):
        found = [misfit(value, one, at) for one in shape]
        return None if None in found else found[-1]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return at or "it"
        inner = (misfit(one, shape[0], f"{at}[{i}]") for i, one in enumerate(value))
        return next((one for one in inner if one is not None), None)
    return _misfit_keys(value, shape, at)


def fitting(value: Any, shape: Shape, path: str | Path) -> Any:
    """The value that a file holds, refused if it is not of the shape."""
    where = misfit(value, shape)
    if where is not None:
        raise InputError(f"{path}: damaged: {where!r} is missing or not what it should be")
    return value


def _misfit_keys(value: Any, shape: dict[str, Shape], at: str) -> str | None:
    if not isinstance(value, dict):
        return at or "it"
    head = f"{at}." if at else ""
    for key, inner in shape.items():
        name = key[:-1] if key[-1] == "?" else key
        if name not in value:
            if key == name and name != "*":
                return head + name
            continue
        found = misfit(value[name], inner, head + name)
        if found is not None:
            return found
    if "*" in shape:
        known = {key.removesuffix("?") for key in shape}
        for key, one in value.items():
            found = None if key in known else misfit(one, shape["*"], head + str(key)[:60])
            if found is not None:
                return found
    return None


def _fits(value: Any, shape: type | Callable[[Any], bool] | None) -> bool:
    if shape is None:
        return value is None
    if isinstance(shape, type):
        return isinstance(value, shape) and not (isinstance(value, bool) and shape is int)
    return shape(value)
