"""Per-image predictions in .npz files.

A file holds ``models`` (M,), and either ``top1`` (M, N) with ``labels`` (N,), one setting whose
name is the file's, or for each of several settings NAME (M, N) with labels_NAME (N,). A single
model's predictions may be (N,). Instead of the best class there may be the scores of all K classes:
``logits`` or ``probabilities`` (M, N, K), of several settings logits_NAME or probabilities_NAME; a
single model's may be (N, K). Labels may be missing, or hold −1 only: then the predictions are
``Unlabelled``, as new data usually are.
"""

import hashlib
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, brief, shown, unknown
from shiftbed.reading.files import LIMIT
from shiftbed.reading.tables import is_archive, read_bytes

ONE = "top1"
"""The array of a file with one setting, which is named after the file."""
LOGITS, PROBABILITIES = "logits", "probabilities"
Scores = NDArray[np.float32]
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError),
    *(NotImplementedError, RuntimeError, MemoryError, OverflowError, TypeError, ValueError),
)


_ROUNDED = 2e-3
"""How far from 1 probabilities may sum, as half precision has them."""


class ModelResults(NamedTuple):
    """What one model got right in one setting."""

    model: str
    setting: str
    right: NDArray[np.bool_]
    """(images,)"""
    images: str
    """Fingerprint of the labels, see ``fingerprint``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What the models of one file got right in one setting."""

    path: str
    setting: str
    models: tuple[str, ...]
    top1: NDArray[np.integer[Any]]
    """(models, images): the class each model answers."""
    right: NDArray[np.bool_]
    """(models, images)"""
    labels: NDArray[np.int64]
    images: str
    single: bool
    scores: Scores | None = None
    """(models, images, classes): logits, where the file has scores; of probabilities their
    logarithms."""
    """Whether the file has this setting only and does not say its name."""
    own: str = ""
    """What the setting is called after the file or in it."""
    chosen: bool = False
    """Whether the caller chose another name."""


def fingerprint(labels: NDArray[Any]) -> str:
    """Identity of a list of labels: SHA-256 of them as little-endian int64, then of their number.

    >>> fingerprint(np.array([3, 8], dtype=np.uint8)) == fingerprint(np.array([3, 8]))
    True
    """
    canonical = np.ascontiguousarray(labels, dtype="<i8")
    digest = hashlib.sha256(canonical.tobytes())
    digest.update(np.array([labels.size], dtype="<i8").tobytes())
    return f"sha256:{digest.hexdigest()}"


def read_predictions(path: str | Path, setting: str) -> list[ModelResults]:
    """What each model of a file got right in a setting, in the file's order.

    A file with one setting (``top1``) is taken to be that setting; from a file with several the
    one of that name is taken.
    """
    found = {one.setting: one for one in parse_predictions(str(path), read_bytes(path))}
    one = found.get(setting) or found.get(ONE)
    if one is None:
        raise unknown(f"setting in {path}", setting, found)
    return [
        ModelResults(model, setting, right, one.images)
        for model, right in zip(one.models, one.right, strict=True)
    ]


def parse_predictions(path: str, data: bytes) -> list[Predictions]:
    """The settings of a file, in order; the one of a file with one setting is called ``top1``."""
    arrays = _load(path, data)
    models = _models(path, arrays)
    arrays, scores = _answers(path, arrays, models)
    pairs = _pairs(path, arrays)
    return [
        _predictions(path, name, models, arrays[name], arrays[key], scores.get(name))
        for name, key in pairs
    ]


def _answers(
    path: str, arrays: dict[str, NDArray[Any]], models: tuple[str, ...]
) -> tuple[dict[str, NDArray[Any]], dict[str, Scores]]:
    """The arrays with the best class instead of scores, and the scores by setting.

    Of equal scores the class with the lowest number is the best.
    """
    found: dict[str, NDArray[Any]] = {}
    scores: dict[str, Scores] = {}
    for name, array in arrays.items():
        kind, _, of = name.partition("_")
        if kind not in (LOGITS, PROBABILITIES) or array.dtype.kind != "f":
            found[name] = array
            continue
        setting = of or ONE
        if setting in scores or setting in arrays:
            raise InputError(f"{path}: predictions of {shown(setting)} are given twice")
        scores[setting] = _scores(f"{path}, array {shown(name)}", kind, array, models)
        found[setting] = scores[setting].argmax(axis=2)
    return found, scores


def _scores(where: str, kind: str, array: NDArray[Any], models: tuple[str, ...]) -> Scores:
    """Logits (models, images, classes) of logits or probabilities, refused if they are neither."""
    rows = array[None] if array.ndim == 2 and len(models) == 1 else array
    if rows.ndim != 3 or len(rows) != len(models) or not rows.size:
        raise InputError(
            f"{where}: must be {len(models)} models × images × classes, is {_form(array)}"
        )
    if kind == LOGITS:
        wrong = np.argwhere(np.isnan(rows) | np.isposinf(rows))
        if not len(wrong):
            wrong = np.argwhere(np.isneginf(rows).all(axis=2))
        if len(wrong):
            model, image = models[wrong[0][0]], wrong[0][1]
            raise InputError(f"{where}: image {image} of {shown(model)} has a logit that is none")
        return rows.astype(np.float32)
    with np.errstate(invalid="ignore"):
        fine = ((rows >= 0) & (rows <= 1 + _ROUNDED)).all(axis=2)
        wide = rows.astype(np.float64)
        fine &= np.abs(wide.sum(axis=2) - 1) <= _ROUNDED
    wrong = np.argwhere(~fine)
    if len(wrong):
        model, image = models[wrong[0][0]], wrong[0][1]
        raise InputError(
            f"{where}: probabilities of image {image} of {shown(model)} are not between 0 and 1 "
            "with the sum 1; save logits as 'logits'"
        )
    with np.errstate(divide="ignore"):
        return np.log(wide).astype(np.float32)


def _load(path: str, data: bytes) -> dict[str, NDArray[Any]]:
    """All arrays of the archive; pickled ones are refused, and so are absurdly large ones."""
    if not is_archive(data):
        raise InputError(f"{path}: not an .npz file")
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > LIMIT:
                raise InputError(
                    f"{path}: unpacks to {size / 2**30:.1f} GiB, at most {LIMIT // 2**30} are read"
                )
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name == member.filename:
                    raise InputError(
                        f"{path}: holds {shown(name)}, not only arrays; save a spreadsheet as CSV"
                    )
                if name in arrays:
                    raise InputError(f"{path}: two arrays are called {shown(name)}")
                arrays[name] = _array(path, name, archive, member)
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(
            f"{path}: damaged .npz file: {str(error) or type(error).__name__}"
        ) from None
    return arrays


def _array(path: str, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers of old files
        try:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, SyntaxError, TokenError) as error:
            if "bject arrays" in str(error):
                raise InputError(
                    f"{path}, array {shown(name)}: holds Python objects, which are not read: "
                    "they can run code; save numbers or fixed-width text"
                ) from None
            raise InputError(f"{path}, array {shown(name)}: damaged: {brief(error)}") from None
    return array


def _models(path: str, arrays: dict[str, NDArray[Any]]) -> tuple[str, ...]:
    if "models" not in arrays:
        raise InputError(f"{path}: there is no array 'models', only {_list(arrays)}")
    array = np.atleast_1d(arrays["models"])
    if array.dtype.kind not in "US" or array.ndim != 1 or not array.size:
        raise InputError(f"{path}, array 'models': must hold names, is {_form(array)}")
    try:
        names = [
            (one.decode() if isinstance(one, bytes) else one).strip() for one in array.tolist()
        ]
        "".join(names).encode()
    except (UnicodeError, ValueError):
        raise InputError(f"{path}, array 'models': a name is not Unicode text") from None
    for at, name in enumerate(names):
        if not name:
            raise InputError(f"{path}, array 'models': name {at + 1} is empty")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path}, array 'models': {shown(twice)} appears twice")
    return tuple(names)


def _pairs(path: str, arrays: dict[str, NDArray[Any]]) -> list[tuple[str, str]]:
    """(predictions, labels) by name. Every matrix needs its labels, all labels their matrix."""
    pairs = []
    for name, array in arrays.items():
        key = "labels" if name == ONE else f"labels_{name}"
        if name == "labels" or name.startswith("labels_"):
            other = ONE if name == "labels" else name.removeprefix("labels_")
            if other not in arrays:
                raise InputError(f"{path}: array {shown(name)} has no predictions {shown(other)}")
        elif key in arrays:
            pairs.append((name, key))
        elif name == ONE or (array.ndim > 1 and name != "models"):
            raise InputError(f"{path}: array {shown(name)} needs labels in an array {shown(key)}")
    if not pairs:
        raise InputError(
            f"{path}: expected arrays 'top1' (or 'logits', 'probabilities') and 'labels', or NAME "
            f"and labels_NAME, got "
            f"{_list(arrays)}"
        )
    return pairs


def _predictions(
    path: str,
    name: str,
    models: tuple[str, ...],
    top1: NDArray[Any],
    labels: NDArray[Any],
    scores: Scores | None = None,
) -> Predictions:
    where = f"{path}, array {shown(name)}"
    key = "labels" if name == ONE else f"labels_{name}"
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise InputError(
            f"{path}, array {shown(key)}: must be (images,) integers, is {_form(labels)}"
        )
    if top1.ndim == 1 and len(models) == 1:
        top1 = top1[None]
    wanted = (len(models), len(labels))
    if top1.shape != wanted or top1.dtype.kind not in "iu":
        raise InputError(
            f"{where}: must be {wanted[0]} models × {wanted[1]} images of class numbers, "
            f"is {_form(top1)}"
        )
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most > np.iinfo(np.int64).max:
        at = int(labels.argmin() if least < 0 else labels.argmax())
        raise InputError(
            f"{path}, array {shown(key)}: label {labels[at]} of image {at} is no class"
        )
    canonical = labels.astype(np.int64)
    if scores is not None and most >= scores.shape[2]:
        raise InputError(
            f"{path}, array {shown(key)}: label {most}, but there are scores of "
            f"{scores.shape[2]} classes"
        )
    return Predictions(
        path=path,
        setting=name,
        models=models,
        top1=top1,
        right=top1 == labels,
        labels=canonical,
        images=fingerprint(canonical),
        single=name == ONE,
        scores=scores,
    )


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
    arrays, _ = _answers(path, arrays, models)
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


def _form(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _list(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(shown(name) for name in list(names)[:8]) or "none"
