"""Which examples are trained on: exact counts, seeded, the same whatever the order of the rows.

Examples are ranked by a keyed hash of their ids, and a share is the first of that ranking. So a
draw depends on the seed and on which examples there are, not on their order; a smaller share is
part of a larger one; and shares of two seeds are independent.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.data.parts import exact, of_each_class, ranked
from shiftbed.places import local
from shiftbed.reading.files import read_file, read_frame
from shiftbed.reading.tables import GUARDED
from shiftbed.reading.trial import try_table

Rows = NDArray[np.int64]
T = TypeVar("T")


def fraction_rows(
    examples: Sequence[str], labels: Rows, share: float, *, seed: int = 0, balanced: bool = False
) -> Rows:
    """``exact(share, n)`` of n examples; ``balanced``: of every class."""
    order = ranked(examples, f"sample:{seed}")
    if balanced:
        return of_each_class(order, labels, lambda n: exact(share, n))
    return order[: exact(share, len(examples))]


def few_shot_rows(examples: Sequence[str], labels: Rows, shots: int, *, seed: int = 0) -> Rows:
    """``shots`` examples of every class, all where there are fewer: no over-sampling."""
    return of_each_class(ranked(examples, f"sample:{seed}"), labels, lambda n: shots)


def class_rows(
    labels: Rows, classes: int | Sequence[int], *, core: Sequence[int] | Rows = (), seed: int = 0
) -> Rows:
    """All examples of some classes: those listed, or so many drawn; labels keep their numbers.

    Classes of the ``core`` are drawn first. taori2020, Section 5: 500 classes contain the 250,
    which contain the 125 that all models are judged on.
    """
    there = np.unique(labels)
    if isinstance(classes, int):
        if classes > len(there):
            raise InputError(f"cannot draw {classes} classes: there are {len(there)}")
        drawn = there[ranked([str(c) for c in there], f"classes:{seed}")]
        first = np.isin(drawn, np.asarray(core, dtype=np.int64))
        chosen = np.concatenate([drawn[first], drawn[~first]])[:classes]
    else:
        chosen = np.asarray(sorted(classes))
        missing = sorted(set(chosen.tolist()) - set(there.tolist()))
        if missing:
            raise InputError(f"no example of class {missing[0]}: classes lie in {there.tolist()}")
    return np.flatnonzero(np.isin(labels, chosen))


def difficulty_rows(
    examples: Sequence[str],
    labels: Rows,
    hard: NDArray[np.float64],
    *,
    keep: str,
    count: int,
    per_class: bool = True,
    seed: int = 0,
) -> Rows:
    """The ``count`` easiest, hardest or random examples (of every class) by a difficulty score.

    ``hard`` (N,): larger is harder. Equal scores are ordered by the keyed hash.
    """
    order = ranked(examples, f"difficulty:{seed}")
    if keep != "random":
        sign = -1 if keep == "hardest" else 1
        order = order[np.argsort(sign * hard[order], kind="stable")]
    return of_each_class(order, labels, lambda n: count) if per_class else order[:count]


def mix_counts(
    sizes: Mapping[str, int], shares: Mapping[str, float], total: int | None = None
) -> dict[str, int]:
    """How many examples of each data set a mix has.

    shi2023 (Appendix B.1) takes the share λ of one data set's examples and 1−λ of the other's.
    With ``total``, that many examples in all, in these proportions (largest remainders).

    >>> mix_counts({"a": 100, "b": 1000}, {"a": 0.1, "b": 0.9})
    {'a': 10, 'b': 900}
    """
    if total is None:
        return {name: exact(share, sizes[name]) for name, share in shares.items()}
    parts = {name: Fraction(repr(float(share))) * total for name, share in shares.items()}
    found = {name: floor(part) for name, part in parts.items()}
    rest = sorted(parts, key=lambda name: (found[name] - parts[name], list(parts).index(name)))
    for name in rest[: total - sum(found.values())]:
        found[name] += 1
    for name, count in found.items():
        if count > sizes[name]:
            raise InputError(f"a mix of {total} needs {count} of {name!r}, which has {sizes[name]}")
    return found


def read_column(path: str | Path, column: str, what: str) -> pl.DataFrame:
    """The columns ``example`` (as texts) and ``column`` of a CSV or Parquet file of ``what``."""
    if not local(path).is_file():
        raise InputError(f"{what}: {path}: no such file")
    data = read_file(path)
    try:
        if Path(path).suffix == ".parquet":
            try_table(data, str(path))
            frame = read_frame(data, str(path))
        else:
            frame = pl.read_csv(data, infer_schema=False)  # ids such as 007 stay texts
            frame = frame.with_columns(pl.col("example").str.replace(GUARDED, "${1}"))
        found = frame.with_columns(pl.col("example").cast(pl.String))
        return found.select(*dict.fromkeys(["example", column])).drop_nulls()
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: expected columns 'example' and {column!r}: {reason}") from None


def read_scores(path: str | Path) -> dict[str, float]:
    """Difficulty scores from a CSV or Parquet file with columns ``example`` and ``score``."""
    found = read_column(path, "score", "difficulty scores")
    if found["example"].n_unique() < len(found):
        raise InputError(f"{path}: an example has two scores")
    try:
        return dict(zip(found["example"], found["score"].cast(pl.Float64), strict=True))
    except pl.exceptions.PolarsError:
        raise InputError(f"{path}: the column 'score' must hold numbers") from None


def scores_of(path: Path, examples: Sequence[str]) -> NDArray[np.float64]:
    """(N,) a finite score for each example, from a file; see ``of_examples``."""
    lacking = f"{path}: no finite difficulty score"
    found = np.array(of_examples(read_scores(path), examples, lacking))
    if not np.isfinite(found).all():
        raise InputError(f"{lacking} for example {examples[int(np.isfinite(found).argmin())]!r}")
    return found


def of_examples(known: Mapping[str, T], examples: Sequence[str], what: str) -> list[T]:
    """What is known of examples that a file names with or without ``DATA/`` in front."""
    found = []
    for example in examples:
        value = known.get(example, known.get(example.partition("/")[2]))
        if value is None:
            raise InputError(f"{what} for example {example!r}")
        found.append(value)
    return found
