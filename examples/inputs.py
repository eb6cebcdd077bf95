"""Do the figures in an example's README still follow from its inputs? Each names their hash.

    python -m examples.inputs [EXAMPLE]…            # whose figures no longer follow
    python -m examples.inputs --pin EXAMPLE…        # after running it again and writing its figures

Inputs are the example's recipes and Python files and the modules of examples and benchmarks that
these import, as what they say: comments, docstrings and layout do not count. The README of every
example has a line ``Inputs: `0123456789ab` ``.
"""

import argparse
import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["examples", "inputs_hash", "main", "pinned"]

HERE = Path(__file__).parent
_LINE = re.compile(r"^Inputs: `([0-9a-f]{12})`", re.MULTILINE)
_OURS = ("benchmarks", "examples")


def examples() -> list[str]:
    """All that can be run: folders with a ``__main__.py``."""
    return sorted(file.parent.name for file in HERE.glob("*/__main__.py"))


def inputs_hash(example: str) -> str:
    """Twelve digits of the SHA-256 of what an example's files say, and those they import."""
    own = sorted(one for one in (HERE / example).rglob("*") if one.suffix in (".py", ".toml"))
    if not own:
        raise FileNotFoundError(f"examples/{example} has no recipe and no Python file")
    found: dict[str, object] = {}
    left = list(own)
    while left:
        file = left.pop()
        name = file.relative_to(HERE.parent).as_posix()
        if name in found:
            continue
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".toml":
            found[name] = _table(text)
        else:
            tree = ast.parse(text)
            found[name] = _said(tree)
            left += _imported(tree)
    text = json.dumps(found, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _table(text: str) -> object:
    """What a recipe says; the text itself of one whose values an example fills in."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return text


def _said(tree: ast.Module) -> str:
    """A module without comments, docstrings and layout."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def _imported(tree: ast.Module) -> Iterator[Path]:
    """Files of examples and benchmarks that a module imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            path = HERE.parent.joinpath(*name.split("."))
            if name.partition(".")[0] in _OURS and path.with_suffix(".py").is_file():
                yield path.with_suffix(".py")


def pinned() -> dict[str, str]:
    """Example → the hash that its README names, "" where it names none."""
    found = {}
    for name in examples():
        readme = HERE / name / "README.md"
        line = _LINE.search(readme.read_text(encoding="utf-8")) if readme.is_file() else None
        found[name] = line[1] if line else ""
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.inputs", description=__doc__)
    parser.add_argument("example", nargs="*")
    parser.add_argument("--pin", action="store_true", help="write the present hash")
    given = parser.parse_args(arguments)
    if given.pin:
        for name in given.example:
            readme = HERE / name / "README.md"
            text, line = readme.read_text(encoding="utf-8"), f"Inputs: `{inputs_hash(name)}`"
            changed = (
                _LINE.sub(line, text) if _LINE.search(text) else f"{text.rstrip()}\n\n{line}\n"
            )
            readme.write_text(changed, encoding="utf-8")
        return 0
    stale = [name for name, was in pinned().items() if was != inputs_hash(name)]
    stale = [name for name in stale if not given.example or name in given.example]
    for name in stale:
        print(f"examples/{name}: its figures are of other inputs than it has now")
    return int(bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
