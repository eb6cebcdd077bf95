"""Attack sizes as text: ``0.5/255`` and ``0.1`` in, one spelling out."""

import math
import re

from shiftbed.errors import InputError

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SIZE = re.compile(rf"({_NUMBER})(?:/({_NUMBER}))?")


def read_size(text: str) -> float:
    """A decimal number or a quotient of two.

    >>> read_size("2/255") == 2 / 255, read_size("1e-3")
    (True, 0.001)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"size {text!r} of an attack must be a number such as 0.1 or 0.5/255")
    over = float(found[2] or 1)
    value = float(found[1]) / over if over else math.inf
    if not 0 < value < math.inf:
        raise InputError(f"size {text!r} of an attack must be above 0 and finite")
    return value


def size_text(value: float) -> str:
    """The one spelling of a size: a short decimal, else a short multiple of 1/255, else all digits.

    >>> size_text(0.10), size_text(0.5 / 255), size_text(2 / 255), size_text(1 / 7)
    ('0.1', '0.5/255', '2/255', '0.14285714285714285')
    >>> size_text(8 / 255) == size_text(read_size("0.031372549019607843"))
    True
    """
    short = f"{value:.4g}"
    if math.isclose(float(short), value, rel_tol=1e-12):
        return short
    eights = f"{value * 255:.6g}"
    if math.isclose(float(eights) / 255, value, rel_tol=1e-12):
        return f"{eights}/255"
    return repr(float(value))
