"""Do the figures in an example's README still follow from its inputs? Each names their hash.

    python -m examples.inputs [EXAMPLE]…            # whose figures no longer follow
    python -m examples.inputs --pin EXAMPLE…        # after running it again and writing its figures

Inputs are the example's recipes and Python files, as what they say: comments, docstrings and layout
do not count. A README with figures has a line ``Inputs: `0123456789ab` ``.
"""

import argparse
import ast
import hashlib
import json
import re
import tomllib
from pathlib import Path

__all__ = ["inputs_hash", "main", "pinned"]

HERE = Path(__file__).parent
_LINE = re.compile(r"^Inputs: `([0-9a-f]{12})`", re.MULTILINE)


def inputs_hash(example: str) -> str:
    """Twelve digits of the SHA-256 of what an example's files say."""
    found = {}
    for file in sorted((HERE / example).rglob("*")):
        if file.suffix == ".py":
            found[file.name] = _said(file.read_text(encoding="utf-8"))
        elif file.suffix == ".toml":
            found[file.name] = tomllib.loads(file.read_text(encoding="utf-8"))
    if not found:
        raise FileNotFoundError(f"examples/{example} has no recipe and no Python file")
    text = json.dumps(found, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _said(text: str) -> str:
    """A module without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def pinned() -> dict[str, str]:
    """Example → the hash that its README names."""
    found = {}
    for readme in sorted(HERE.glob("*/README.md")):
        line = _LINE.search(readme.read_text(encoding="utf-8"))
        if line:
            found[readme.parent.name] = line[1]
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.inputs", description=__doc__)
    parser.add_argument("example", nargs="*")
    parser.add_argument("--pin", action="store_true", help="write the present hash")
    given = parser.parse_args(arguments)
    if given.pin:
        for name in given.example:
            readme = HERE / name / "README.md"
            text = readme.read_text(encoding="utf-8")
            readme.write_text(_LINE.sub(f"Inputs: `{inputs_hash(name)}`", text), encoding="utf-8")
        return 0
    stale = [name for name, was in pinned().items() if was != inputs_hash(name)]
    stale = [name for name in stale if not given.example or name in given.example]
    for name in stale:
        print(f"examples/{name}: its figures are of other inputs than it has now")
    return int(bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
