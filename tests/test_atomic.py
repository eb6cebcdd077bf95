"""Files appear whole or not at all, and nothing is left behind."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import shiftbed as sb
from shiftbed import atomic
from shiftbed.atomic import abandoned, one_at_a_time, write_atomically
from shiftbed.errors import InputError, WriteError
from shiftbed.store.files import LocalFiles


def write(path, data=b"new"):
    with write_atomically(path) as file:
        file.write(data)


def half(path, error):
    with write_atomically(path) as file:
        file.write(b"half")
        raise error


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_new_file_replaces_the_old_one(tmp_path):
    write(tmp_path / "a", b"old")
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def fails(code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call, code):
    write(tmp_path / "a", b"old")
    monkeypatch.setattr(os, call, fails(code))
    with pytest.raises(WriteError, match=f"cannot write .*a: {os.strerror(code)}"):
        write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_temporary_file_that_cannot_be_removed_hides_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", fail)
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    with pytest.raises(ZeroDivisionError):
        half(tmp_path / "b", ZeroDivisionError())


def test_a_full_disk_while_writing(tmp_path):
    with pytest.raises(WriteError, match="No space left"):
        half(tmp_path / "a", OSError(errno.ENOSPC, "No space left on device"))
    assert names(tmp_path) == []


def test_an_error_of_the_caller_stays_what_it_is(tmp_path):
    with pytest.raises(ZeroDivisionError):
        half(tmp_path / "a", ZeroDivisionError())
    assert names(tmp_path) == []


def test_a_link_is_followed_and_stays(tmp_path):
    write(tmp_path / "real", b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_no_folder_is_made_by_a_link(tmp_path):
    """Of a folder from somebody else, whose links lead anywhere."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "file")
    with pytest.raises(InputError, match="link into a folder that is not there"):
        write(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    (tmp_path / "nowhere").mkdir()
    write(tmp_path / "link")
    assert (tmp_path / "nowhere" / "file").read_bytes() == b"new"


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="no regular file"):
            write(path)
    assert not os.path.isfile("/dev/null")
    (tmp_path / "a").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="cannot write"):
        write(tmp_path / "a")


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_replaces_none(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", fails(errno.EPERM))
    path = tmp_path / "file"
    for content in (b"first", b"second"):
        with suppress(FileExistsError), write_atomically(path, new=True) as file:
            file.write(content)
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_what_could_not_be_made_is_named_as_it_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fails(errno.ENOSPC))
    with pytest.raises(WriteError, match=r"cannot write .*/claims/a: No space left"):
        LocalFiles(tmp_path).create("claims/a", b"")


def test_a_file_system_without_modes(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "chmod", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no")))
    write(tmp_path / "a")
    assert names(tmp_path) == ["a"]


def test_files_of_dead_writers_go_when_their_folder_is_written_to_again(tmp_path, monkeypatch):
    code = (
        "import os, sys; from shiftbed.atomic import write_atomically\n"
        "with write_atomically(sys.argv[1]) as f: f.write(b'half'); f.flush(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False)
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".part"
    assert abandoned(tmp_path) == [left]
    with write_atomically(tmp_path / "b") as file:  # one that is being written stays
        file.write(b"x")
        atomic._swept.clear()
        write(tmp_path / "c")
    assert names(tmp_path) == ["b", "c"]


def test_a_young_file_of_another_machine_stays(tmp_path):
    other = tmp_path / ".a.elsewhere-1-00000000.part"
    other.write_bytes(b"")
    assert abandoned(tmp_path) == []
    os.utime(other, (0, 0))
    assert abandoned(tmp_path) == [other]


def test_of_several_at_once_one_makes_the_file_and_no_lock_stays(tmp_path):
    """Locks are of open files, so threads are kept apart as processes are."""
    path, made = tmp_path / "slow", []

    def make(number):
        with one_at_a_time(path):
            if not path.exists():
                made.append(number)
                write(path)
            return path.read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(make, range(40))) == {b"new"}
    assert len(made) == 1
    assert names(tmp_path) == ["slow"]


def test_a_folder_that_cannot_be_written_to_has_no_lock(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with one_at_a_time(tmp_path / "file" / "features"):
        pass


WRITERS = {
    "torch": "import torch; torch.save({'a': torch.zeros(60_000)}, file)",
    "numpy": "import numpy; numpy.savez(file, a=numpy.zeros(60_000))",
    "polars": "import polars as pl; "
    "pl.DataFrame({'a': numpy.random.rand(60_000)}).write_parquet(file)",
    "plain": "[file.write(b'x' * 1000) for _ in range(400)]",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_named_whichever_library_writes(tmp_path, writer):
    """A limit on the size of files stands for the disk: the kernel refuses the same calls."""
    code = (
        "import resource, signal, sys; from shiftbed.atomic import write_atomically; "
        "from shiftbed.errors import WriteError; import numpy; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    with write_atomically(sys.argv[1]) as file:\n"
        f"        {WRITERS[writer]}\n"
        "except WriteError as error:\n"
        "    print(error)\n"
    )
    if writer == "torch":
        pytest.importorskip("torch")
    place = tmp_path / "made"
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"cannot write {place}: File too large\n", done.stderr
    assert names(tmp_path) == []


def leave(path):
    """A temporary file, as a writer leaves it that is killed."""
    code = (
        "import sys; from shiftbed.atomic import temporary_name; print(temporary_name(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, path.name]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    path.parent.mkdir(exist_ok=True)
    (path.parent / made.stdout.strip()).write_bytes(b"{")


def test_what_a_writer_left_beside_a_store_that_is_made_goes(tmp_path):
    leave(tmp_path / "store" / "store.json")
    files = LocalFiles(tmp_path / "store")
    with files.lock(alone=False):
        pass
    assert names(tmp_path / "store") == [".lock"]


def test_a_folder_with_nothing_but_a_killed_writers_file_is_empty(tmp_path):
    pixels = np.arange(2 * 64, dtype=np.uint8).reshape(2, 8, 8)
    np.savez(tmp_path / "val.npz", images=pixels, labels=[0, 1])
    leave(tmp_path / "out" / "manifest.json")
    sb.corrupt(tmp_path / "val.npz", tmp_path / "out", corruptions=["contrast:1"])
    assert not list((tmp_path / "out").rglob("*.part"))
