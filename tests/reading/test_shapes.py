"""What a JSON value must look like."""

import pytest

from shiftbed.reading.shapes import any_text, count, misfit, plain, real, text, whole


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        (whole, (0, -5, 2**63 - 1), (True, 1.0, "1", 2**63, None)),
        (count, (0, 10), (-1, 2**31, False)),
        (real, (0.5, 3), (float("nan"), float("inf"), 10**400, "0.5")),
        (text, ("a",), ("", "\ud800", "a\0", 3)),
        (any_text, ("", "é"), ("\udfff", None)),
        (plain, ({"a": [1, None, 0.5]},), ({"a": 10**400}, {"\ud800": 1}, [["\0"]])),
        (int, (3,), (True, 0.5)),
        ((None, text), (None, "a"), (3, "")),
        ([count], ([], [1]), ([-1], {}, None)),
    ],
)
def test_what_fits(shape, good, bad):
    assert [misfit(one, shape) for one in good] == [None] * len(good)
    assert None not in [misfit(one, shape) for one in bad]


def test_the_place_is_named():
    shape = {"models": {"*": {"kind?": text}}, "n?": count}
    assert misfit({"models": {"a": {}}, "more": 1}, shape) is None
    assert misfit({"models": {"a": {"kind": 3}}}, shape) == "models.a.kind"
    assert misfit({"models": [], "n": 1}, shape) == "models"
    assert misfit({"models": {}, "n": -1}, shape) == "n"
    assert misfit({}, shape) == "models"
    assert misfit(3, shape) == "it"
