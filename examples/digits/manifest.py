"""manifest.json: hashes of everything that went into a study and came out of it.

Two runs of a study on one machine have the same manifest: no times are in it, and predictions are
hashed by content, model by model.
"""

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np

from shiftbed import __version__
from shiftbed.atomic import write_atomically
from shiftbed.store import PredictionStore

__all__ = ["write_manifest"]

PACKAGES = ("torch", "scikit-learn", "numpy", "scipy", "polars", "mlxtend", "matplotlib")


def write_manifest(folder: Path, recipe: Path) -> Path:
    """Write and return it."""
    inputs = [recipe, folder / "nets.py", *sorted((folder / "data").glob("*/*.npz"))]
    outputs = [folder / "findings.json", folder / "opening.txt"]
    outputs += sorted((folder / "tables").glob("*.json"))
    found = {
        "shiftbed": __version__,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "inputs": {str(path.relative_to(folder)): _hash(path.read_bytes()) for path in inputs},
        "outputs": {str(path.relative_to(folder)): _hash(path.read_bytes()) for path in outputs},
        "predictions": _predictions(folder / "store"),
    }
    path = folder / "manifest.json"
    with write_atomically(path) as file:
        file.write(json.dumps(found, indent=1, ensure_ascii=False).encode())
    return path


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
