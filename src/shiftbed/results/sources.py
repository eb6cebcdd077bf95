"""What results are about: a testbed of anything that has accuracies, perhaps joined with others."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from shiftbed.errors import InputError
from shiftbed.results.lines import Source
from shiftbed.store import PredictionStore
from shiftbed.testbed import PUBLISHED, Testbed, open_testbed
from shiftbed.testbed.combine import combine

Results = Source | pl.DataFrame
"""What a testbed is opened from, or a file or frame of results such as ``import_results`` reads."""


def open_results(source: Results) -> Testbed:
    """A testbed of anything that has accuracies: a published one's name, a testbed file, a store,
    or a CSV, JSON, JSONL or Parquet file (or a frame) of results.

    >>> open_results(pl.DataFrame({"model": ["a"], "val": [0.7], "sketch": [0.2]})).settings
    ('val', 'sketch')
    """
    from shiftbed.importing import import_results

    if isinstance(source, Testbed | PredictionStore):
        return open_testbed(source)
    if isinstance(source, pl.DataFrame):
        return import_results(source)
    name = str(source)
    if name in PUBLISHED or "://" in name or not Path(name).is_file() or _is_testbed(Path(name)):
        return open_testbed(source)
    return import_results(source)


def _is_testbed(path: Path) -> bool:
    if path.suffix.lower() != ".parquet":
        return False
    try:
        return "shiftbed" in pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def joined(testbed: Source, others: Sequence[Results] = ()) -> Testbed:
    """A testbed and the models of ``others``, which its lines judge."""
    bed = open_testbed(testbed)
    return combine([bed, *map(open_results, others)]) if others else bed
