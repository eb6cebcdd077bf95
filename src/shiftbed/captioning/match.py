"""Which class a caption names: all names of all classes looked for in one pass.

Names with their word boundaries go into one Aho–Corasick automaton (polars' ``extract_many``), so
time grows with the length of the captions and hardly with the number of names.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.captioning.classes import CaptionClass
from shiftbed.captioning.words import normal_forms, with_plurals
from shiftbed.errors import InputError

NONE = -1
"""No class is named."""
AMBIGUOUS = -2
"""Several classes are named."""
Codes = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Matcher:
    """Normal forms of names, and the class each one stands for."""

    patterns: tuple[str, ...]
    classes: Codes
    """(patterns,): the class, or ``AMBIGUOUS`` where two classes share a name."""
    shared: tuple[str, ...]
    """Names that several classes have; they never decide."""

    def __call__(self, texts: pl.Series) -> Codes:
        """(n,) texts → (n,) class numbers: the only class named in a text, ``NONE`` or
        ``AMBIGUOUS``.

        >>> dog, fox = CaptionClass(name="dog"), CaptionClass(name="fox", synonyms=("vixen",))
        >>> make_matcher([dog, fox])(pl.Series(["Two DOGS.", "hotdog", "vixen, foxes", "dog, fox"]))
        array([ 0, -1,  1, -2], dtype=int32)
        """
        found = normal_forms(texts).str.extract_many(list(self.patterns), overlapping=True)
        counts = found.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        codes = np.full(len(texts), NONE, dtype=np.int32)
        rows = np.flatnonzero(counts)
        if not len(rows):
            return codes
        flat = found.filter(pl.Series(counts > 0)).explode()
        named = self.classes[flat.cast(pl.Enum(self.patterns)).to_physical().to_numpy()]
        starts = np.concatenate(([0], np.cumsum(counts[rows])[:-1]))
        low, high = np.minimum.reduceat(named, starts), np.maximum.reduceat(named, starts)
        codes[rows] = np.where(low == high, low, AMBIGUOUS)
        return codes


def make_matcher(classes: Sequence[CaptionClass]) -> Matcher:
    """A matcher for classes; numbers are places in the sequence."""
    owners: defaultdict[str, set[int]] = defaultdict(set)
    names = [(number, name) for number, one in enumerate(classes) for name in one.names]
    normal = normal_forms(pl.Series([name for _, name in names], dtype=pl.String))
    for (number, _), name in zip(names, normal, strict=True):
        for form in with_plurals(name):
            owners[form].add(number)
    if not owners:
        raise InputError("no class has a name with a letter or digit in it")
    patterns = tuple(sorted(owners))
    of_pattern = [
        next(iter(owners[form])) if len(owners[form]) == 1 else AMBIGUOUS for form in patterns
    ]
    shared = [form.strip() for form in patterns if len(owners[form]) > 1]
    return Matcher(
        patterns=patterns, classes=np.array(of_pattern, dtype=np.int32), shared=tuple(shared)
    )
