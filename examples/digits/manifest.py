"""manifest.json: hashes of everything that went into a study and came out of it.

Two runs of a study on one machine have the same manifest: no times are in it, and predictions are
hashed by content, model by model.
"""

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed import __version__
from shiftbed.atomic import write_atomically
from shiftbed.store import PredictionStore
from shiftbed.testbed import testbed_from_store

__all__ = ["is_current", "write_manifest"]

PACKAGES = ("torch", "scikit-learn", "numpy", "scipy", "polars", "mlxtend", "matplotlib")


def write_manifest(folder: Path) -> None:
    """Write manifest.json into a study's folder."""
    outputs = [folder / name for name in ("findings.json", "opening.txt")]
    outputs += sorted((folder / "tables").glob("*.json"))
    whole = _measured(folder) | {"outputs": _hashes(folder, outputs)}
    with write_atomically(folder / "manifest.json") as file:
        file.write(json.dumps(whole, indent=1, ensure_ascii=False).encode())


def is_current(folder: Path) -> bool:
    """Whether the manifest is that of what is in the folder now: nothing is left to analyse."""
    path = folder / "manifest.json"
    if not path.is_file() or not (folder / "report.html").is_file():
        return False
    known = json.loads(path.read_text(encoding="utf-8"))
    outputs = known.pop("outputs")
    if not all((folder / name).is_file() for name in outputs):
        return False
    return bool(
        known == _measured(folder) and outputs == _hashes(folder, [folder / n for n in outputs])
    )


def _measured(folder: Path) -> dict[str, Any]:
    """Everything that the analysis goes out from."""
    inputs = [folder / "recipe.toml", folder / "nets.py"]
    inputs += sorted((folder / "data").glob("*/*.npz"))
    bed = testbed_from_store(PredictionStore(folder / "store"))
    table = bed.scores().drop("low", "high").write_csv()
    return {
        "shiftbed": __version__,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "inputs": _hashes(folder, inputs),
        "predictions": _predictions(folder / "store"),
        "scores": _hash(table.encode()),
    }


def _hashes(folder: Path, files: list[Path]) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): _hash(path.read_bytes()) for path in files}


def _predictions(path: Path) -> dict[str, str]:
    """A hash per model over its predicted classes in all settings."""
    store = PredictionStore(path)
    found = {}
    for model in sorted(store.models()):
        whole = hashlib.sha256()
        for setting in sorted(store.settings()):
            best = store.best_classes([model], setting) if store.complete(model, setting) else None
            if best is not None:
                whole.update(setting.encode() + b"\0" + np.asarray(best, np.int32).tobytes())
        found[model] = whole.hexdigest()
    return found


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
