"""Which model it is, by content; and whether a store's answers are those of the same one."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from shiftbed.engine.perturbed_settings import difference
from shiftbed.engine.plan import CellPlan, ModelSpec
from shiftbed.evaluation.models import Model, TorchModel
from shiftbed.evaluation.models.checkpoints import digest
from shiftbed.evaluation.models.dependencies import dependencies
from shiftbed.evaluation.perturbations import Perturbing
from shiftbed.places import local, without_folders
from shiftbed.store import PredictionStore

FILES = ("onnx", "torch", "sklearn")


def identity(
    model: ModelSpec,
    options: Mapping[str, Any],
    perturb: Perturbing | None = None,
    *,
    whole: bool = True,
    folders: bool = False,
) -> str | None:
    """SHA-256 of what the model is, so that predictions of another are never taken for its own.

    Of an open model its content; else of its line, its options and the contents of all files that
    its answers depend on: weights, external data, the source of ``python:`` code and what that
    imports from beside it. Folders do not matter; a changed file, preprocessing or precision does,
    and so does anything about the perturbation (its seed, its steps). None where it cannot be known
    (a bare function). ``whole=False`` and ``folders=True`` are what earlier versions kept: without
    code and files that keys name, and with the folders of absolute paths.
    """
    if "identity" in model.details:
        return str(model.details["identity"])
    if isinstance(model.source, Model):
        if model.source.fingerprint is None:
            return None
        parts: list[Any] = ["object", model.source.fingerprint]
    else:
        given = {k: v for k, v in model.options.items() if k not in ("weights", "trusted")}
        given.setdefault("preprocessing", options.get("preprocessing"))
        given["precision"] = options.get("precision", "float32")
        prefix, _, rest = model.source.partition(":")
        name, _, query = rest.partition("?")
        contents = [_digest(name)] if prefix in FILES else [name]
        if "weights" in model.options:
            contents.append(_digest(str(model.options["weights"])))
        parts = [prefix, contents, query, given]
        if not folders:
            named = {k: _base(given[k]) for k in ("classes", "templates") if k in given}
            contents = contents if prefix in FILES else [_base(name), *contents[1:]]
            keys = [one.partition("=") for one in query.split("&")]
            query = "&".join(f"{key}{equals}{_base(value)}" for key, equals, value in keys)
            parts = [prefix, contents, query, given | named]
    others = depends_on(model) if whole else {}
    if others:
        parts.append({"files": others})
    if perturb is not None:
        parts.append(perturb.describe())
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def depends_on(model: ModelSpec) -> dict[str, str]:
    """SHA-256 by name of the files that a model depends on besides its own and its weights."""
    found = dependencies(model.source if isinstance(model.source, str) else model.source.spec or "")
    for key in ("classes", "templates"):
        given = model.options.get(key)
        if isinstance(given, str | Path) and (file := local(given)).is_file():
            found[f"{key}: {file.name}"] = digest(file)
    return found


def unknowable(model: ModelSpec) -> str | None:
    """Why it cannot be known what a model is before it is opened; None where it can.

    Weights are known by content, a line by the files behind it; code of this process is not.
    """
    source = model.source
    if "identity" in model.details or not isinstance(source, Model) or source.spec is not None:
        return None
    if source.fingerprint is None:
        return "it is a function of this process"
    if isinstance(source, TorchModel):
        for part in source.module.modules():
            if not _installed(type(part).__module__):
                return f"the code of its class {type(part).__name__} is of this process"
    return None


@lru_cache(maxsize=4096)
def _installed(module: str) -> bool:
    """Whether a module belongs to an installed package, whose version is in the record."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "shiftbed":
        return top != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _base(value: Any) -> Any:
    """Of a file or folder, or of code in one (``python:FILE.py:NAME``), its name without folders.

    >>> _base("python:nets/mine.py:Net"), _base("ViT-B-32/openai")
    ('python:mine.py:Net', 'ViT-B-32/openai')
    """
    if not isinstance(value, str | Path):
        return value
    code = re.fullmatch(r"(python:)?(.*/)?([^/]+\.py:.*)", str(value))
    if code is not None:
        return f"{code[1] or ''}{code[3]}"
    path = local(unquote(str(value)))
    return path.name if path.exists() else without_folders(str(value))


def _digest(path: str) -> str:
    """Hash of a file's bytes; of its name where it cannot be read (opening it will say why)."""
    file = local(path)
    return digest(file) if file.is_file() else file.name


def same_models(
    store: PredictionStore,
    cells: list[CellPlan],
    options: dict[str, Any],
    failed: dict[tuple[str, str], str],
    same: bool,
) -> list[CellPlan]:
    """The cells but those whose predictions are, or may be, of another model of the same name.

    Of these ``failed`` gets the reason.
    """
    models = {cell.model.name: cell.model for cell in cells}
    known = {name: identity(model, options) for name, model in models.items()}
    doubts = {name: unknowable(model) for name, model in models.items()}
    kept = []
    for cell in cells:
        record = None if cell.new else store.cell(*cell.key)
        if record is None or "backend" not in record:
            kept.append(cell)
            continue
        perturb, model = cell.setting.perturb, cell.model
        details = None if perturb is None else perturb.describe()
        own = known[model.name] if perturb is None else identity(model, options, perturb)
        if record.get("identity") not in (None, own):
            whole = not _earlier(record, model)
            own = identity(model, options, perturb, whole=whole, folders=True)
        doubt = doubts[model.name] or record.get("identity_unknown")
        if record.get("identity") not in (None, own):
            if record.get("perturbation") != details:
                failed[cell.key] = (
                    f"the store has predictions in a setting called {cell.key[1]!r} with another "
                    f"seed or other options of the perturbation ({difference(record, details)}); "
                    "give this one another id"
                )
                continue
            changed = _changed(record.get("depends_on") or {}, depends_on(model))
            failed[cell.key] = (
                f"the store has predictions of another model called {model.name!r} ({changed}); "
                "give this one another name, or compute it again with --fresh (fresh=True)"
            )
        elif doubt and not same and store.parts(*cell.key):
            failed[cell.key] = (
                f"the store has predictions, and it cannot be known if they are this model's: "
                f"{doubt}; --same (same=True) takes them, --fresh (fresh=True) computes them again"
            )
        else:
            kept.append(cell)
    return kept


def _earlier(record: dict[str, Any], model: ModelSpec) -> bool:
    """Whether a record's identity is as earlier versions made it: without code, or of objects."""
    return "depends_on" not in record or (model.spec is None and not record["depends_on"])


def _changed(then: dict[str, str], now: dict[str, str]) -> str:
    """What differs of the files that a model depends on, in a few words."""
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if not names:
        return "other weights, options or preprocessing"
    return f"changed: {', '.join(names[:3])}" + (f" and {len(names) - 3} more" * (len(names) > 3))
