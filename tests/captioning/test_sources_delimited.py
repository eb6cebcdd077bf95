import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.captioning import sources
from shiftbed.captioning.sources import Asked, Problems, read_delimited
from shiftbed.errors import InputError

FIELD = st.text('ab,"\n\r\té中 ', max_size=8)


def read(path, **asked):
    problems = Problems()
    frames = list(read_delimited(path, Asked(**asked), problems))
    rows = [row for frame in frames for row in frame.iter_rows(named=True)]
    return rows, dict(problems)


@given(st.lists(st.tuples(FIELD, FIELD), max_size=6))
def test_what_csv_wrote_is_read(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "c.csv"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["id", "caption"])
    kept = [(f"i{number}{a}", b) for number, (a, b) in enumerate(rows)]
    writer.writerows(kept)
    path.write_bytes(text.getvalue().encode())
    found, problems = read(path)
    assert [(row["id"], row["text"]) for row in found] == kept
    assert problems == {}


def test_lines_are_counted(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text('id,caption\na,"two\nlines"\n\nb,one\n')
    found, _ = read(path)
    assert [(row["row"], row["id"], row["text"]) for row in found] == [
        (2, "a", "two\nlines"),
        (5, "b", "one"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"x" * 10_000_000, "too_long"),
        (b"i,dog,more", "malformed"),
        (b"i", "malformed"),
        (b'i,"never closed', "malformed"),
        (b'i,"closed"twice"', "malformed"),
        (b"i,d\xffg", "invalid_utf8"),
        (b"i,\xc3", "invalid_utf8"),
    ],
)
def test_a_bad_line_costs_itself_only(tmp_path, line, problem):
    path = tmp_path / "c.csv"
    good = b"".join(b"%d,dog number %d\n" % (i, i) for i in range(5000))
    path.write_bytes(b"id,caption\n" + good + line + b"\n" + good)
    found, problems = read(path)
    assert problems == {problem: 1}
    assert len(found) == 10_000 + (problem == "invalid_utf8")


def test_the_longest_line_is_never_held(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftbed.captioning.sources.LONGEST", 100)
    path = tmp_path / "c.csv"
    path.write_bytes(b"id,caption\n" + b"x" * 1000 + b"\na,dog\n" + b"y" * 101)
    found, problems = read(path)
    assert [row["id"] for row in found] == ["a"]
    assert problems == {"too_long": 2}


def test_tabs_take_quotes_as_they_are(tmp_path):
    path = tmp_path / "c.tsv"
    path.write_text('id\tcaption\na\t5" pipe\nb\t"a ""big"" dog, fox"\nc\t"\n')
    found, problems = read(path)
    assert [row["text"] for row in found] == ['5" pipe', 'a "big" dog, fox', '"']
    assert problems == {}


def test_many_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftbed.captioning.sources.BATCH", 3)
    path = tmp_path / "c.csv"
    path.write_text("URL,TEXT\r\n" + "".join(f"http://{i},t{i}\r\n" for i in range(8)))
    frames = list(read_delimited(path, Asked(), Problems()))
    assert [len(frame) for frame in frames] == [3, 3, 2]
    assert frames[2]["url"].to_list() == ["http://6", "http://7"]
    assert frames[0].columns == list(sources.batch_frame({"row": []}).columns)


@pytest.mark.parametrize(
    ("text", "asked", "why"),
    [
        ("", {}, "empty"),
        ("id,words\n1,x\n", {}, "--text-column"),
        ("caption\nx\n", {}, "which image"),
        ("id,title,caption\n", {}, "title and caption; say which with --text-column"),
        ("id,caption\n", {"text": "captoin"}, "did you mean 'caption'"),
        ("id,key,caption\n", {}, "--id-column"),
    ],
)
def test_headers_that_do_not_decide(tmp_path, text, asked, why):
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read(path, **asked)


def test_columns_can_be_named(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("\ufeffnumber,title,description,usertags\n7,a,b,c\n")
    found, _ = read(path, text="description", id="number")
    assert (found[0]["id"], found[0]["text"], found[0]["tags"]) == ("7", "b", "c")
