"""What a record says of the program that made it: versions, commit, hardware."""

import os
import platform
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def provenance() -> dict[str, Any]:
    """Versions, commit of the working directory, and hardware."""
    return {"versions": dict(_versions()), "commit": commit(Path.cwd()), "hardware": _hardware()}


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    return tuple(_found_versions())


def _found_versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    names = ("shiftbed", "numpy", "torch", "timm", "open_clip_torch", "onnxruntime", "pillow")
    for name in (*names, "scikit-learn"):
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def commit(folder: Path) -> str | None:
    """The commit that is checked out in a folder or one above it, None outside of a checkout.

    Read from ``.git`` itself: a program called for it could fail, wait for a busy machine, or
    refuse a checkout of another owner, and the record would say that there is none.
    """
    for place in (folder, *folder.parents):
        try:
            own = _git_folder(place / ".git")
            return None if own is None else _head(own)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
    return None


def _git_folder(entry: Path) -> Path | None:
    """``.git`` itself, or where its text says that it is (worktrees, submodules)."""
    if entry.is_dir():
        return entry if (entry / "HEAD").exists() else None
    told = re.fullmatch(r"gitdir: (.+)\n?", entry.read_text("utf-8"))
    return None if told is None else entry.parent / told[1]


def _head(git: Path) -> str | None:
    """The commit of HEAD: its own, of a loose reference, or of a packed one."""
    head = (git / "HEAD").read_text("utf-8").strip()
    if not head.startswith("ref: "):
        return _hash(head)
    name, shared = head.removeprefix("ref: "), git
    if (git / "commondir").exists():
        shared = git / (git / "commondir").read_text("utf-8").strip()
    for place in (git, shared):
        if (place / name).is_file():
            return _hash((place / name).read_text("utf-8"))
    packed = shared / "packed-refs"
    for line in packed.read_text("utf-8").splitlines() if packed.exists() else ():
        value, _, own = line.partition(" ")
        if own == name:
            return _hash(value)
    return None


def _hash(text: str) -> str | None:
    return text.strip() if re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", text.strip()) else None


def _hardware() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "processors": os.cpu_count(),
    }
