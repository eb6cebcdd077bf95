import csv
import io
import tarfile

import pytest
import webdataset.shardlists
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.reading.streams import braces, delimited_rows, expand, tar_members

FIELD = st.text('ab," é|', max_size=6)


def rows(text, **options):
    return list(delimited_rows(enumerate(text.split("\n"), 1), ",", **options))


@given(st.lists(st.lists(FIELD, min_size=2, max_size=4), max_size=6))
def test_fields_are_those_of_the_csv_module(table):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    found = [fields for _, fields in rows(out.getvalue().removesuffix("\n")) if fields != [""]]
    assert found == [list(row) for row in table]


def test_a_row_that_cannot_be_made_out_costs_its_line_only():
    assert rows('a,"b\nc,d\ne,"f"') == [
        (1, "',' expected after '\"'"),
        (2, ["c", "d"]),
        (3, ["e", "f"]),
    ]
    assert rows('a,"b\nc,d')[0] == (1, "a quote is never closed")
    assert [line for line, _ in rows('a,"b\nc,d')] == [1, 2]


def test_how_far_a_quote_may_reach():
    text = 'a,"' + "b\n" * 50 + '",c'
    assert len(rows(text)) == 1
    assert rows(text, longest=20)[0] == (1, "a quote is never closed")


def test_blanks_before_quotes_and_lines_as_rows():
    assert rows('a, "b, c"', skip_spaces=True) == [(1, ["a", "b, c"])]
    assert rows('a, "b, c"') == [(1, ["a", ' "b', ' c"'])]
    assert rows('a,"say ""x""",5" pipe', spans=False) == [(1, ["a", 'say "x"', '5" pipe'])]


def test_members_are_read_in_place(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in (("1.txt", b"one"), ("2.txt", b"two")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert [(member.name, read()) for member, read in tar_members(path)] == [
        ("1.txt", b"one"),
        ("2.txt", b"two"),
    ]
    cut = tmp_path / "cut.tar"
    cut.write_bytes(path.read_bytes()[:514])
    with pytest.raises(InputError, match=r"cut\.tar: cannot be read as an uncompressed tar"):
        [read() for _, read in tar_members(cut)]
    with pytest.raises(InputError, match="no such file"):
        list(tar_members(tmp_path / "none.tar"))


@pytest.mark.parametrize(
    "pattern", ["a-{000..012}.tar", "{a,b}/x-{8..11}.tar", "plain.tar", "{x,y}{1..2}"]
)
def test_as_webdataset_expands_them(pattern):
    assert braces(pattern) == list(webdataset.shardlists.expand_urls(pattern))


def test_files_in_order(tmp_path):
    for name in ("b.tar", "a.tar", "c.txt", "[x].tar"):
        (tmp_path / name).write_bytes(b"")
    assert [one.name for one in expand(f"{tmp_path}/*.tar")] == ["[x].tar", "a.tar", "b.tar"]
    assert [one.name for one in expand(f"{tmp_path}/{{b,a}}.tar")] == ["b.tar", "a.tar"]
    assert [one.name for one in expand(f"{tmp_path}/[x].tar")] == ["[x].tar"]


@pytest.mark.parametrize("pattern", ["{0..999999999}", "{0..999}{0..999}", "{2..1}", "{a,a}", "{}"])
def test_patterns_that_are_refused(pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        expand(pattern)
    assert "\n" not in str(caught.value)
