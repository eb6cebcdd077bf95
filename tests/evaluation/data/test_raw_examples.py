"""Raw labels of any kind become class numbers in one way."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.data.raw_examples import encode, shown


@pytest.mark.parametrize(
    ("raw", "classes", "expected"),
    [
        ([2, 0, None], None, [2, 0, -1]),
        (["2", " 0 ", ""], None, [2, 0, -1]),
        (["b", "a", None], None, [1, 0, -1]),
        (["b", "a"], ("x", "a", "b"), [2, 1]),
        (["1", "0"], ("1", "0"), [0, 1]),  # names that look like numbers are names
        (["1", "0"], ("cat", "dog"), [1, 0]),
        ([1.0, 2.0], None, [1, 2]),
        (np.array([3, 1], np.uint8), None, [3, 1]),
        (np.array([b"b", b"a"]), None, [1, 0]),
        ([None, None], None, [-1, -1]),
    ],
)
def test_one_label(raw, classes, expected):
    labels = encode(raw, classes, "here")
    assert labels.one.tolist() == expected
    assert labels.one.dtype == np.int64
    assert labels.sets is None


def test_sets_of_labels():
    assert encode([[3, 1, 3], [], None, 2], None, "here").sets == ((1, 3), (), (), (2,))
    names = encode([["b"], ["b", "a"]], None, "here")
    assert (names.sets, names.classes) == (((1,), (0, 1)), ("a", "b"))
    assert encode([[], [-1, 4]], None, "here").sets == ((), (4,))
    assert encode([[" 3"], np.array([1, 2])], None, "here").sets == ((3,), (1, 2))


@pytest.mark.parametrize(
    "raw",
    [
        [1, "a"],
        ["a", 1],
        [1.5],
        [True],
        [{"x": 1}],
        [float("nan")],
        [2**70],
        [-2],
        [[1, [2]]],
        [[1], [-2]],
        ["x", "3", 3],
    ],
)
def test_what_is_no_label(raw):
    with pytest.raises(InputError, match="here") as caught:
        encode(raw, None, "here")
    assert "\n" not in str(caught.value)


def test_numbers_beyond_the_classes():
    with pytest.raises(InputError, match="label 2 is no class, expected 0 to 1"):
        encode([0, 2], ("a", "b"), "here")


def test_values_in_messages_stay_short():
    assert len(shown("x" * 1000)) < 200
    assert "\n" not in shown("a\nb")
