"""Trees of corrupted test sets, NAME/SEVERITY/CLASS/FILE, as ``shiftbed corrupt`` writes them.

ImageNet-C has the same layout, and may have one more level above (``noise/gaussian_noise/1``).

    DST/manifest.json                        what it was made of, and how
    DST/manifest/part-A-B.json               files made of source rows A … B−1, with their SHA-256
    DST/gaussian_noise/3/CLASS/FILE
"""

import json
import os
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError

MANIFEST = "manifest"
_LARGEST = 2**26
_SEVERITIES = ("1", "2", "3", "4", "5")


def corrupted_folders(root: str | Path) -> dict[str, Path]:
    """The test sets of a tree by ``NAME:SEVERITY``, in the order of the corruptions."""
    from shiftbed.evaluation.corruptions import NAMES

    top = Path(root)
    if not top.is_dir():
        raise InputError(f"{root}: no such folder of corrupted test sets")
    found: dict[str, Path] = {}
    above = _folders(top)
    for folder in [*above, *(inner for one in above for inner in _folders(one))]:
        for severity in _SEVERITIES:
            if (folder / severity).is_dir() and folder.name not in _SEVERITIES:
                key = f"{folder.name}:{severity}"
                if found.setdefault(key, folder / severity) != folder / severity:
                    raise InputError(f"{root}: {key} is there twice")
    if not found:
        raise InputError(f"{root}: expected folders NAME/SEVERITY/CLASS/FILE, such as fog/3")
    order = {name: at for at, name in enumerate(NAMES)}
    keys = sorted(found, key=lambda key: (order.get(key.rpartition(":")[0], len(order)), key))
    return {key: found[key] for key in keys}


def _folders(path: Path) -> list[Path]:
    inside = [one for one in path.iterdir() if one.is_dir() and not one.name.startswith(".")]
    return sorted(one for one in inside if one.name != MANIFEST)


def read_manifest_of_tree(root: str | Path) -> dict[str, Any] | None:
    """What ``manifest.json`` says, None if there is none."""
    path = Path(root, f"{MANIFEST}.json")
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path}: too large for a manifest")
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a manifest: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("source"), dict):
        raise InputError(f"{path}: not a manifest of corrupted images")
    return found


def images_of(folder: str | Path, n: int) -> str | None:
    """Fingerprint of the images that a folder of a tree was made of, row by row, if that is known.

    Settings with the same images are resampled together. None unless all ``n`` are there and in
    the order of their source.
    """
    root = Path(os.path.abspath(folder)).parent.parent
    about = read_manifest_of_tree(root)
    if about is None or not about.get("in_order"):
        return None
    source = about["source"]
    return str(source["fingerprint"]) if source.get("images") == n else None
