"""Exported programs (``.pt2``) without trusting them.

``torch.export.load`` unpickles whatever an archive marks as pickled, falls back to full unpickling
for sample inputs, evaluates shape expressions and looks functions up by name. So the archive is
looked through first, with torch's own reader, and refused if it holds anything but a graph of
ATen operators, plain tensors and shape expressions.
"""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError

_RECORDS = re.compile(
    r"models/\w+\.json|data/weights/(weight_\d+|\w+_weights_config\.json)"
    r"|data/constants/(tensor_\d+|\w+_constants_config\.json)|data/sample_inputs/\w+\.pt"
    r"|extra/.*|archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment"
)
_TARGETS = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+\.\w+|torch\.sym_\w+|math\.\w+"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge"
    r"|and_|or_|not_)"
)
_EXPRESSION = re.compile(r"[\w\s+*/%<>=!&|~().,'\[\]-]*")
_FUNCTIONS = re.compile(r"([A-Za-z_]\w*)\s*\(")
_CALLED_AGAIN = re.compile(r"[)\]']\s*\(")
_KNOWN_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        Symbol Integer Float Rational Add Mul Pow Max Min Abs Eq Ne Lt Le Gt Ge And Or Not Where
        Mod PythonMod FloorDiv CleanDiv CeilDiv ModularIndexing PowByNatural FloatTrueDiv
        IntTrueDiv CeilToInt FloorToInt TruncToInt RoundToInt ToFloat Identity
        """,
    )
)
_TRAINING = {"aten.dropout.default": 2, "aten.batch_norm.default": 5}
"""Operators with a flag for training, and which argument it is."""
_KNOWN_GUARDS = frozenset(["size", "stride", "dim", "numel", "storage_offset"])


def load_program(file: Path) -> Any:
    """The exported program in a checked archive."""
    import torch

    check_archive(file)
    try:
        with _quiet():
            program = torch.export.load(file)
    except Exception as error:  # damaged graphs fail in many ways
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{file}: torch cannot load it: {reason}") from None
    for node in program.graph.nodes:
        at = _TRAINING.get(str(node.target))
        if at is not None and len(node.args) > at and node.args[at] is True:
            raise InputError(f"{file} was exported in training mode; call .eval() before exporting")
    return program


def check_archive(file: Path) -> None:
    """Raise unless an archive holds only a graph of ATen operators and plain tensors."""
    try:
        from torch.export.pt2_archive._package import PT2ArchiveReader
    except ImportError:
        raise InputError(f"{file}: exported programs need a newer torch") from None
    try:
        archive = PT2ArchiveReader(str(file))
        names = archive.get_file_names()
        if len(set(names)) != len(names):
            raise InputError(f"{file}: refused, it holds a record twice")
        for name in names:
            _check_record(file, name, archive)
    except InputError:
        raise
    except Exception as error:  # torch's reader raises RuntimeError, json ValueError, …
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{file}: not an exported program (torch.export.save): {reason}") from None


def _check_record(file: Path, name: str, archive: Any) -> None:
    if not _RECORDS.fullmatch(name):
        raise InputError(f"{file}: refused, {name} is no part of a graph with plain tensors")
    if name.endswith("_config.json"):
        for tensor, entry in json.loads(archive.read_string(name))["config"].items():
            if entry.get("use_pickle") or not re.fullmatch(
                r"(weight|tensor)_\d+", entry["path_name"]
            ):
                raise InputError(f"{file}: refused, {tensor} is pickled, not a plain tensor")
    elif name.startswith("data/sample_inputs/"):
        _check_tensors(file, archive.read_bytes(name))
    elif name.startswith("models/"):
        for key, value in _texts(json.loads(archive.read_string(name))):
            _check_text(file, key, value)


def _check_tensors(file: Path, data: bytes) -> None:
    import torch

    try:
        if data:
            torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:
        raise InputError(f"{file}: refused, its sample inputs are more than tensors") from None


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON document, with the key it lies under."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _texts(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value, key)
    elif isinstance(node, str):
        yield key, node


def _check_text(file: Path, key: str, text: str) -> None:
    if key in ("target", "as_operator") and not _TARGETS.fullmatch(text):
        # names of inputs and outputs are also targets; they are no dotted paths
        if re.fullmatch(r"\w+", text):
            return
        raise InputError(f"{file}: refused, it calls {text}, which is no ATen operator")
    known = {"expr_str": _KNOWN_FUNCTIONS, "guards_code": _KNOWN_GUARDS}.get(key)
    if known is not None:
        strange = "__" in text or not _EXPRESSION.fullmatch(text) or _CALLED_AGAIN.search(text)
        if strange or not set(_FUNCTIONS.findall(text)) <= known:
            raise InputError(f"{file}: refused, {text[:60]!r} is no shape expression")
    elif key in ("in_spec", "out_spec") and "__enum__" in text:
        raise InputError(f"{file}: refused, its arguments are more than tensors")


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs a traceback for every archive that it then fails on."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
