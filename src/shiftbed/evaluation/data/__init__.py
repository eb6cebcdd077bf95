"""Test sets in the formats people have, as one record that reads its images lazily.

What happens to images that are not plain RGB photographs, whatever the format:

=========================================  ======================================================
truncated, empty, text, damaged, missing   ``load`` raises ``UnreadableImage`` with the reason;
too many pixels (PIL's limit)              ``batches`` lists them by name
CMYK, 16 bits, palette, grey, alpha        loaded in their own mode; preprocessing converts
one pixel                                  an image like any other
animation                                  its first frame
EXIF orientation                           not applied, as in timm
hidden files; files that are no images     passed over; noted in ``TestSet.notes``
a class without images                     stays a class, and is noted
an image without a label                   label −1, noted; never counted as wrong
=========================================  ======================================================

>>> import tempfile
>>> from pathlib import Path
>>> import numpy as np
>>> folder = Path(tempfile.mkdtemp())
>>> pixels = np.zeros((3, 8, 8), dtype=np.uint8)
>>> np.savez(folder / "tiny.npz", images=pixels, labels=[0, 1, 1])
>>> test_set = open_test_set(folder / "tiny.npz")
>>> test_set.name, len(test_set), test_set.labels.tolist(), test_set.load(0).size
('tiny', 3, [0, 1, 1], (8, 8))
>>> for batch in batches(test_set, None, lambda image: np.asarray(image)[..., None], batch_size=2):
...     print(batch.rows, batch.pixels.shape)
[0 1] (2, 8, 8, 1)
[2] (1, 8, 8, 1)
"""

from shiftbed.evaluation.data.batching import Batch, Transform, batches
from shiftbed.evaluation.data.formats import open_test_set
from shiftbed.evaluation.data.images import Images
from shiftbed.evaluation.data.test_set import TestSet, Unreadable, UnreadableImage

__all__ = [
    "Batch",
    "Images",
    "TestSet",
    "Transform",
    "Unreadable",
    "UnreadableImage",
    "batches",
    "open_test_set",
]
