"""Where a study's pair tables come from: a prediction store, a testbed, or a plain file.

wenzel2022, Section 3. Every metric of a pair is better when it is lower (an accuracy becomes an
error), so a positive correlation means that the two are good together.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs.bed import pairs_from_testbed
from shiftbed.results.pairs.file import long_table, read_pairs
from shiftbed.results.pairs.heldout import held_out, notes_of
from shiftbed.results.pairs.store import pairs_from_store
from shiftbed.store import PredictionStore
from shiftbed.testbed import PUBLISHED, published, read_testbed

__all__ = ["held_out", "long_table", "notes_of", "open_pairs"]
__all__ += ["pairs_from_store", "pairs_from_testbed", "read_pairs"]


def open_pairs(
    source: str, *, kinds: Sequence[str] | None = None, also: Sequence[str] = ()
) -> tuple[PairTable, ...]:
    """The pair tables of a published testbed (by name), a testbed file, a store or a plain file.

    ``kinds`` keeps only pairs of these types of shift; ``also`` names settings of a testbed whose
    values are further ID metrics, such as a probe. Held-out metrics are added where they are not
    there and the task has other OOD sets.
    """
    path = Path(source)
    if source in PUBLISHED:
        return pairs_from_testbed(published(source), kinds=kinds, also=also)
    if "://" not in source and path.is_file() and _is_testbed(path):
        return pairs_from_testbed(read_testbed(path), kinds=kinds, also=also)
    if also:
        raise InputError("further settings can be named for a testbed only")
    if "://" in source or path.is_dir():
        return pairs_from_store(PredictionStore.existing(source), kinds=kinds)
    if not path.exists():
        if path.suffix or "/" in source:
            raise InputError(f"{source}: no such file or store")
        raise unknown("testbed", source, PUBLISHED)
    pairs = held_out(read_pairs(path))
    if kinds is None:
        return pairs
    known = sorted({pair.kind for pair in pairs})
    for kind in kinds:
        if kind not in known:
            raise unknown(f"kind of shift in {source}", kind, known)
    return tuple(pair for pair in pairs if pair.kind in kinds)


def _is_testbed(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return False
        return "shiftbed" in pl.read_parquet_metadata(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise InputError(f"{path}: a damaged Parquet file") from None
