"""Patterns of file names."""

import pytest
import webdataset.shardlists

from shiftbed.errors import InputError
from shiftbed.evaluation.data.patterns import braces, expand


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
