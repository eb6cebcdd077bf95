"""Counts of every two models of a setting, kept between commands as far as they are known.

Who was right is known per model (``store/derived.py``); on how many examples two models answer the
same class is known per pair. A further model is compared with the others, not these again with each
other; for that, and only then, the classes that they answered are read, of a few models at a time.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.joint_counts import same_counts, same_with
from shiftbed.analysis.similarity import Similarity, similarity
from shiftbed.results.joint_answers import JointAnswers, classes_of
from shiftbed.store import StoredTestSet
from shiftbed.store.derived import FEW, Derived
from shiftbed.store.sealing import digest

Counts = NDArray[np.int64]
HELD = 1 << 26
"""Answers in memory that are compared with those of all other models."""
BESIDE = 1 << 24
"""Answers of other models that are in memory beside them."""
_CODE = ("results/pair_counts.py", "analysis/joint_counts.py")


def pair_counts(answers: JointAnswers) -> Similarity:
    """Similarity of the models, from what is known and what is not yet."""
    if answers.store is None or answers.kept is None or answers.classes is not None:
        return similarity(answers.judged(), answers.classes)
    test_set = answers.store.test_set(answers.setting)
    examples = digest(np.packbits(answers.kept).tobytes())
    derived = Derived(answers.store, test_set, f"same {examples}", *_CODE)
    keys = derived.keys(answers.models)
    cells = [keys.get(model, "") for model in answers.models]
    tables = {file: _Table(table) for file, table in derived.tables().items()}
    best = max(tables.values(), key=lambda one: len(one.at.keys() & {*cells}), default=None)
    if best is not None and best.at.keys() >= {*cells}:
        return _with(answers, best.among(cells))
    same = _counted(answers, test_set, cells, best)
    if derived.unchanged(keys, answers.models).keys() >= {*answers.models}:
        within = [file for file, one in tables.items() if one.at.keys() <= {*cells}]
        others = [file for file in tables if file not in within]
        derived.add(_table(cells, same), [*within, *others[: max(0, len(others) - FEW)]])
    return _with(answers, same)


def _with(answers: JointAnswers, same: Counts) -> Similarity:
    return replace(similarity(answers.judged()), same=same)


def _counted(
    answers: JointAnswers, test_set: StoredTestSet, cells: Sequence[str], known: "_Table | None"
) -> Counts:
    """(M, M): known pairs as they are, the others counted."""

    def classes(rows: Sequence[int]) -> NDArray[np.integer]:
        return classes_of(answers, test_set, [answers.models[i] for i in rows])

    old = [i for i, cell in enumerate(cells) if known is not None and cell in known.at]
    left = [i for i in range(len(cells)) if i not in set(old)]
    same = np.zeros((len(cells), len(cells)), dtype=np.int64)
    if known is not None:
        same[np.ix_(old, old)] = known.among([cells[i] for i in old])
    held, beside = (max(1, most // len(test_set)) for most in (HELD, BESIDE))
    while left:
        some, left = left[:held], left[held:]
        here, rest = classes(some), [*old, *left]
        same[np.ix_(some, some)] = same_counts(here)
        for at in range(0, len(rest), beside):
            others = rest[at : at + beside]
            found = same_with(here, classes(others))
            same[np.ix_(some, others)], same[np.ix_(others, some)] = found, found.T
    return same


class _Table:
    """Counts of pairs as they are kept: a row per cell, with those before it and itself."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.at = {cell: i for i, cell in enumerate(table["cell"])}
        self.rows = table["same"]

    def among(self, cells: Sequence[str]) -> Counts:
        """(M, M) of some cells, in their order."""
        size = len(self.rows)
        whole = np.zeros((size, size), dtype=np.int64)
        for i, row in enumerate(self.rows):
            whole[i, : i + 1] = whole[: i + 1, i] = np.frombuffer(row, dtype="<u4")
        order = [self.at[cell] for cell in cells]
        return whole[np.ix_(order, order)]


def _table(cells: Sequence[str], same: Counts) -> pl.DataFrame:
    rows = [same[i, : i + 1].astype("<u4").tobytes() for i in range(len(cells))]
    return pl.DataFrame(
        {"cell": list(cells), "same": rows}, schema={"cell": pl.String, "same": pl.Binary}
    )
