import csv
from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.importing import import_results
from shiftbed.reading.tables import find_delimiter, read_delimited, split_plain, split_quoted

LINES = ["model,val,v2", "resnet50,0.75,0.625", "vgg16,0.5,0.25"]
VALUES = [[0.75, 0.625], [0.5, 0.25]]


def check(path):
    bed = import_results([path])
    assert bed.settings == ("val", "v2")
    assert bed.model_names == ["resnet50", "vgg16"]
    assert bed.value.tolist() == VALUES


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old mac"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_and_delimiters(write, end, delimiter, last):
    text = end.join(LINES).replace(",", delimiter) + (end if last else "")
    check(write("a.csv", text))


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-8"])
def test_byte_order_marks(write, coding):
    check(write("a.csv", "\n".join(LINES).encode(coding)))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_where_commas_do_not_separate(write, delimiter):
    text = "\n".join(LINES).replace(",", delimiter).replace("0.", "0,")
    check(write("a.csv", text))


def test_decimal_commas_among_commas_are_refused(write, refused):
    hint = "semicolons or tabs"
    refused(write("a.csv", "model,val\nresnet50,0,75"), "line 2", "3 fields", hint)
    quoted = write("b.csv", 'model,val\nresnet50,"0,75"')
    refused(quoted, "line 2", "column 'val'", "'0,75'", hint)


def test_blank_lines_and_spaces_do_not_count(write):
    check(
        write("a.csv", "\n  \n model , val,v2\n\nresnet50 ,0.75, 0.625\n , ,\nvgg16,0.5,0.25\n\n")
    )


def test_trailing_empty_columns_do_not_count(write):
    check(write("a.csv", "model,val,v2,,\nresnet50,0.75,0.625,,\nvgg16,0.5,0.25,,\n"))


def test_quotes_hold_delimiters_line_ends_and_quotes(write):
    text = 'model,note,val\n"a, ""b""","two\nlines",0.5\n"c", "x",0.25\n'
    bed = import_results([write("a.csv", text)])
    assert bed.model_names == ['a, "b"', "c"]
    assert bed.models["note"].to_list() == ["two\nlines", "x"]


def test_line_numbers_count_every_line(write, refused):
    text = 'model,note,val\n\na,"two\nlines",0.5\n\nb,x,oops\n'
    refused(write("a.csv", text), "line 6", "column 'val'", "'oops'")
    refused(write("b.csv", "\n\nmodel,val\n\na,0.5\n\nb,oops\n"), "line 7", "'oops'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        (" \n\n", ["empty"]),
        (",,\n", ["no column", "name"]),
        ('"",""\n', ["no column", "name"]),
        ("model,val\n", ["header", "no row"]),
        ("model,val\na,0.5\nb\n", ["line 3", "1 field,", "header has 2"]),
        ("model,val\na,0.5\nb,0.5,0.6\n", ["line 3", "3 fields", "header has 2"]),
        ('model,val\n"a",0.5\nb\n', ["line 3", "1 field,", "header has 2"]),
        ('model,val\n"a,0.5\nb,0.5\n', ["line 2", "never closed"]),
        ('model,val\n"a"x,0.5\n', ["line 2", "expected after"]),
        ("model,val,val\na,0.5,0.5\n", ["two columns", "'val'"]),
        ("model,,val\na,3,0.5\n", ["column 2", "no name"]),
        ("model,Model,val\na,b,0.5\n", ["'model' and 'Model'"]),
    ],
)
def test_what_is_refused(write, refused, text, words):
    refused(write("a.csv", text), *words)


def test_huge_quoted_field(write, refused):
    refused(write("a.csv", 'model,val\n"' + "x" * 200_000 + '",0.5\n'), "line 2", "field")


def test_long_values_are_shortened_in_messages(write, refused):
    assert len(refused(write("a.csv", "model,val\na,0.5\nb," + "x" * 10_000), "line 3")) < 400


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("model;a, b;c\nx;1;2", ";"),
        ("model\ta,b\nx\t1", "\t"),
        ("model\nx", ","),
        ('"model;x",b\n1,2', ","),
        ("model,a;b,c\n1,2,3", ","),
    ],
)
def test_find_delimiter(text, delimiter):
    assert find_delimiter(text) == delimiter


@given(
    st.lists(
        st.text(st.sampled_from("ab1. ,;\t\n\u2028\x85\x0b'é"), max_size=12), min_size=1, max_size=8
    ),
    st.sampled_from([",", ";", "\t"]),
)
def test_plain_and_quoted_text_are_split_alike(lines, delimiter):
    text = "\n".join(lines)
    results = []
    for split in (split_plain, split_quoted):
        try:
            names, columns, at = split("x", text, delimiter)
            cells = [column.str.strip_chars().to_list() for column in columns]
            results.append(([name.strip() for name in names], cells, at.tolist()))
        except InputError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_numbers_equal_those_of_the_csv_module(write):
    rng = np.random.default_rng(0)
    table = rng.random((50, 20))
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow(["model", *(f"s{i}" for i in range(20))])
    writer.writerows([f"m{i}", *map(repr, row.tolist())] for i, row in enumerate(table))
    bed = import_results([write("a.csv", out.getvalue())])
    assert np.array_equal(bed.value, table)


def test_tables_keep_strings():
    table = read_delimited("x", "model,val\n a ,007\nb,\n")
    assert table.frame.rows() == [("a", "007"), ("b", None)]
    assert table.lines.tolist() == [2, 3]
