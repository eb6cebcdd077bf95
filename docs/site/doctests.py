"""Docstrings as Markdown: examples and TOML become code blocks, lists get their empty line."""

import re
from itertools import pairwise
from typing import Any

import griffe

__all__ = ["Doctests", "markdown"]

TOML = re.compile(r"(\[\[?[\w.]+\]\]?|[\w.]+ = )")
ITEM = re.compile(r"(- |\d+\. )")


def markdown(text: str) -> str:
    """A docstring of ours as Markdown.

    >>> print(markdown("Add.\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_paragraph(part) for part in _merged(re.split(r"\n[ \t]*\n", text)))


def _merged(parts: list[str]) -> list[str]:
    """Paragraphs of TOML that follow each other are one."""
    found: list[str] = []
    for part in parts:
        if found and TOML.match(part) and TOML.match(found[-1]):
            found[-1] += "\n\n" + part
        else:
            found.append(part)
    return found


def _paragraph(text: str) -> str:
    if text.startswith(">>> "):
        return f"```pycon\n{text.rstrip()}\n```"
    if TOML.match(text):
        return f"```toml\n{text.rstrip()}\n```"
    lines = text.split("\n")
    found = lines[:1]
    for before, line in pairwise(lines):
        if ITEM.match(line) and not ITEM.match(before) and not before.startswith("  "):
            found.append("")
        found.append(line)
    return "\n".join(found).replace("][", "]\\[")  # two indices, no link


class Doctests(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
