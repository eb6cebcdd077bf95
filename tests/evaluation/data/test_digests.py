"""The cache of digests is right or silent."""

import hashlib
import os
import sqlite3

import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.data import digests, open_test_set
from shiftbed.evaluation.data.digests import NOTHING, DigestCache, cached, hash_file


@pytest.fixture
def settled(monkeypatch):
    """Files count as settled at once."""
    monkeypatch.setattr(digests, "_SETTLED", -(10**18))


def counting(calls):
    def compute(part):
        calls.append(part[0].name)
        return hash_file(part[0])

    return compute


def test_a_file_and_no_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert hash_file(tmp_path / "a") == hashlib.sha256(b"abc").digest()
    assert hash_file(tmp_path / "b") == hash_file(tmp_path) == NOTHING


def test_kept_until_the_file_changes(tmp_path, settled):
    cache = DigestCache(tmp_path / "cache" / "digests.sqlite")
    parts = [(tmp_path / name, "") for name in "abc"]
    for path, _ in parts:
        path.write_bytes(path.name.encode())
    calls: list[str] = []
    first = cached(parts, counting(calls), cache)
    assert cached(parts, counting(calls), cache) == first
    assert sorted(calls) == ["a", "b", "c"]
    stat = os.stat(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"X")  # the same size, and the same time of change as before
    os.utime(tmp_path / "b", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = cached(parts, counting(calls), cache)
    assert second == [first[0], hashlib.sha256(b"X").digest(), first[2]]
    assert calls[3:] == ["b"]


def test_just_written_files_are_not_kept(tmp_path):
    cache = DigestCache(tmp_path / "digests.sqlite")
    (tmp_path / "a").write_bytes(b"a")
    calls: list[str] = []
    for _ in range(2):
        cached([(tmp_path / "a", "")], counting(calls), cache)
    assert calls == ["a", "a"]


def test_missing_files_are_not_kept(tmp_path, settled):
    cache = DigestCache(tmp_path / "digests.sqlite")
    part = (tmp_path / "a", "")
    assert cached([part], counting([]), cache) == [NOTHING]
    part[0].write_bytes(b"a")
    assert cached([part], counting([]), cache) == [hashlib.sha256(b"a").digest()]


def test_a_test_set_with_a_cache(folder, tmp_path, settled):
    plain = open_test_set(folder)
    for _ in range(2):
        kept = open_test_set(folder, cache=tmp_path / "digests.sqlite")
        assert kept.fingerprint == plain.fingerprint
    with sqlite3.connect(tmp_path / "digests.sqlite") as connection:
        assert connection.execute("SELECT COUNT(*) FROM digests").fetchone() == (6,)
    connection.close()
    (folder / "china" / "0.jpg").write_bytes(b"other")
    assert open_test_set(folder, cache=tmp_path / "digests.sqlite").fingerprint != plain.fingerprint


def test_not_a_cache(tmp_path):
    (tmp_path / "x").write_text("this is text, and long enough not to be taken for a database")
    with pytest.raises(InputError, match="cannot be used as a cache"):
        DigestCache(tmp_path / "x")
