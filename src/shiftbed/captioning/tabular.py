"""Parquet files of captions, a slice of rows at a time."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from shiftbed.captioning.columns import BATCH, Asked, Problems, batch_frame, choose_columns
from shiftbed.errors import InputError


def read_parquet(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """The rows of a file in batches; ``row`` counts from 0. Tags may be a list of strings."""
    try:
        schema = pl.read_parquet_schema(path)
        used = choose_columns(str(path), list(schema), asked).used()
        lazy = pl.scan_parquet(path).select([pl.col(c).alias(p) for p, c in used.items()])
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
        for start in range(0, rows, BATCH):
            frame = lazy.slice(start, BATCH).collect()
            places = pl.Series(range(start, start + len(frame)), dtype=pl.Int64)
            texts = {p: _strings(path, used[p], frame[p], problems) for p in used}
            yield batch_frame({"row": places, **texts})
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read as Parquet: {reason[:200]}") from None


def _strings(path: Path, name: str, column: pl.Series, problems: Problems) -> pl.Series:
    """A column as text: numbers written out, lists joined with stops between, bytes decoded."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        inner = pl.DataFrame({"all": column}).explode("all")["all"].dtype
        if inner not in (pl.String, pl.Categorical, pl.Null):
            raise InputError(
                f"{path}, column {name!r}: is {kind}, expected text or a list of texts"
            )
        return column.cast(pl.List(pl.String)).list.join(" | ", ignore_nulls=True)
    if kind == pl.Binary:
        texts = [None if v is None else v.decode(errors="replace") for v in column]
        same = [t is None or t.encode() == v for t, v in zip(texts, column, strict=True)]
        problems.add("invalid_utf8", same.count(False))
        return pl.Series(texts, dtype=pl.String)
    if kind.is_nested() or kind == pl.Object:
        raise InputError(f"{path}, column {name!r}: is {kind}, expected text")
    return column.cast(pl.String)
