"""What counts as the same word: case, blanks and plurals.

The *normal form* of a text is its words, lower case, one blank before, between and after them:
" golden retriever | dog ". Words are runs of letters, digits and marks (Unicode, after NFKC).
Blanks, underscores, plus signs, hyphens and apostrophes only separate words; everything else, such
as a comma, is a stop, written " | ", over which no name is matched. A name occurs in a text as
whole words if its normal form is a substring of the text's.
"""

import polars as pl

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


def normal_form(text: str) -> str:
    """The normal form of one text.

    >>> normal_form("jack-o'-lantern")
    ' jack o lantern '
    """
    found: str = normal_forms(pl.Series([text], dtype=pl.String)).item()
    return found


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
    """Words that have this plural; none where the last s belongs to the word.

    >>> sorted(singulars("wolves")), sorted(singulars("dishes")), singulars("bass")
    (['wolf', 'wolfe', 'wolve'], ['dish', 'dishe'], set())
    """
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


def forms(name: str) -> list[str]:
    """Normal forms under which a name is found: its last word in the singular and the plural.

    A name without a letter or digit has none.

    >>> forms("Golden Retriever")
    [' golden retriever ', ' golden retrievers ']
    """
    return with_plurals(normal_form(name))


def with_plurals(normal: str) -> list[str]:
    """The same from a name's normal form."""
    words = normal.strip(" |").split(" ")
    if not words[0]:
        return []
    last = words[-1]
    ones = {last} | singulars(last)
    every = ones | {many for one in ones for many in plurals(one)}
    return sorted(" ".join(["", *words[:-1], word, ""]) for word in every)
