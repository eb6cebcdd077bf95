import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.captions import captions, expressions, with_expressions, world
from shiftbed.captioning import AMBIGUOUS, NONE, CaptionClass, make_matcher
from shiftbed.errors import InputError

WORDS = ["dog", "dogs", "hot", "sea", "lion", "lions", "fox", "foxes", "leaf", "leaves", "ant", "é"]
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
CLASSES = st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=6)
GLUE = st.sampled_from(
    [" ", "-", "_", "+", "'", "\n", ", ", ".", "", "|", "\0", "  ", " - ", "'s "]
)
PIECES = st.tuples(st.sampled_from(WORDS), GLUE, st.booleans())
TEXTS = st.lists(PIECES, max_size=8).map(
    lambda pieces: "".join((w.upper() if loud else w) + glue for w, glue, loud in pieces)
)


def made(groups):
    return [CaptionClass(name=names[0], synonyms=tuple(names[1:])) for names in groups]


@given(CLASSES, st.lists(TEXTS, max_size=8))
def test_the_same_as_a_loop_of_regular_expressions(groups, texts):
    classes = made(groups)
    got = make_matcher(classes)(pl.Series(texts, dtype=pl.String))
    assert got.tolist() == with_expressions(expressions(classes), texts).tolist()


def test_the_same_on_a_thousand_classes():
    classes, words = world()
    texts = captions(120, classes, words, 5)
    expected = with_expressions(expressions(classes), texts)
    assert (make_matcher(classes)(pl.Series(texts)) == expected).all()
    assert (expected >= 0).sum() > 20
    assert (expected == AMBIGUOUS).sum() > 0


@given(CLASSES, st.lists(TEXTS, min_size=1, max_size=8), st.randoms())
def test_a_label_means_exactly_one_class(groups, texts, shuffle):
    """Each class alone: a label is adopted if and only if one of them says yes."""
    classes = made(groups)
    column = pl.Series(texts, dtype=pl.String)
    alone = np.stack([make_matcher([one])(column) == 0 for one in classes])
    expected = np.where(alone.sum(axis=0) == 1, alone.argmax(axis=0), AMBIGUOUS)
    expected[~alone.any(axis=0)] = NONE
    assert make_matcher(classes)(column).tolist() == expected.tolist()
    order = list(range(len(texts)))
    random.Random(shuffle.random()).shuffle(order)
    again = make_matcher(classes)(pl.Series([texts[i] for i in order], dtype=pl.String))
    assert again.tolist() == expected[order].tolist()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("A DOG.", 0),
        ("two dogs", 0),
        ("dog's", 0),
        ("hotdog", NONE),
        ("dogged", NONE),
        ("golden+retriever,dog", AMBIGUOUS),
        ("Golden-Retrievers!", 1),
        ("golden, retriever", NONE),
        ("golden\nretriever", 1),
        ("ｄｏｇ", 0),
        ("dog\0cat", 0),
        ("crane", AMBIGUOUS),
        ("", NONE),
        (None, NONE),
    ],
)
def test_examples(text, code):
    names = [["dog"], ["golden retriever"], ["crane"], ["hoist", "crane"]]
    matcher = make_matcher(made(names))
    assert matcher(pl.Series([text], dtype=pl.String)).tolist() == [code]
    assert matcher.shared == ("crane", "cranes")


def test_classes_without_names():
    with pytest.raises(InputError, match="no class has a name"):
        make_matcher([CaptionClass(name="...")])
