"""The files beside a model's own that its answers depend on: code, options, external data.

Predictions are kept under a model's identity, so everything that changes its answers has to be part
of it. A line's own file is hashed where the line is read; this finds the others:

- of ``python:MODULE:NAME`` (also behind ``arch=``) the source, every module beside it that it
  imports, directly or not, and every file that a text in them names (``"weights.npz"``), from the
  working directory or from beside the source: that is how code declares what it loads;
- the file that a key names (``weights=``, ``classes=``);
- of a model file its side-car, of an ``.onnx`` file its external data;
- of ``hf:FOLDER`` the files in it, of ``run:FOLDER`` the weights and what they were trained with.

Installed packages are not followed: their versions are in the cell's record. ``watched`` says what
code opened besides: then what the model is cannot be known from its line.
"""

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from threading import enumerate as enumerate_threads
from threading import get_ident
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import digest
from shiftbed.evaluation.models.spec import sidecar_of
from shiftbed.places import cache_folder, local, requesting
from shiftbed.reading.files import read_json

_WEIGHTS = (".pt", ".pth", ".safetensors", ".skops", ".onnx")


def dependencies(source: str) -> dict[str, str]:
    """SHA-256 by name of the files that a model's line depends on, besides its own.

    >>> dependencies("timm:resnet18")
    {}
    """
    found: dict[str, str] = {}
    for path in _files(source):
        label = _label(path)
        while label in found and found[label] != digest(path):
            label += "'"  # another of that name
        found[label] = digest(path)
    return found


def _files(source: str) -> list[Path]:
    prefix, _, rest = source.partition(":")
    name, _, query = rest.partition("?")
    found: list[Path] = []
    if prefix == "python":
        found += _code_and_loaded(name)
    if prefix in ("onnx", "torch", "sklearn"):
        found.append(sidecar_of(local(name)))
    if prefix == "onnx" or name.endswith(".onnx"):
        found += external_data(local(name))
    if prefix == "hf" and Path(name).expanduser().is_dir():
        found += sorted(Path(name).expanduser().glob("[!.]*"))
    if prefix == "run":
        found += [
            p for p in sorted(local(name).glob("*")) if p.suffix in _WEIGHTS or p.stem == "job"
        ]
        with suppress(InputError, AttributeError):  # opening it will say so
            network = str(read_json(local(name) / "job.json").get("model"))
            found += _code_and_loaded(network[7:]) if network.startswith("python:") else []
    for _, value in parse_qsl(query):
        if value.startswith("python:"):
            found += _code_and_loaded(value.removeprefix("python:"))
        elif local(value).is_file():
            found.append(local(value))
    return [path for path in dict.fromkeys(found) if path.is_file()]


def _code_and_loaded(name: str) -> list[Path]:
    code = code_files(name)
    return [*code, *(file for path in code for file in _named(path, digest(path)))]


def _label(path: Path) -> str:
    """Its folder's and its own name: where they lie is no part of an identity."""
    return f"{path.resolve().parent.name}/{path.name}" if path.name == "__init__.py" else path.name


def _named(path: Path, content: str) -> list[Path]:
    """The files that texts in a source file name, from here or from beside it."""
    here = (Path(), path.parent)
    found = [root / text for text in _texts(path, content) for root in here]
    return sorted({one.resolve() for one in found if one.is_file()})


@lru_cache(maxsize=512)
def _texts(path: Path, content: str) -> tuple[str, ...]:
    """Texts in a source file of that content that could be the name of a file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    texts = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant)}
    return tuple(
        text
        for text in sorted(one for one in texts if isinstance(one, str))
        if text.strip(" .") and len(text) < 256 and text.isprintable()
    )


class _Watch(NamedTuple):
    opened: set[str]
    others: frozenset[int | None]
    """Threads that were at work before: what they open (a store by URL) is not the code's doing."""


_watching: list[_Watch] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's audit hook: what is opened for reading, and what is asked of a network."""
    if not _watching or get_ident() in _watching[-1].others:
        return
    opened = _watching[-1].opened
    if event == "socket.connect":
        if not requesting():  # not we, to fetch the code itself
            opened.add("\0network")
    elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        flags = arguments[2] if isinstance(arguments[2], int) else 0
        if flags & (os.O_WRONLY | os.O_RDWR) == 0:
            opened.add(os.fsdecode(os.path.abspath(arguments[0])))


_add_hook = lru_cache(maxsize=1)(lambda: sys.addaudithook(_hear))


@contextmanager
def watched(source: str) -> Iterator[list[str]]:
    """Names of what code opens meanwhile that the line's identity does not cover, at the end.

    Installed packages, the system's own files and our caches do not count. Files that a library
    opens without Python's knowledge are not seen.
    """
    found: list[str] = []
    _add_hook()
    others = frozenset(one.ident for one in enumerate_threads()) - {get_ident()}
    _watching.append(_Watch(set(), others))
    try:
        yield found
    finally:
        opened = _watching.pop().opened
        prefix, _, rest = source.partition(":")
        own = [] if prefix == "python" else [local(rest.partition("?")[0])]
        known = {str(path.resolve()) for path in (*own, *_files(source))}
        for one in sorted(opened):
            if one == "\0network":
                found.append("something from a network")
                continue
            path = Path(one).resolve()
            if path.is_file() and not _usual(path) and _source(path) not in known:
                found.append(path.name)


def _source(path: Path) -> str:
    """A compiled file's source, any other file itself."""
    if path.suffix != ".pyc":
        return str(path)
    with suppress(ValueError, NotImplementedError):
        return importlib.util.source_from_cache(str(path))
    return str(path)


@lru_cache(maxsize=1)
def _places() -> tuple[Path, ...]:
    own = [Path(one) for one in (*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix)]
    own.append(Path(__file__).parents[2])
    home = [Path.home() / one for one in (".config", ".cache/matplotlib", ".matplotlib", ".keras")]
    system = [Path(f"/{one}") for one in ("proc", "sys", "dev", "etc", "usr", "lib")]
    return tuple(one.resolve() for one in (*own, *home, *system))


def _usual(path: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    places = (*_places(), (cache_folder() / "fetched").resolve())
    return bool(installed) or any(path.is_relative_to(one) for one in places)


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
        root = _root(module)
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


def _root(module: str) -> Path:
    """The folder that a module is imported from: this one, or another that is no installation."""
    found = None if any(_beside(Path(), module)) else source_of(module)
    if found is None or _usual(found.resolve()):
        return Path()
    depth = module.count(".") + (found.name == "__init__.py")
    return found.resolve().parents[depth]


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
