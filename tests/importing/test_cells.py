import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.importing.cells import fractions, looks_numeric, reals, truths, wholes
from shiftbed.importing.models import typed
from shiftbed.reading.tables import read_delimited


def column(*cells: str, delimiter: str = ";"):
    return read_delimited("f", f"x{delimiter}v\n" + "\n".join(f"r{delimiter}{c}" for c in cells))


@given(st.floats(0, 1))
def test_any_fraction_is_read_as_python_writes_it(value):
    assert fractions(column(repr(value)), "v", None)[0] == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), (".5", 0.5), ("1.", 1.0), ("5e-1", 0.5), ("+0.5", 0.5), ("0,5", 0.5), ("-0", 0)],
)
def test_numbers(text, value):
    assert reals(column(text), "v").to_list() == [value]


@pytest.mark.parametrize(
    "text",
    ["nan", "NaN", "inf", "-Infinity", "1_0", "0x1", "٣", "1 2", "1,2,3", "1.2.3", "e5", "%"],
)
def test_what_is_no_number(text):
    with pytest.raises(InputError, match=r"^f, line 2, column 'v': .* is not a number"):
        reals(column(text), "v")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("NaN", "leave the cell empty"),
        ("n/a", "leave the cell empty"),
        ("76.1 %", "--unit percent"),
        ("word", "not a number$"),
    ],
)
def test_hints(text, hint):
    with pytest.raises(InputError, match=hint):
        reals(column(text), "v")


@pytest.mark.parametrize("text", ["1.0001", "-0.1", "1e999", "50000"])
def test_what_is_no_fraction(text):
    with pytest.raises(InputError, match=r"^f, line 3, column 'v': .*"):
        fractions(column("0.5", text), "v", None)


def test_percent():
    assert fractions(column("76.13", "", "100"), "v", "percent").to_list() == [0.7613, None, 1.0]
    with pytest.raises(InputError, match=r"'100\.1' is not a percentage"):
        fractions(column("100.1"), "v", "percent")


def test_only_possible_percentages_are_taken_for_such():
    with pytest.raises(InputError, match="--unit percent"):
        fractions(column("76.13"), "v", None)
    for text, unit in (("2019", None), ("76.13", "fraction"), ("-3", None)):
        with pytest.raises(InputError) as caught:
            fractions(column(text), "v", unit)
        assert "percent" not in str(caught.value)


def test_values_that_are_no_accuracies_are_left_alone():
    mask = pl.Series([True, False])
    assert fractions(column("76", "-7.5"), "v", "percent", accuracy=mask).to_list() == [0.76, -7.5]


@pytest.mark.parametrize("text", ["50000", "50000.0", "+50000"])
def test_whole_numbers(text):
    assert wholes(column(text, ""), "v").to_list() == [50000, None]


@pytest.mark.parametrize(
    "text", ["50,000", "50.000", "5e4", "-1", "1.5", "2147483648", "9" * 30, "many"]
)
def test_what_is_no_size(text):
    with pytest.raises(InputError, match=r"^f, line 2, column 'v': .* is not a whole number"):
        wholes(column(text), "v")


def test_truths():
    assert (
        truths(column("true", "FALSE", "yes", "No", "1", "0"), "v").to_list() == [True, False] * 3
    )
    for text in ("maybe", ""):
        with pytest.raises(InputError, match=r"line 3, column 'v': .* neither true nor false"):
            truths(column("true", text), "v")


@pytest.mark.parametrize(
    ("cells", "yes"),
    [
        (["a", "b"], False),
        (["a", "0.5"], True),
        (["0,5"], True),
        (["NaN"], True),
        (["76 %"], True),
        (["22k", "3-augment", "1e"], False),
        (["", ""], False),
    ],
)
def test_what_looks_like_numbers(cells, yes):
    assert looks_numeric(column("a", *cells), "v") is yes


def test_typed():
    assert typed(pl.Series(["224", None, "384"])).to_list() == [224, None, 384]
    assert typed(pl.Series(["1,014.45", "305.08"])).to_list() == [1014.45, 305.08]
    assert typed(pl.Series(["1", "large"])).to_list() == ["1", "large"]
