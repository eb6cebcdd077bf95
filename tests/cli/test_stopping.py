"""Ctrl-C and a request to end: one line, exit 130 or 143, no traceback, nothing half-written."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import pytest

from shiftbed.cli import main

SLOW = """
import pathlib
import time

def wait():
    pathlib.Path(__file__).with_name("begun").touch()
    time.sleep(60)

def answer(pixels):
    if pixels.any():  # not the empty image that asks for the number of classes
        wait()
    return pixels.reshape(len(pixels), -1)[:, :2]

answer.preprocessing = {"size": (8, 8), "mode": "L", "crop": "none"}

def stripes(x, ids, severity, seed):
    wait()
    return x

def net():
    from torch import nn

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(64, 2)

        def forward(self, x):
            if x.any():
                wait()
            return self.last(x.flatten(1))

    made = Slow()
    made.preprocessing = {"size": (8, 8), "mode": "L", "crop": "none"}
    return made
"""
TESTBED = """
[[models]]
id = "python:slow.py:answer"
[[test_sets]]
name = "val"
path = "val.npz"
"""
RECIPE = """
[data.val]
path = "val.npz"
[[test_sets]]
name = "val"
path = "val.npz"
[[grid]]
model = "python:slow.py:net()"
data = "val"
optimiser = {name = "SGD", lr = 0.1}
steps = 2
batch_size = 8
"""
program = sys.modules["shiftbed.cli.main"]


@contextmanager
def handlers_kept():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


CASES = {
    "eval": (["eval", "python:slow.py:answer", "val.npz"], signal.SIGINT),
    "run": (["run", "testbed.toml", "--allow-code"], signal.SIGTERM),
    "processes": (["run", "testbed.toml", "--allow-code", "--runner", "processes"], signal.SIGINT),
    "train": (["train", "recipe.toml", "--allow-code"], signal.SIGTERM),
    "probe": (["probe", "python:slow.py:answer", "val.npz", "--pairs", "2"], signal.SIGINT),
    "corrupt": (
        ["corrupt", "val.npz", "out", "--corruption", "python:slow.py:stripes:1"],
        signal.SIGTERM,
    ),
}


@pytest.mark.parametrize("which", CASES)
def test_every_command_stops_in_one_line(tmp_path, which):
    command, number = CASES[which]
    pixels = np.random.default_rng(0).integers(1, 256, (8, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "val.npz", images=pixels, labels=np.arange(8) % 2)
    for name, text in (("slow.py", SLOW), ("testbed.toml", TESTBED), ("recipe.toml", RECIPE)):
        (tmp_path / name).write_text(text)
    child = subprocess.Popen(
        [sys.executable, "-c", "from shiftbed.cli import main; main()", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for _ in range(2400):
            if (tmp_path / "begun").exists() or child.poll() is not None:
                break
            time.sleep(0.05)
        if number == signal.SIGINT:  # as a terminal does: to all of its processes
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
        _, errors = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    assert child.returncode == 128 + number, errors
    assert errors.splitlines() == ["shiftbed: stopped; what is written is whole"]
    assert not [path for path in tmp_path.rglob("*") if ".part" in path.name]


def test_a_stop_that_native_code_takes_for_an_error(monkeypatch, capsys):
    """As an extension module does that is being loaded: ImportError, initialization failed."""

    def load():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except SystemExit:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(program, "app", load)
    monkeypatch.setattr(program, "_stops", [])
    monkeypatch.setattr(sys, "argv", ["shiftbed", "plot"])
    with handlers_kept(), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 143
    assert capsys.readouterr().err == "shiftbed: stopped; what is written is whole\n"


def test_a_library_that_cannot_be_loaded_is_one_line(monkeypatch, capsys, tmp_path):
    def load():
        raise ImportError("undefined symbol: made")

    monkeypatch.setattr(program, "app", load)
    monkeypatch.setattr(sys, "argv", ["shiftbed", "plot"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with handlers_kept(), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "unexpected error: ImportError: undefined symbol: made" in line


def test_ctrl_c_while_the_program_is_loaded():
    code = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "shiftbed.cli.lines":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from shiftbed.cli import main
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "shiftbed: stopped\n")
