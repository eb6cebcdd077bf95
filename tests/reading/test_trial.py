"""A file that ends the process that reads it is refused in one line."""

import io
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.reading import trial
from shiftbed.reading.tables import read_bytes, read_table
from shiftbed.testbed import read_testbed

ABORTS = Path(__file__).with_name("aborts.parquet")
"""A table with a few flipped bits, on which polars ends the process (SIGABRT, 2.1)."""


DIES = """
import json, os, shiftbed.reading.trial as trial
trial._said = lambda asked, data: os.kill(os.getpid(), {})
trial.serve()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trials"


@pytest.fixture
def dying(monkeypatch):
    """From when it is called, every reader dies, by a signal."""

    def die(number):
        trial.stop()
        monkeypatch.setattr(trial, "_HELPER", DIES.format(int(number)))

    yield die
    trial.stop()


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "own.parquet"
    pl.DataFrame({"model": ["a", "b"], "val": [0.5, 0.6]}).write_parquet(path)
    return path


def test_the_file_does_end_a_process_that_merely_reads_it():
    code = f"import polars; polars.read_parquet({str(ABORTS)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGABRT  # else another such file is needed


def test_every_reader_of_tables_refuses_it(cache):
    refused = pytest.raises(InputError, match=r"aborts\.parquet.* its reader ends with SIGABRT$")
    with refused:
        read_table(str(ABORTS), read_bytes(ABORTS))
    with refused:
        read_testbed(ABORTS)
    with refused:
        trial.try_rows(ABORTS, str(ABORTS))
    assert not cache.exists()


def test_the_command_refuses_it_in_one_line(tmp_path):
    command = "from shiftbed.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "import", str(ABORTS), "-o", str(tmp_path / "o.parquet")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "o.parquet").exists()


def test_a_good_file_is_tried_once_wherever_it_is(table, tmp_path, cache, dying):
    assert read_table(str(table), read_bytes(table)).frame.height == 2
    assert len(list(cache.iterdir())) == 1
    dying(signal.SIGABRT)
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(table.read_bytes())
    assert read_table(str(copy), read_bytes(copy)).frame.height == 2
    pl.DataFrame({"model": ["a"], "val": [0.7]}).write_parquet(copy)
    with pytest.raises(InputError, match="its reader ends with SIGABRT"):
        read_table(str(copy), read_bytes(copy))


def test_what_is_wrong_with_a_file_is_said_by_the_child(table):
    data = table.read_bytes()
    with pytest.raises(InputError, match=r"^mine: not a readable Parquet file: "):
        trial.try_table(data[:-20], "mine")


def test_files_of_the_package_are_not_tried(dying):
    dying(signal.SIGABRT)
    own = next((Path(trial.__file__).parents[1] / "published_tables").glob("*.parquet"))
    assert len(read_testbed(own).models)


def test_no_module_beside_the_file_is_imported(table, tmp_path, monkeypatch):
    """The child does not look for polars where the user happens to be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    (tmp_path / "polars.py").write_text("open('executed', 'w')\n")
    trial.stop()  # a new one is started here
    trial.try_table(table.read_bytes(), "mine")
    assert not (tmp_path / "executed").exists()


def test_images_whose_reader_dies(table, dying):
    trial.try_images(table, "images.parquet")
    dying(signal.SIGSEGV)
    trial.try_images(table, "images.parquet")  # remembered
    pl.DataFrame({"image": [b"x"]}).write_parquet(table)
    with pytest.raises(InputError, match=r"^images\.parquet: .* its reader ends with SIGSEGV$"):
        trial.try_images(table, "images.parquet")


def test_a_helper_that_is_killed_is_started_again(table, cache):
    trial.try_table(table.read_bytes(), "mine")
    helper = trial._helpers[os.getpid()]
    helper.kill()
    helper.wait()
    with pytest.raises(InputError, match="SIGABRT"):
        trial.try_rows(ABORTS, "mine")


def test_several_threads_ask_at_once(tmp_path):
    def ask(number):
        file = io.BytesIO()
        pl.DataFrame({"model": [f"m{number}"]}).write_parquet(file)
        data = file.getvalue()
        trial.try_table(data, f"good {number}")
        with pytest.raises(InputError, match=f"^bad {number}: not a readable Parquet file"):
            trial.try_table(data[:-9] + bytes(9), f"bad {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(8)))
