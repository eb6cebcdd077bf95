import io
import json
import tarfile

import pytest

from shiftbed.captioning.sources import Asked, Problems, read_tar
from shiftbed.errors import InputError


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def read(path, **asked):
    problems = Problems()
    rows = [r for f in read_tar(path, Asked(**asked), problems) for r in f.iter_rows(named=True)]
    return rows, dict(problems)


def test_text_and_json_members(tmp_path):
    path = write_tar(
        tmp_path / "shard.tar",
        [
            ("a.jpg", b"IMAGE"),
            ("a.txt", b"a dog"),
            ("a.json", json.dumps({"caption": "other", "tags": ["sea", "lion"]}).encode()),
            ("b.json", json.dumps({"caption": "a fox", "url": "http://b"}).encode()),
            ("b.png", b"PICTURE"),
            ("c.txt", b"no image"),
            ("d.jpg", b"x"),
            ("d.txt", b"d\xffg"),
            ("e.jpg", b"x"),
            ("e.json", b"[1]"),
        ],
    )
    rows, problems = read(path)
    assert [(r["id"], r["text"], r["tags"]) for r in rows] == [
        ("shard/a", "a dog", "sea | lion"),
        ("shard/b", "a fox", None),
        ("shard/d", "d\ufffdg", None),
        ("shard/e", None, None),
    ]
    assert rows[1]["url"] == "http://b"
    assert problems == {"no_image": 1, "invalid_utf8": 1, "malformed": 1}
    with path.open("rb") as file:
        file.seek(rows[0]["offset"])
        assert file.read(rows[0]["size"]) == b"IMAGE"


def test_a_named_column_comes_first(tmp_path):
    path = write_tar(
        tmp_path / "s.tar",
        [("a.jpg", b"x"), ("a.txt", b"dog"), ("a.json", b'{"alt": "fox", "uid": 7}')],
    )
    rows, _ = read(path, text="alt", id="uid")
    assert (rows[0]["text"], rows[0]["id"]) == ("fox", "7")


def test_too_long_and_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftbed.captioning.sources.BATCH", 2)
    members = [(f"{i}.{e}", d) for i in range(5) for e, d in (("jpg", b"x"), ("txt", b"dog"))]
    path = write_tar(tmp_path / "s.tar", [*members, ("9.jpg", b"x"), ("9.txt", b"z" * 200_000)])
    rows, problems = read(path)
    assert [r["row"] for r in rows] == [0, 1, 2, 3, 4, 5]
    assert problems == {"too_long": 1}
    assert rows[5]["text"] is None


@pytest.mark.parametrize("data", [b"", b"no tar", b"\x1f\x8b" + b"0" * 600])
def test_damaged_files(tmp_path, data):
    (tmp_path / "s.tar").write_bytes(data)
    with pytest.raises(InputError, match="uncompressed tar"):
        read(tmp_path / "s.tar")


def test_a_tar_that_is_cut_off(tmp_path):
    path = write_tar(tmp_path / "s.tar", [("a.jpg", b"x" * 5000), ("a.txt", b"dog" * 1000)])
    path.write_bytes(path.read_bytes()[:7000])
    with pytest.raises(InputError, match="uncompressed tar"):
        read(path)
