"""What a model is, in one line: so that predictions of another one are never taken for its own."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shiftbed.engine.spec import ModelSpec

FILES = ("onnx", "torch", "sklearn")


def identity(
    model: ModelSpec,
    options: Mapping[str, Any],
    perturbation: Mapping[str, Any] | None = None,
) -> str:
    """SHA-256 of the model's line, its options and the contents of its files.

    Folders do not matter; a changed file, preprocessing or precision does, and so does anything
    about the perturbation (its seed, its steps). What code a ``python:`` function runs is not
    looked at.
    """
    given = {k: v for k, v in model.options.items() if k not in ("weights", "trusted")}
    given.setdefault("preprocessing", options.get("preprocessing"))
    given["precision"] = options.get("precision", "float32")
    prefix, _, rest = model.spec.partition(":")
    name, _, query = rest.partition("?")
    contents = [_digest(name)] if prefix in FILES else [name]
    if "weights" in model.options:
        contents.append(_digest(str(model.options["weights"])))
    parts: list[Any] = [prefix, contents, query, given]
    if perturbation is not None:
        parts.append(dict(perturbation))
    text = json.dumps(parts, sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _digest(path: str) -> str:
    """Hash of a file's bytes; of its name where it cannot be read (opening it will say why)."""
    file = Path(path)
    if not file.is_file():
        return file.name
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
