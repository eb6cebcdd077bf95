"""Code blocks of Markdown pages: found, run in order, and compared with the output shown.

    python -m tests.blocks docs/howto/place.md …    put what is printed now into the pages

- ``python``: run in one namespace per page; an ``output`` block right below is what it printed.
- ``console``: lines with ``$ `` are commands, the lines below each what it printed.
- any block with ``title="FILE"``: written to that file first, not run.
- ``text``, or no language: no code.

``…`` in shown output stands for anything within its line; alone on a line, for any lines.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Block", "Shown", "blocks", "fits", "run_command", "run_page"]

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```[ \t]*$", re.S | re.M)
TITLE = re.compile(r'\btitle="([^"]+)"')
COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.M)
NO_CODE = ("", "text")
WIDTH = 100
"""Columns of the terminal that the pages show."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    kind: str
    title: str
    code: str
    start: int
    """Where its code starts in the page's text."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a page shows as printed, and what was printed."""

    what: str
    shown: str
    printed: str
    code: int
    """Exit code."""
    start: int
    """Where the shown output starts in the page's text."""


def blocks(page: Path) -> tuple[Block, ...]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return tuple(
        Block(
            kind=found[1],
            title=title[1] if (title := TITLE.search(found[2])) else "",
            code=found[3],
            start=found.start(3),
        )
        for found in FENCE.finditer(text)
    )


def run_page(page: Path, folder: Path) -> list[Shown]:
    """Run a page's blocks in ``folder``; stops after a command that failed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    done: list[Shown] = []
    before = Block(kind="", title="", code="", start=0)
    printed = ""
    for block in blocks(page):
        if before.kind == "python" and not before.title:
            given = block if block.kind == "output" else Block(kind="", title="", code="", start=0)
            done.append(_shown(before.code, given.code, printed, 0, given.start))
        if block.title:
            _write(folder, block)
        elif block.kind == "python":
            printed = _run_python(block.code, folder, namespace, page)
        elif block.kind == "console":
            done += _run_console(block, folder)
        elif block.kind == "output":
            assert before.kind == "python", f"{page}: output below no python block:\n{block.code}"
        else:
            assert block.kind in NO_CODE, f"{page}: what is a {block.kind} block?\n{block.code}"
        before = block
        if done and done[-1].code:
            return done
    if before.kind == "python" and not before.title:
        done.append(_shown(before.code, "", printed, 0, 0))
    return done


def fits(shown: str, printed: str) -> bool:
    """Whether what was printed is what is shown.

    >>> fits("a … b\\n…\\nc", "a 1 b\\n2\\n3\\nc\\n"), fits("a", "b")
    (True, False)
    """
    parts = []
    for line in _tidy(shown).splitlines():
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*?".join(re.escape(p) for p in line.split("…")) + r"\n")
    return re.fullmatch("".join(parts), _tidy(printed)) is not None


def run_command(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A shell's command, in a terminal of fixed width; errors are printed with the rest."""
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": str(WIDTH),
            "LINES": "50",
            "FORCE_COLOR": "1",  # a terminal …
            "TERM": "dumb",  # … without colours
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(  # for examples, as in a checkout
                [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )


def _tidy(text: str) -> str:
    """Without spaces at ends of lines and empty lines at both ends."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n") + "\n" if any(lines) else ""


def _shown(what: str, shown: str, printed: str, code: int, start: int) -> Shown:
    return Shown(what=what, shown=shown, printed=printed, code=code, start=start)


def _write(folder: Path, block: Block) -> None:
    path = folder / block.title
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code, encoding="utf-8")


def _run_python(code: str, folder: Path, namespace: dict[str, Any], page: Path) -> str:
    out = io.StringIO()
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(out):
            exec(compile(code, str(page), "exec"), namespace)
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:  # another page may have a file of that name
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
    return out.getvalue()


def _run_console(block: Block, folder: Path) -> list[Shown]:
    """Commands go on over lines that end with a backslash."""
    assert block.code.startswith("$ "), f"a console block must start with $:\n{block.code}"
    done = []
    for found in COMMAND.finditer(block.code):
        ran = run_command(found[1], folder)
        start = block.start + found.start(2)
        done.append(_shown(found[1], found[2], ran.stdout, ran.returncode, start))
        if ran.returncode:
            break
    return done


def refresh(page: Path) -> None:
    """Put what is printed now where something else is shown."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_page(page, Path(folder))
    text = page.read_text(encoding="utf-8")
    for one in reversed(done):
        if one.code:
            sys.exit(f"{page}: exit code {one.code}: {one.what}\n{one.printed}")
        if not fits(one.shown, one.printed):
            if not one.start:
                sys.exit(f"{page}: nothing is shown below\n{one.what}\n{one.printed}")
            print(f"{page}: {one.what.splitlines()[0]}")
            end = one.start + len(one.shown)
            text = text[: one.start] + _tidy(one.printed) + text[end:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refresh(Path(name))
