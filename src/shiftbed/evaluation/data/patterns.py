"""Patterns of file names: globs, and the ranges that WebDataset's shards are named by."""

import glob
import re
from pathlib import Path

from shiftbed.errors import InputError
from shiftbed.evaluation.data.raw_examples import shown

_MOST = 100_000
_BRACES = re.compile(r"\{([^{}]*)\}")


def expand(pattern: str) -> list[Path]:
    """The files a pattern stands for, at least one: in the order of a range, sorted for a glob."""
    found: list[Path] = []
    for name in braces(pattern):
        if Path(name).exists():
            found.append(Path(name))
        elif glob.has_magic(name):
            found += map(Path, sorted(glob.glob(name)))
        else:
            raise InputError(f"{shown(name)}: no such file")
    if not found:
        raise InputError(f"{shown(pattern)}: no file matches")
    if len(set(found)) < len(found):
        raise InputError(f"{shown(pattern)}: names a file twice")
    return found


def braces(pattern: str) -> list[str]:
    """The names that braces stand for.

    >>> braces("val-{08..11}.tar")
    ['val-08.tar', 'val-09.tar', 'val-10.tar', 'val-11.tar']
    >>> braces("{a,b}.tar")
    ['a.tar', 'b.tar']
    """
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    inside = match[1]
    span = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
    if span:
        low, high = int(span[1]), int(span[2])
        if not 0 <= high - low < _MOST:
            raise InputError(
                f"{shown(pattern)}: {{{inside}}} must go upwards, by less than {_MOST}"
            )
        choices = [f"{number:0{len(span[1])}d}" for number in range(low, high + 1)]
    elif "," in inside:
        choices = inside.split(",")
    else:
        raise InputError(f"{shown(pattern)}: expected {{0000..0003}} or {{a,b}}, not {{{inside}}}")
    head, tail = pattern[: match.start()], braces(pattern[match.end() :])
    if len(choices) * len(tail) > _MOST:
        raise InputError(f"{shown(pattern)}: stands for more than {_MOST} files")
    return [head + choice + rest for choice in choices for rest in tail]
