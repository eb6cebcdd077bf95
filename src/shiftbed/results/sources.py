"""What results are about: a testbed of anything that has accuracies, perhaps joined with others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.errors import InputError
from shiftbed.store import PredictionStore
from shiftbed.testbed import Source, Testbed, open_testbed, recognise
from shiftbed.testbed.combine import combine
from shiftbed.testbed.files import is_testbed

Results = Source | pl.DataFrame
"""What a testbed is opened from, or a file or frame of results such as ``import_results`` reads."""


def open_results(source: Results | Sequence[Results], **reading: Any) -> Testbed:
    """A testbed of anything that has accuracies: a published one's name, a testbed file, a store,
    or a CSV, JSON, JSONL or Parquet file (or a frame) of results; several files of results are
    merged. ``reading`` are options of ``import_results``, for files and frames only.

    >>> open_results(pl.DataFrame({"model": ["a"], "val": [0.7], "sketch": [0.2]})).settings
    ('val', 'sketch')
    """
    from shiftbed.importing import import_results

    several = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if len(several) != 1 or _is_results(several[0]):
        return import_results([_file(one) for one in several], **reading)
    one = several[0]
    given = ", ".join(name for name, value in reading.items() if value)
    if given:
        raise InputError(f"{given}: only for files of results, which {one} is not")
    assert not isinstance(one, pl.DataFrame)
    return open_testbed(one)


def _is_results(source: Results) -> bool:
    """Whether that is a file or a frame of results rather than a testbed or a store."""
    if isinstance(source, pl.DataFrame):
        return True
    found = recognise(source)
    return isinstance(found, Path) and found.is_file() and not is_testbed(found)


def _file(source: Results) -> str | Path | pl.DataFrame:
    if isinstance(source, Testbed | PredictionStore) or not _is_results(source):
        raise InputError(f"of several sources each must be a file of results; {source} is none")
    return source


def joined(testbed: Source, others: Sequence[Results] = ()) -> Testbed:
    """A testbed and the models of ``others``, which its lines judge."""
    bed = open_testbed(testbed)
    return combine([bed, *map(open_results, others)]) if others else bed
