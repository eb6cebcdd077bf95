"""Predictions per image without labels, from .npz files: what new data usually is.

A file holds ``models`` (M,) and ``top1`` (M, N), or for each of several settings NAME (M, N). An
array of labels may be missing, or hold −1 only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.importing.predictions import ONE, _form, _load, _models
from shiftbed.importing.table import shown


@dataclass(frozen=True, kw_only=True, eq=False)
class Unlabelled:
    """What the models of one file answered in one setting."""

    setting: str
    models: tuple[str, ...]
    top1: NDArray[np.integer[Any]]
    """(models, images)"""


def parse_unlabelled(path: str, data: bytes) -> list[Unlabelled]:
    """The settings of a file that have no labels, in order; none if all have."""
    arrays = _load(path, data)
    models = _models(path, arrays)
    found = []
    for name, top1 in arrays.items():
        if name == "models" or name == "labels" or name.startswith("labels_"):
            continue
        labels = arrays.get("labels" if name == ONE else f"labels_{name}")
        if labels is not None and not (labels.dtype.kind == "i" and (labels == -1).all()):
            continue
        rows = top1[None] if top1.ndim == 1 and len(models) == 1 else top1
        if rows.ndim != 2 or len(rows) != len(models) or rows.dtype.kind not in "iu":
            raise InputError(
                f"{path}, array {shown(name)}: must be {len(models)} models × images of class "
                f"numbers, is {_form(top1)}"
            )
        if not rows.size:
            raise InputError(f"{path}, array {shown(name)}: holds no image")
        if labels is not None and labels.shape != rows.shape[1:]:
            raise InputError(
                f"{path}, array {shown(name)}: has {rows.shape[1]} images, but labels "
                f"for {labels.size}"
            )
        found.append(Unlabelled(setting=name, models=models, top1=rows))
    return found
