"""The files beside a model's own that its answers depend on: code, options, external data.

Predictions are kept under a model's identity, so everything that changes its answers has to be part
of it. A line's own file is hashed where the line is read; this finds the others:

- of ``python:MODULE:NAME`` (also behind ``arch=``) the source, and every module beside it that it
  imports, directly or not;
- the file that a key names (``weights=``, ``classes=``);
- of an ``.onnx`` file its external data;
- of ``run:FOLDER`` the weights in it and what they were trained with.

Installed packages are not followed: their versions are in the cell's record.
"""

import ast
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from urllib.parse import parse_qsl

from shiftbed.evaluation.models.checkpoints import digest
from shiftbed.places import local

_WEIGHTS = (".pt", ".pth", ".safetensors", ".skops", ".onnx")


def dependencies(source: str) -> dict[str, str]:
    """SHA-256 by name of the files that a model's line depends on, besides its own.

    >>> dependencies("timm:resnet18")
    {}
    """
    prefix, _, rest = source.partition(":")
    name, _, query = rest.partition("?")
    found: list[Path] = []
    if prefix == "python":
        found += code_files(name)
    if prefix == "onnx" or name.endswith(".onnx"):
        found += external_data(local(name))
    if prefix == "run":
        found += [
            p for p in sorted(local(name).glob("*")) if p.suffix in _WEIGHTS or p.stem == "job"
        ]
    for _, value in parse_qsl(query):
        if value.startswith("python:"):
            found += code_files(value.removeprefix("python:"))
        elif local(value).is_file():
            found.append(local(value))
    return {_label(path): digest(path) for path in dict.fromkeys(found) if path.is_file()}


def _label(path: Path) -> str:
    """Its folder's and its own name: where they lie is no part of an identity."""
    return f"{path.resolve().parent.name}/{path.name}" if path.name == "__init__.py" else path.name


def code_files(name: str) -> list[Path]:
    """The source of ``MODULE:NAME`` and of the modules beside it that it imports, in order.

    Nothing is imported for it. Empty where the module is an installed one.
    """
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        start = local(module)
        root = start.parent
        files = [start] if start.is_file() else []
    else:
        root = Path()
        files = list(_beside(root, module))
    seen = dict.fromkeys(path.resolve() for path in files)
    todo = list(seen)
    while todo:
        path = todo.pop()
        for imported in _imports(path, root.resolve(), digest(path)):
            for file in (*_beside(root, imported), *_beside(path.parent, imported)):
                if file.resolve() not in seen:
                    seen[file.resolve()] = None
                    todo.append(file.resolve())
    return sorted(seen)


def source_of(module: str) -> Path | None:
    """The source file of a module, or of a path that ends in ``.py``; nothing is imported for it.

    None where there is none that could be read: a module that is built in, or not there.
    """
    if module.endswith(".py"):
        found = module
    elif module in sys.modules:
        found = getattr(sys.modules[module], "__file__", None) or ""
    else:
        where, found = [os.getcwd(), *sys.path], ""
        for part in module.split("."):
            spec = PathFinder.find_spec(part, where)
            if spec is None:
                return None
            where, found = list(spec.submodule_search_locations or ()), spec.origin or ""
    path = Path(found)
    return path if path.suffix == ".py" and path.is_file() else None


def _beside(root: Path, module: str) -> Iterator[Path]:
    """The files of a dotted module below a folder: its packages' and its own."""
    at = root
    for part in module.split("."):
        package = at / part / "__init__.py"
        if package.is_file():
            yield package
        if (at / f"{part}.py").is_file():
            yield at / f"{part}.py"
        at = at / part


@lru_cache(maxsize=512)
def _imports(path: Path, root: Path, content: str) -> tuple[str, ...]:
    """Dotted names of what a file with that content imports; read once, asked for every cell."""
    return tuple(_imported(path, root))


def _imported(path: Path, root: Path) -> Iterator[str]:
    """The same; ``from . import x`` as below its own folder."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1]
                inside = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
                base = ".".join([*inside, *([base] if base else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def external_data(path: Path) -> list[Path]:
    """The files that an ONNX graph keeps its tensors in, besides its own."""
    if not path.is_file():
        return []
    beside = [p for p in path.parent.glob(f"{path.name}?*") if p.is_file()]
    try:
        import onnx
        from onnx.external_data_helper import uses_external_data

        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception:  # no onnx here, or no graph: opening it will say so
        return sorted(beside)
    named = {
        entry.value
        for tensor in graph.initializer
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return sorted({*beside, *(path.parent / name for name in named)})
