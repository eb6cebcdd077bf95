"""One part of a cell: predictions for a run of examples, as a Parquet table.

Columns (row i is example start + i; null where the image could not be read):

- ``class_1`` … ``class_k``: the k classes with the highest scores, best first (uint16 or uint32);
- ``prob_1`` … ``prob_k``: their probabilities (float32), if there are any;
- ``label_prob``: the probability of the true class, so that the log-likelihood is exact though
  only k classes are kept; ``sum_squares``: Σ_c p_c², which makes the Brier score exact;
- ``scale_gradient``: Σ_c p_c z_c − z_y, from which environments are inferred (wenzel2022);
- ``logits``: all of them (float16), on request.
"""

import io

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.reading.files import read_frame
from shiftbed.store.sealing import Damaged
from shiftbed.store.shapes import check_part

Floats = NDArray[np.float32]


def part_from_logits(
    logits: Floats,
    labels: NDArray[np.int64],
    *,
    top: int = 5,
    keep_logits: bool = False,
    readable: NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """A part from scores (n, K) whose softmax are the probabilities, and labels (n,), −1 unknown.

    Equal scores are ranked by class index, so that a part does not depend on the sort.
    """
    scores = np.asarray(logits, dtype=np.float32)
    n, classes = scores.shape
    k = min(top, classes)
    order = highest(scores, k)
    wide = scores.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    probability = np.exp(wide)
    probability /= probability.sum(axis=1, keepdims=True)
    rows = np.arange(n)
    known = (labels >= 0) & (labels < classes)
    at = np.where(known, labels, 0)
    finite = np.where(probability > 0, scores, 0.0)  # a class that is never predicted has −∞
    expected = np.einsum("nc,nc->n", probability, finite)
    kind = np.uint16 if classes <= 1 << 16 else np.uint32
    columns: dict[str, NDArray[np.generic]] = {}
    for j in range(k):
        columns[f"class_{j + 1}"] = order[:, j].astype(kind)
    for j in range(k):
        columns[f"prob_{j + 1}"] = probability[rows, order[:, j]].astype(np.float32)
    columns["label_prob"] = np.where(known, probability[rows, at], np.nan).astype(np.float32)
    columns["sum_squares"] = (probability**2).sum(axis=1).astype(np.float32)
    gradient = expected - scores[rows, at]
    columns["scale_gradient"] = np.where(known, gradient, np.nan).astype(np.float32)
    frame = pl.DataFrame(columns).with_columns(
        pl.col("label_prob", "scale_gradient").fill_nan(None)
    )
    if keep_logits:
        half = pl.Series("logits", scores.astype(np.float16).astype(np.float32))
        frame = frame.with_columns(half.cast(pl.Array(pl.Float16, classes)))
    if readable is not None and not readable.all():
        mask = pl.Series(readable)
        frame = frame.select(pl.when(mask).then(pl.all()))
    return frame


def highest(scores: Floats, k: int) -> NDArray[np.intp]:
    """(n, k) classes of the k highest scores, best first, equal ones in their order.

    >>> highest(np.array([[1, 3, 2, 3], [0, 0, 0, 1]], np.float32), 3).tolist()
    [[1, 3, 2], [3, 0, 1]]
    """
    low = -scores
    near = low <= np.partition(low, k - 1, axis=1)[:, k - 1 : k]
    more = near.sum(axis=1) != k  # equal scores at the edge, or nan
    near[more] = np.arange(low.shape[1]) < k
    at = np.nonzero(near)[1].reshape(len(low), k)
    order = np.argsort(np.take_along_axis(low, at, axis=1), axis=1, kind="stable")
    found = np.take_along_axis(at, order, axis=1)
    found[more] = np.argsort(low[more], axis=1, kind="stable")[:, :k]
    return found


def part_from_top(
    classes: NDArray[np.integer], readable: NDArray[np.bool_] | None = None
) -> pl.DataFrame:
    """A part from the best classes alone, (n,) or (n, k): predictions without probabilities."""
    table = np.asarray(classes)
    table = table[:, None] if table.ndim == 1 else table
    kind = np.uint16 if table.size == 0 or int(table.max()) < 1 << 16 else np.uint32
    frame = pl.DataFrame(
        {f"class_{j + 1}": table[:, j].astype(kind) for j in range(table.shape[1])}
    )
    if readable is not None and not readable.all():
        frame = frame.select(pl.when(pl.Series(readable)).then(pl.all()))
    return frame


def write_part(frame: pl.DataFrame) -> bytes:
    """The part as the bytes of a Parquet file; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="lz4", statistics=False)
    return buffer.getvalue()


def read_part(
    data: bytes, columns: list[str] | None = None, *, checked: bool = False
) -> pl.DataFrame:
    """The part, or those of the columns that it has; refused as damaged if it is none.

    ``checked``: its checksum is the recorded one, so that it is what was written.
    """
    if checked:
        if columns is not None and columns != ["class_1"]:  # which every part has
            there = pl.read_parquet_schema(io.BytesIO(data))
            columns = [column for column in columns if column in there]
        return pl.read_parquet(io.BytesIO(data), columns=columns, parallel="none")
    try:
        frame = read_frame(data, "", columns)
    except InputError as error:
        raise Damaged(str(error).lstrip(": ")) from None
    check_part(frame)
    return frame
