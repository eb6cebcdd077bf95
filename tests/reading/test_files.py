"""Only regular files are opened, and what is in them is refused in one line."""

import io
import os
import tempfile
from pathlib import Path

import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.reading.files import read_file, read_frame, read_json, read_text


def parquet() -> bytes:
    out = io.BytesIO()
    pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}).write_parquet(out)
    return out.getvalue()


def test_pipes_devices_folders_and_broken_links_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("/nonexistent/file")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "loop", "nowhere", "device", ".", "nul\0"):
        with pytest.raises(InputError) as refused:
            read_file(tmp_path / name)
        assert "\n" not in str(refused.value)


def test_a_pipe_of_the_shell_is_read():
    read, write = os.pipe()
    os.write(write, b"model,val\n")
    os.close(write)
    assert read_file(f"/dev/fd/{read}") == b"model,val\n"
    os.close(read)


def test_json_and_text(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(path) == [1]
    for data, words in ((b"[" * 10**6, "nested"), (b"{", "not valid JSON"), (b"\xff", "UTF-8")):
        path.write_bytes(data)
        with pytest.raises(InputError, match=words):
            read_json(path)
    path.write_bytes(b"x" * 9)
    with pytest.raises(InputError, match="too large"):
        read_file(path, 8)
    assert read_text(path) == "x" * 9


def test_parquet_of_others(capfd):
    data = parquet()
    assert read_frame(data, "a", ["a", "none"]).columns == ["a"]
    said = []
    for at in range(0, len(data), 7):
        try:
            read_frame(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :], "a.parquet")
        except InputError as error:
            said.append(str(error))
    assert len(said) > 20
    assert all(one.startswith("a.parquet: ") and "\n" not in one for one in said)
    assert capfd.readouterr().err == ""  # no panic is printed


def test_what_the_footer_promises_is_bounded(monkeypatch):
    monkeypatch.setattr("shiftbed.reading.files.MOST_ROWS", 1)
    with pytest.raises(InputError, match="2 rows, more than 1"):
        read_frame(parquet(), "a")
    monkeypatch.setattr("shiftbed.reading.files.MOST_COLUMNS", 1)
    with pytest.raises(InputError, match="2 columns"):
        read_frame(parquet(), "a")


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
def test_a_pipe_in_memory_is_none_of_the_shells():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.mkfifo(Path(folder, "pipe"))
        with pytest.raises(InputError, match="not a file but a pipe"):
            read_file(Path(folder, "pipe"))
