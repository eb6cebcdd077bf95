"""Prefixes, each with the module that reads it; nothing is imported before it is asked for."""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models.base import Model
from shiftbed.evaluation.models.checkpoints import existing
from shiftbed.evaluation.models.spec import Request, Spec
from shiftbed.evaluation.models.torch_model import PRECISIONS

_HERE = "shiftbed.evaluation.models."
PREFIXES: dict[str, str] = {
    "timm": _HERE + "from_timm",
    "torchvision": _HERE + "from_torchvision",
    "open_clip": _HERE + "from_open_clip",
    "hf": _HERE + "from_hf",
    "onnx": _HERE + "from_onnx",
    "torch": _HERE + "from_torch",
    "sklearn": _HERE + "from_sklearn",
    "python": _HERE + "from_python",
    "nets": "shiftbed.training.networks",
    "run": "shiftbed.training.runs",
}
"""Prefix → module with ``load(request) -> Model``; another package may add its own."""

_PACKAGES = {
    "torch": "shiftbed[evaluate]",
    "torchvision": "shiftbed[evaluate]",
    "timm": "shiftbed[evaluate]",
    "open_clip": "shiftbed[clip]",
    "transformers": "shiftbed[hf]",
    "safetensors": "shiftbed[evaluate]",
    "huggingface_hub": "shiftbed[evaluate]",
}
"""What to install where a family's library is missing."""
Names = int | Sequence[str] | str | PathLike[str] | None


def resolve(
    spec: str,
    *,
    device: str = "cpu",
    precision: str = "float32",
    preprocessing: Mapping[str, Any] | None = None,
    weights: str | PathLike[str] | None = None,
    classes: Names = None,
    templates: Sequence[str] | str | PathLike[str] | None = None,
    trusted: Sequence[str] = (),
) -> Model:
    """The model that a line of text names, ready to run.

    ``preprocessing`` changes fields of the model's own; ``weights`` is a local file instead of the
    hub's; ``classes`` is their number, or their names (a list, or a file with one per line or a
    JSON list), which zero-shot models need; ``templates`` are their prompts, given likewise;
    ``trusted`` are types that an sklearn file may hold beyond scikit-learn's own.

    >>> resolve("tim:resnet18")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: unknown kind of model 'tim'; did you mean 'timm'?
    """
    parsed = Spec.parse(spec)
    if parsed.prefix not in PREFIXES:
        raise unknown("kind of model", parsed.prefix, PREFIXES)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    file = weights if weights is not None else parsed.query.get("weights")
    given = classes if classes is not None else parsed.query.get("classes")
    prompts = templates if templates is not None else parsed.query.get("templates")
    names = () if given is None or isinstance(given, int) else _lines(given, "classes")
    request = Request(
        spec=parsed,
        device=device,
        precision=precision,
        preprocessing=dict(preprocessing or {}),
        weights=None if file is None else existing(file, f"weights of {spec}"),
        classes=given if isinstance(given, int) else len(names) or None,
        class_names=names,
        templates=() if prompts is None else _lines(prompts, "templates"),
        trusted=tuple(trusted),
    )
    model = _load(request)
    request.expect(model.classes)
    return model


def _load(request: Request) -> Model:
    try:
        model: Model = import_module(PREFIXES[request.spec.prefix]).load(request)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise InputError(
            f"{request.spec.text} needs {package}: pip install '{_PACKAGES[package]}'"
        ) from None
    return model


def _lines(given: Sequence[str] | str | PathLike[str], what: str) -> tuple[str, ...]:
    """Names or prompts: a list, or a file with one per line or a JSON list."""
    if isinstance(given, str | PathLike):
        path = existing(given, what)
        values = _read_lines(path, what)
    else:
        path, values = None, list(given)
    if not values or not all(isinstance(v, str) and v.strip() for v in values):
        where = f"{path}: " if path else ""
        raise InputError(f"{where}{what} must be one or more texts, none of them empty")
    return tuple(values)


def _read_lines(path: Path, what: str) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix != ".json":
            return text.splitlines()
        found = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: cannot be read as {what}: {error}") from None
    if not isinstance(found, list):
        raise InputError(f"{path}: {what} must be a JSON list of texts")
    return found
