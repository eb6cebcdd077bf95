"""Which class a caption names: all names of all classes looked for in one pass.

The *normal form* of a text is its words, lower case, one blank before, between and after them:
" golden retriever | dog ". Words are runs of letters, digits and marks (Unicode, after NFKC).
Blanks, underscores, plus signs, hyphens and apostrophes only separate words; everything else, such
as a comma, is a stop, written " | ", over which no name is matched. A name occurs in a text as
whole words if its normal form, in the singular or the plural, is a substring of the text's.

All normal forms go into one Aho–Corasick automaton (polars' ``extract_many``), so time grows with
the length of the captions and hardly with the number of names.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.captioning.classes import CaptionClass
from shiftbed.errors import InputError

NONE = -1
"""No class is named."""
AMBIGUOUS = -2
"""Several classes are named."""
Codes = NDArray[np.int32]
SOFT = r"\s_+\-'’‐"
"""What may stand between two words of one name."""
_HARD = rf"[^\p{{L}}\p{{N}}\p{{M}}{SOFT}]+"
_IRREGULAR = {
    "child": "children",
    "foot": "feet",
    "goose": "geese",
    "louse": "lice",
    "mouse": "mice",
    "ox": "oxen",
    "person": "people",
    "tooth": "teeth",
}
_NO_PLURAL = frozenset({"bus", "gas", "lens", "news", "christmas", "atlas", "canvas", "texas"})
"""Words whose last s is their own; so is that of words in -ss, -us and -is."""
_HISSING = ("s", "x", "z", "ch", "sh")


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
        for form in forms(name):
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


def normal_forms(texts: pl.Series) -> pl.Series:
    """Normal forms of many texts; null becomes empty.

    >>> normal_forms(pl.Series(["Golden-Retriever, DOG", None])).to_list()
    [' golden retriever | dog ', ' ']
    """
    text = pl.col("text")
    foreign = text.str.len_bytes() != text.str.len_chars()
    frame = pl.DataFrame({"text": texts.cast(pl.String).fill_null("")})
    if frame.select(foreign.any()).item():  # NFKC is slow and leaves ASCII as it is
        some = frame.filter(foreign)["text"].str.normalize("NFKC")
        rows = frame.select(foreign.arg_true()).to_series()
        frame = pl.DataFrame({"text": frame["text"].scatter(rows, some)})
    whole = (
        text.str.to_lowercase()
        .str.replace_all(_HARD, " | ")
        .str.replace_all(rf"[{SOFT}]+", " ")
        .str.strip_chars(" ")
    )
    spaced = pl.when(whole == "").then(pl.lit(" ")).otherwise(pl.format(" {} ", whole))
    return frame.select(spaced).to_series()


def plurals(word: str) -> set[str]:
    """How a word may look in the plural; several ways where English is not regular.

    >>> sorted(plurals("wolf")), sorted(plurals("berry")), sorted(plurals("finch"))
    (['wolfs', 'wolves'], ['berries'], ['finches'])
    """
    if word in _IRREGULAR:
        return {_IRREGULAR[word]}
    if word.endswith(_HISSING):
        return {word + "es"}
    if word.endswith("y") and word[-2:-1] not in set("aeiou") | {""}:
        return {word[:-1] + "ies"}
    found = {word + "s"}
    if word.endswith("o"):
        found.add(word + "es")
    if word.endswith("f"):
        found.add(word[:-1] + "ves")
    if word.endswith("fe"):
        found.add(word[:-2] + "ves")
    if word.endswith("man"):
        found.add(word[:-3] + "men")
    return found


def singulars(word: str) -> set[str]:
    """Words that have this plural; none where the last s belongs to the word."""
    for one, many in _IRREGULAR.items():
        if word == many:
            return {one}
    if word.endswith("men") and len(word) > 3:
        return {word[:-3] + "man"}
    if not word.endswith("s") or len(word) < 4 or word in _NO_PLURAL:
        return set()
    if word.endswith(("ss", "us", "is")):
        return set()
    guesses = {word[:-1]}
    if word.endswith("es"):
        guesses.add(word[:-2])
    if word.endswith("ies"):
        guesses.add(word[:-3] + "y")
    if word.endswith("ves"):
        guesses |= {word[:-3] + "f", word[:-3] + "fe"}
    return {guess for guess in guesses if word in plurals(guess)}


def forms(normal: str) -> list[str]:
    """The forms under which a name is found, from its normal form: its last word in the singular
    and the plural. A name without a letter or digit has none.

    >>> forms(" golden retriever ")
    [' golden retriever ', ' golden retrievers ']
    """
    words = normal.strip(" |").split(" ")
    if not words[0]:
        return []
    last = words[-1]
    ones = {last} | singulars(last)
    every = ones | {many for one in ones for many in plurals(one)}
    return sorted(" ".join(["", *words[:-1], word, ""]) for word in every)
