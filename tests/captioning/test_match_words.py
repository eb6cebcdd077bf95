import re
import unicodedata

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.captioning import match
from shiftbed.captioning.match import normal_forms, plurals, singulars


def forms(name):
    return match.forms(normal_forms(pl.Series([name])).item())


LETTERS = "aZßéΣſıİ中한²Ⅷ\u0301 \t\n_+-'’‐.,;|/#\0\u200d😀ﬁﾄﾞ"
SEPARATES = set("_+-'’‐")


def slowly(text):
    """The normal form, character by character."""
    words = [""]
    for c in unicodedata.normalize("NFKC", text).lower():
        if unicodedata.category(c)[0] in "LNM":
            words[-1] += c
        elif c.isspace() or c in SEPARATES:
            words.append("")
        elif words[-2:] != ["|", ""]:
            words += ["|", ""]
    kept = [w for w in words if w]
    merged = [w for i, w in enumerate(kept) if w != "|" or kept[i - 1 : i] != ["|"]]
    return " ".join(["", *merged, ""]) if merged else " "


@given(st.lists(st.text(LETTERS, max_size=30), max_size=5))
def test_normal_forms_are_what_is_written(texts):
    got = normal_forms(pl.Series(texts, dtype=pl.String)).to_list()
    assert [re.sub(r"( \|)+", " |", one) for one in got] == [slowly(text) for text in texts]


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("dog", "dogs"),
        ("finch", "finches"),
        ("fox", "foxes"),
        ("butterfly", "butterflies"),
        ("monkey", "monkeys"),
        ("wolf", "wolves"),
        ("knife", "knives"),
        ("potato", "potatoes"),
        ("mouse", "mice"),
        ("goose", "geese"),
        ("fireman", "firemen"),
        ("bus", "buses"),
        ("glass", "glasses"),
        ("horse", "horses"),
        ("cheese", "cheeses"),
    ],
)
def test_plurals_go_both_ways(one, many):
    assert many in plurals(one)
    assert one in singulars(many)
    assert f" {many} " in forms(one)
    assert f" {one} " in forms(many)


@pytest.mark.parametrize("word", ["bass", "octopus", "iris", "lens", "gas", "cat", "is"])
def test_an_s_of_its_own_is_no_plural(word):
    assert singulars(word) == set()


def test_only_the_last_word_changes():
    assert " sea lions " in forms("Sea lion")
    assert not any("seas" in form for form in forms("sea lion"))


def test_names_without_words_have_no_form():
    assert forms("...") == forms("") == []
    assert normal_forms(pl.Series(["!?"])).item() == " | "
