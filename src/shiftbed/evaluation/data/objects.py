"""Test sets from objects: arrays and tensors, loaders of batches, data sets with items.

Whether four axes are (N, H, W, C) or (N, C, H, W) is decided by where 1, 3 or 4 channels fit; where
both do, ``layout`` must say. torch is not imported here: its tensors are known by their type.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data.arrays import ArrayImages, layout_of, picture_of
from shiftbed.evaluation.data.images import Draft, RowImages

_READING = threading.Lock()
"""Few data sets may be read by several threads at once."""
_ROUNDED = "images are floats, rounded to 8 bits"


def plain(values: Any) -> Any:
    """A tensor as an array, everything else as it is."""
    if type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.float() if values.is_floating_point() else values).numpy()
    return values


def images_of(images: Any, where: str, layout: str | None) -> tuple[ArrayImages, tuple[str, ...]]:
    """Images of an array or tensor, and what to note about them."""
    pixels, rounded = to_bytes(plain(images), where, layout)
    if pixels.flags.writeable and np.may_share_memory(pixels, images):
        pixels = pixels.copy()
    pixels.flags.writeable = False
    source = ArrayImages(
        source=pixels, layout="NHWC"[: pixels.ndim], rows=np.arange(len(pixels), dtype=np.int64)
    )
    return source, (_ROUNDED,) if rounded else ()


def to_bytes(images: Any, where: str, layout: str | None) -> tuple[NDArray[np.uint8], bool]:
    """uint8 (N, H, W) or (N, H, W, C) of a batch, and whether floats had to be rounded."""
    pixels: NDArray[Any] = np.asarray(images)
    if layout_of(where, pixels, layout) == "NCHW":
        pixels = pixels.transpose(0, 2, 3, 1)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype == np.uint8:
        return pixels, False
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):  # also if they are not numbers
        raise InputError(
            f"{where}: images have values from {low:.3g} to {high:.3g}, expected [0, 1]: give them "
            "as they are before normalisation, and mean= and std= to the model"
        )
    scaled = pixels.astype(np.float64) * 255
    bytes_ = np.rint(scaled)
    exact = 255 * float(np.finfo(pixels.dtype).eps)
    return bytes_.astype(np.uint8), bool(np.abs(scaled - bytes_).max() > exact)


def read_loader(
    loader: Iterable[Any], where: str, layout: str | None
) -> tuple[NDArray[np.uint8], list[Any], tuple[str, ...]]:
    """Images, labels and notes of all batches of a loader."""
    pixels: list[NDArray[np.uint8]] = []
    labels: list[Any] = []
    notes: dict[str, None] = {}
    for number, batch in enumerate(loader):
        images, own = _pair(batch, f"{where}: batch {number} of the loader", "(images, labels)")
        if len(plain(images)) == 0:
            continue
        found, rounded = to_bytes(plain(images), f"{where}: batch {number}", layout)
        if pixels and found.shape[1:] != pixels[0].shape[1:]:
            raise InputError(
                f"{where}: images of batch {number} are {found.shape[1:]}, of the first "
                f"{pixels[0].shape[1:]}; all must be of one size"
            )
        given = _labels(own, f"{where}: batch {number}")
        if len(given) != len(found):
            raise InputError(f"{where}: batch {number}: {len(given)} labels, {len(found)} images")
        pixels.append(found)
        labels += given
        notes |= {_ROUNDED: None} if rounded else {}
    if not pixels:
        raise InputError(f"{where}: the loader gave no batch")
    every = len(getattr(loader, "dataset", None) or labels)
    if len(labels) < every:
        notes[f"the loader gave {len(labels)} of its {every} examples"] = None
    if type(getattr(loader, "sampler", None)).__name__ == "RandomSampler":
        notes["the loader shuffles: ids are positions in this one pass"] = None
    return np.concatenate(pixels), labels, tuple(notes)


def _labels(given: Any, where: str) -> list[Any]:
    """Labels as a list with one entry per image."""
    labels = plain(given)
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    labels = np.atleast_1d(labels) if isinstance(labels, np.ndarray) else labels
    labels = [plain(one) for one in labels]
    for one in labels[:1]:
        if isinstance(one, np.ndarray) and one.ndim:
            raise InputError(
                f"{where}: the label of an image is of shape {one.shape}; several labels of one "
                "image are a set of classes"
            )
    return labels


def _pair(item: Any, what: str, form: str) -> tuple[Any, Any]:
    if isinstance(item, (str, Mapping)) or not isinstance(item, Sequence) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, Sequence | Mapping) else ""
        raise InputError(f"{what} must be {form}, is {type(item).__name__}{size}")
    return item[0], item[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemImages(RowImages):
    """The images of a data set's (image, label) items, each read when it is needed."""

    dataset: Any
    where: str
    layout: str | None

    def item(self, row: int) -> tuple[Any, Any]:
        """Image, as a PIL image or bytes (H, W[, C]), and label of one item."""
        with _READING:
            what = f"{self.where}: item {int(self.rows[row])}"
            image, label = _pair(self.dataset[int(self.rows[row])], what, "(image, label)")
            if isinstance(image, Image.Image):
                image.load()
                return image, label
        pixels = np.asarray(plain(image))
        return to_bytes(pixels[None], what, self.layout)[0][0], label

    def load(self, row: int, draft: Draft | None = None) -> Image.Image:
        image = self.item(row)[0]
        return image if isinstance(image, Image.Image) else picture_of(image)

    def data(self, row: int) -> bytes:
        """Form and bytes of the picture; alike for equal pixels, as a PIL image or an array."""
        image = self.item(row)[0]
        pixels = np.asarray(image)
        kept = not isinstance(image, Image.Image) or image.mode in ("L", "RGB", "RGBA")
        mode = "" if kept else f"{image.mode} {image.getpalette()} "
        return f"{mode}{pixels.dtype.str}{pixels.shape}".encode() + pixels.tobytes()


def read_items(
    dataset: Any, where: str, layout: str | None
) -> tuple[ItemImages, list[Any], dict[str, Any]]:
    """Images, labels and further fields (classes, notes) of a map-style data set."""
    try:
        size = len(dataset)
    except TypeError:
        raise InputError(
            f"{where}: {type(dataset).__name__} has no length; a data set that can only be "
            "iterated is read by from_loader"
        ) from None
    if not size:
        raise InputError(f"{where}: the data set is empty")
    images = ItemImages(
        dataset=dataset, where=where, layout=layout, rows=np.arange(size, dtype=np.int64)
    )
    first = images.item(0)[1]
    if images.data(0) != images.data(0):
        raise InputError(
            f"{where}: item 0 is another image each time it is read; leave out random augmentation"
        )
    targets = getattr(dataset, "targets", None)
    if getattr(dataset, "target_transform", None) is not None:
        targets = None
    labels = [] if targets is None else _labels(targets, where)
    if len(labels) != size or np.any(labels[0] != plain(first)):
        labels = _labels([images.item(row)[1] for row in range(size)], where)
    found: dict[str, Any] = {}
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, Sequence) and all(isinstance(one, str) for one in classes):
        found["classes"] = tuple(classes) if len(set(classes)) == len(classes) else None
    image = dataset[0][0]
    if not isinstance(image, Image.Image):
        rounded = to_bytes(np.asarray(plain(image))[None], where, layout)[1]
        found["notes"] = (_ROUNDED,) if rounded else ()
    return images, labels, found
