"""Captions: from class names by templates, or one per example from a file; as tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision

Tokenizer = Callable[[list[str]], Tensor]


def templates_of(given: Sequence[str]) -> tuple[str, ...]:
    """Templates that are each about one class.

    >>> templates_of(["a photo of the digit {}"])
    ('a photo of the digit {}',)
    """
    found = (given,) if isinstance(given, str) else tuple(given)
    for one in found:
        if one.count("{}") != 1 or one.count("{") != 1 or one.count("}") != 1:
            raise InputError(f"a template must have {{}} once, for the class, got {one!r}")
    if not found:
        raise InputError("objective 'contrastive' needs at least one template")
    return found


@lru_cache(maxsize=4)
def tokenizer(context_length: int) -> Tokenizer:
    """open_clip's byte-pair tokenizer, which comes with the package: texts to (N, L) tokens."""
    ensure_torchvision()
    import open_clip

    cut = open_clip.SimpleTokenizer(context_length=context_length)

    def tokens(texts: list[str]) -> Tensor:
        found: Tensor = cut(texts)
        return found

    return tokens


def distinct_rows(table: Tensor, which: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The rows of a table that are asked for, each once, and which of them each one is.

    >>> rows, at = distinct_rows(torch.tensor([[5], [6], [7]]), np.array([2, 0, 2]))
    >>> rows.tolist(), at.tolist()
    ([[5], [7]], [1, 0, 1])
    """
    distinct, inverse = np.unique(which, return_inverse=True)
    return table[torch.from_numpy(distinct)], torch.from_numpy(inverse.reshape(-1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Captions:
    """One caption per example, equal ones kept once."""

    tokens: Tensor
    """(U, L)"""
    which: Tensor
    """(N,) the caption of each row of the training data."""

    def of(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Distinct captions of some rows, and which one each has."""
        return distinct_rows(self.tokens, self.which[torch.from_numpy(rows)].numpy())


def read_captions(path: str, base: str | Path, examples: Sequence[str], cut: Tokenizer) -> Captions:
    """The captions of examples from a file with columns ``example`` and ``caption``.

    Examples are named as the data set names them, with or without ``DATA/`` in front.
    """
    file = Path(base) / path
    if not file.is_file():
        raise InputError(f"captions: {file}: no such file")
    try:
        if file.suffix == ".parquet":
            frame = pl.read_parquet(file)
        else:
            frame = pl.read_csv(file, infer_schema=False)  # ids such as 007 stay texts
        found = frame.select(pl.col("example", "caption").cast(pl.String)).drop_nulls()
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{file}: expected columns 'example' and 'caption': {reason}") from None
    known = dict(zip(found["example"].to_list(), found["caption"].to_list(), strict=True))
    texts = [known.get(one, known.get(one.partition("/")[2])) for one in examples]
    for example, text in zip(examples, texts, strict=True):
        if text is None:
            raise InputError(f"{file}: no caption for example {example!r}")
    distinct = sorted({str(text) for text in texts})
    place = {text: at for at, text in enumerate(distinct)}
    return Captions(tokens=cut(distinct), which=torch.tensor([place[str(t)] for t in texts]))
