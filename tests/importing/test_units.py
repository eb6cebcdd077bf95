"""Fractions and percentages never merge unnoticed."""

import numpy as np
import pytest

from shiftbed.importing import import_results
from tests.cli.in_process import shiftbed

PERCENT = "model,val,v2\na,76.1,63.2\nb,69.8,57.3\n"


def test_a_row_of_fractions_among_percentages(write, refused):
    path = write("a.csv", PERCENT + "mine,0.74,0.61\n")
    refused(
        path,
        *("a.csv, model 'mine': no value is above 1", "a.csv, line 2 has 76.1 in setting 'val'"),
        "--unit mine=fraction",
        unit="percent",
    )
    bed = import_results([path], unit="percent", units={"mine": "fraction"})
    assert bed.accuracy("val").tolist() == [76.1 / 100, 69.8 / 100, 0.74]
    chance = import_results([path], unit="percent", units={"mine": "percent"})
    assert chance.accuracy("v2")[2] == 0.61 / 100


def test_a_column_of_fractions_among_percentages(write, refused):
    path = write("a.csv", "model,val,v2\na,76.1,0.632\nb,69.8,0.573\n")
    refused(path, "setting 'v2'", "76.1 in setting 'val'", "--unit v2=fraction", unit="percent")
    bed = import_results([path], unit="percent", units={"v2": "fraction"})
    assert bed.accuracy("v2").tolist() == [0.632, 0.573]
    assert import_results([path], units={"val": "percent"}).value.tolist() == bed.value.tolist()


def test_a_file_of_fractions_beside_one_of_percentages(write, refused):
    one, two = write("a.csv", PERCENT), write("other.csv", "model,val,v2\nc,0.74,0.61\nd,0.8,0.7\n")
    files = [one, two]
    refused(files, "other.csv: no value is above 1", "a.csv, line 2 has 76.1", unit="percent")
    for units in ({"other.csv": "fraction"}, {str(two): "fraction"}, {"other": "fraction"}):
        bed = import_results(files, unit="percent", units=units)
        assert bed.accuracy("val").tolist() == [76.1 / 100, 69.8 / 100, 0.74, 0.8]
    bed = import_results(files, units={"a.csv": "percent"})
    assert bed.accuracy("v2").tolist() == [63.2 / 100, 57.3 / 100, 0.61, 0.7]


def test_one_fraction_in_a_column_of_percentages(write, refused):
    path = write("a.csv", "model,val,v2\na,76.1,63.2\nb,69.8,0.573\nc,80,71\n")
    words = ("a.csv, line 3: 0.573 in setting 'v2'", "line 2 has 63.2", "--unit v2=percent")
    refused(path, *words, unit="percent")
    assert import_results([path], units={"v2": "percent", "val": "percent"}).value[1, 1] == (
        pytest.approx(0.00573)
    )


def test_long_tables_are_watched_too(write, refused):
    head = "model,setting,value\n"
    rows = "a,val,76.1\na,v2,63.2\nb,val,69.8\nb,v2,57.3\n"
    mixed = write("a.csv", head + rows + "c,val,0.74\nc,v2,0.61\n")
    refused(mixed, "model 'c'", "--unit c=fraction", unit="percent")
    bed = import_results([mixed], unit="percent", units={"c": "fraction"})
    assert bed.accuracy("v2").tolist() == [63.2 / 100, 57.3 / 100, 0.61]


def test_percentages_may_be_small(write):
    """As on ImageNet-A: a few tenths of a percent, some percent, many percent."""
    path = write("a.csv", "model,val,hard\na,76.1,0.4\nb,69.8,1.5\nc,80,9\nd,88,0\n")
    assert import_results([path], unit="percent").accuracy("hard").tolist() == (
        pytest.approx([0.004, 0.015, 0.09, 0.0])
    )


def test_percent_signs_say_it_themselves(write, refused):
    path = write("a.csv", "model,val,v2\na,76.1%,0.632\nb,0.5 %,\nc,,0.5\n")
    bed = import_results([path])
    assert np.array_equal(
        bed.value, [[76.1 / 100, 0.632], [0.5 / 100, np.nan], [np.nan, 0.5]], equal_nan=True
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"units": {"vall": "percent"}}, "did you mean 'val'"),
        ({"units": {"val": "per cent"}}, "unknown unit 'per cent'"),
        ({"units": {"val": "fraction"}}, "'76.1' is not a fraction"),
    ],
)
def test_wrong_names_and_units(write, refused, options, why):
    refused(write("a.csv", PERCENT), why, "FILELESS", **{"unit": "percent"} | options)


def test_the_command_takes_both(write, tmp_path):
    write("a.csv", "model,val,v2\na,76.1,0.632\nb,69.8,0.573\nc,80,0.71\n")
    command = ("import", "a.csv", "-o", "a.parquet", "--unit", "percent")
    wrong = shiftbed(*command, cwd=tmp_path)
    assert wrong.returncode == 2
    assert "a.csv, setting 'v2'" in wrong.stderr
    assert "\n" not in wrong.stderr
    done = shiftbed(*command, "--unit", "v2=fraction", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    twice = shiftbed(*command, "--unit", "fraction", cwd=tmp_path)
    assert "--unit: percent and fraction" in twice.stderr
