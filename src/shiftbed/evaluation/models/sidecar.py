"""Preprocessing of files that cannot say it themselves: ``NAME.preprocessing.json`` beside them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError
from shiftbed.evaluation.models.spec import Request
from shiftbed.evaluation.preprocessing import Preprocessing


def sidecar_of(file: Path) -> Path:
    """Where a model file's preprocessing is looked for.

    >>> sidecar_of(Path("models/net.onnx")).name
    'net.preprocessing.json'
    """
    return file.with_name(f"{file.stem}.preprocessing.json")


def native_preprocessing(
    request: Request,
    file: Path,
    *,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    needed: Sequence[str] = ("mean", "std"),
) -> Preprocessing:
    """Preprocessing of a model file: its side-car over what the file itself tells.

    Without a side-car, the fields in ``needed`` must have been asked for: a guess would cost more
    accuracy than most shifts do.
    """
    known: dict[str, Any] = {"mode": "L" if channels == 1 else "RGB"}
    if size is not None:
        known["size"] = size
    place = sidecar_of(file)
    if place.is_file():
        known |= _read(place)
        return Preprocessing.from_dict(known)
    needed = needed if size is not None else ("size", *needed)
    if not request.asks_for(*needed):
        raise InputError(
            f"{file} does not say its preprocessing: write {place.name} beside it, or give "
            f"{', '.join(needed)} (as preprocessing or as keys: ?mean=0.5,0.5,0.5&std=…)"
        )
    return Preprocessing.from_dict({"size": (1, 1), **known})


def _read(place: Path) -> dict[str, Any]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{place}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{place}: must be a JSON object with the fields of preprocessing")
    return found
