"""One value where a function takes several: a text would be taken apart into its letters."""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from types import NoneType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

__all__ = ["takes_one_for_several"]

P = ParamSpec("P")
R = TypeVar("R")
_SEVERAL = (Sequence, Iterable, Collection)


def takes_one_for_several(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with one value alone accepted wherever it takes a sequence of such values.

    Which parameters these are, and what one value is, is said by their annotations; what a
    parameter takes besides (``str | Sequence[str]``, ``int | Sequence[int]``) is left as it is.

    >>> def joined(names: Sequence[str], sizes: Sequence[int] | None = None) -> str:
    ...     return "+".join(names) + "".join(f"({size})" for size in sizes or ())
    >>> takes_one_for_several(joined)("val", sizes=3)
    'val(3)'
    """
    signature = inspect.signature(function)
    kinds = {
        name: kind
        for name, parameter in signature.parameters.items()
        if (kind := _kind_of_one(parameter.annotation)) is not None
    }
    if not kinds:
        return function

    @wraps(function)
    def edge(*args: P.args, **kwargs: P.kwargs) -> R:
        given = None
        with suppress(TypeError):
            given = signature.bind(*args, **kwargs)
        if given is None:
            return function(*args, **kwargs)  # which says what is wrong with them
        for name, value in given.arguments.items():
            if name in kinds and isinstance(value, kinds[name]):
                given.arguments[name] = (value,)
        return function(*given.args, **given.kwargs)

    return edge


def _kind_of_one(annotation: Any) -> tuple[type, ...] | None:
    """What one of several is, for a parameter that takes several and no single text."""
    members = [annotation] if get_origin(annotation) in _SEVERAL else list(get_args(annotation))
    several = [one for one in members if get_origin(one) in _SEVERAL]
    if not several or str in members:
        return None
    of = {kind for one in several for part in get_args(one) for kind in get_args(part) or (part,)}
    alone = {*members, Any, NoneType}  # what is meant as it is
    return (str, *(kind for kind in of - alone if isinstance(kind, type)))
