"""Where a study's pair tables come from: a prediction store, a testbed, or a plain file.

wenzel2022, Section 3. Every metric of a pair is better when it is lower (an accuracy becomes an
error), so a positive correlation means that the two are good together.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError, unknown
from shiftbed.results.pairs.added import attacks_as, held_out, with_shift_types
from shiftbed.results.pairs.bed import pairs_from_testbed
from shiftbed.results.pairs.file import long_table, read_pairs
from shiftbed.results.pairs.networks import NOT_ASKED, PairStudy, keep, networks_in, said
from shiftbed.results.pairs.store import pairs_from_store
from shiftbed.store import PredictionStore
from shiftbed.testbed import PUBLISHED, Testbed, choose, read_testbed, recognise
from shiftbed.testbed.files import is_testbed

__all__ = ["PairStudy", "Source", "held_out", "long_table", "name_of", "notes_of", "open_pairs"]
__all__ += ["pairs_from_store", "pairs_from_testbed", "read_pairs"]

Source = str | Path | Testbed | PredictionStore | Sequence[PairTable]
"""A published testbed's name, a testbed, a store, the path of one or of a plain file, or pairs."""


def open_pairs(
    source: Source,
    *,
    kind: Sequence[str] | None = None,
    task: Sequence[str] | None = None,
    also: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    checkpoint: str = "last",
    attacks: str = "mean",
) -> tuple[PairTable, ...]:
    """The pair tables of a published testbed (by name), a testbed, a store or a plain file.

    ``kind`` and ``task`` keep only pairs of these types of shift and tasks, ``only`` the networks
    whose recipe has COLUMN=PATTERN (or !=), all that are given; ``also`` names settings of a
    testbed whose values are further ID metrics, such as a probe. A run's network is its ``last``
    checkpoint, or the one with the lowest ID error on validation or test data (``id-validation``,
    ``id-test``). ``attacks`` is as in ``attacks_as``. Held-out metrics are added where they are not
    there and the task has other OOD sets.
    """
    pairs = attacks_as(_opened(source, kind or None, also or (), checkpoint), attacks)
    known = list(dict.fromkeys(pair.task for pair in pairs))
    for name in task or ():
        if name not in known:
            raise unknown("task", name, known)
    chosen = with_shift_types([pair for pair in pairs if not task or pair.task in task])
    return _only(chosen, only) if only else chosen


def name_of(source: Source) -> str:
    """What a result calls its source.

    >>> name_of(recognise("openclip"))
    'openclip'
    """
    if isinstance(source, str | Path):
        return str(source)
    if isinstance(source, Testbed):
        return source.name
    return str(source.files.root) if isinstance(source, PredictionStore) else "pairs"


def _opened(
    source: Source, kinds: Sequence[str] | None, also: Sequence[str], checkpoint: str
) -> tuple[PairTable, ...]:
    name, path = name_of(source), Path(name_of(source))
    if isinstance(source, str | Path):
        found = recognise(source)
        is_file = isinstance(found, Path) and found.is_file() and is_testbed(found)
        source = read_testbed(found) if isinstance(found, Path) and is_file else found
    if isinstance(source, Testbed):
        return pairs_from_testbed(source, kinds=kinds, also=also, checkpoint=checkpoint)
    if also:
        raise InputError("further settings can be named for a testbed only")
    if isinstance(source, PredictionStore):
        return pairs_from_store(source, kinds=kinds, checkpoint=checkpoint)
    if isinstance(source, Path) and not source.exists():
        if path.suffix or "/" in name:
            raise InputError(f"{name}: no such file or store")
        raise unknown("testbed", name, PUBLISHED)
    given = read_pairs(source) if isinstance(source, Path) else source
    pairs = held_out(networks_in(given, checkpoint))
    known = sorted({pair.kind for pair in pairs})
    for one in kinds or ():
        if one not in known:
            raise unknown(f"kind of shift in {name}", one, known)
    return tuple(pair for pair in pairs if kinds is None or pair.kind in kinds)


def _only(pairs: Sequence[PairTable], only: Sequence[str]) -> tuple[PairTable, ...]:
    """The pairs with those networks whose recipe has COLUMN=PATTERN (or !=), all that are given."""
    for text in only:
        if "=" not in text:
            raise InputError(f"cannot choose networks by {text!r}; say COLUMN=PATTERN")
    frames = [pl.DataFrame({"model": p.models, **p.info}, strict=False) for p in pairs]
    mask = choose(pl.concat(frames, how="diagonal_relaxed"), list(only))
    found, at = [], 0
    for pair in pairs:
        here = mask[at : at + len(pair.models)]
        at += len(pair.models)
        if here.any():
            left = tuple(m for m, stays in zip(pair.models, here, strict=True) if not stays)
            found.append(keep(pair, here, {NOT_ASKED: left}))
    if not found:
        raise InputError(f"no network has {' and '.join(only)}")
    return tuple(found)


def notes_of(pairs: Sequence[PairTable], *, held_out: bool = True) -> list[str]:
    """What is missing from a study, in sentences: cells, and held-out OOD where there is none."""
    notes = []
    cells = sum(pair.values.size for pair in pairs)
    missing = sum(int(np.isnan(pair.values).sum()) for pair in pairs)
    if missing:
        notes.append(
            f"{missing} of {cells} cells are missing; each number uses the networks it has."
        )
    without = [p for p in pairs if not any(m.startswith("held-out:") for m in p.metrics)]
    if held_out and without:
        tasks = sorted({pair.task for pair in without})
        notes.append(
            f"No held-out OOD for {len(without)} of {len(pairs)} pairs ({', '.join(tasks[:6])}"
            f"{', …' if len(tasks) > 6 else ''}): no other OOD set with that ID set."
        )
    return [*notes, *said(pairs)]
