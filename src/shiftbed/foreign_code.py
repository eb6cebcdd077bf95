"""Whose code runs: what the user names is run, what a file names only when that was asked for.

A text such as ``python:net.py:build()`` executes a file. Written on the command line, or given to a
function, it is the user's own wish. Read from somewhere else (the job.json of a run's folder, a
testbed.toml, a recipe.toml) it is somebody's who may be a stranger. So every such text travels with
its ``Origin``, also to worker processes, and whatever executes code asks that first. A file cannot
say anything about its own origin.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike

from shiftbed.errors import InputError


class CodeRefused(InputError):
    """A file names code to execute, and nobody has asked for that."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a text that may name code comes from, and whether code from there is executed.

    >>> MINE.check("python:net.py:build()")
    >>> MINE.inside("runs/1/job.json").check("python:net.py:build()")
    Traceback (most recent call last):
    ...
    shiftbed.foreign_code.CodeRefused: runs/1/job.json would execute python:net.py:build(): pass \
--allow-code (allow_code=True) if you trust it
    """

    file: str = ""
    """The file it was read from; empty for what the user wrote or passed."""
    allow_code: bool = False
    """Whether the user allowed code that files name."""

    def inside(self, file: str | PathLike[str]) -> "Origin":
        """Of texts in a file that was named from here."""
        return replace(self, file=str(file))

    def check(self, code: str) -> None:
        """Refuse to execute what somebody else wrote, unless that was allowed."""
        check_code([(self, code)])


MINE = Origin()
"""Of what the user wrote on the command line, or passed to a function."""
Named = tuple[Origin, str]
"""Code that something would execute, and where that is written."""


def check_code(named: Iterable[Named]) -> None:
    """Refuse, in one line, all code that nobody has asked for."""
    refused: dict[str, list[str]] = {}
    for origin, code in named:
        if origin.file and not origin.allow_code:
            refused.setdefault(origin.file, []).append(code)
    if refused:
        each = [f"{file} would execute {_listed(code)}" for file, code in refused.items()]
        more = f"; {len(each) - 3} more files likewise" if len(each) > 3 else ""
        raise CodeRefused(
            f"{'; '.join(each[:3])}{more}: pass --allow-code (allow_code=True) if you trust it"
        )


def _listed(code: Iterable[str]) -> str:
    every = list(dict.fromkeys(code))
    return ", ".join(every[:5]) + (f" and {len(every) - 5} more" if len(every) > 5 else "")
