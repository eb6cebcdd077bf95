"""Progress where there is no terminal: a line a minute, with rate and time left."""

from types import SimpleNamespace

import pytest

from shiftbed.cli import progress as module
from shiftbed.cli.progress import Progress, RunProgress, line


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(time=1000.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.time)
    return now


def cells(count, images):
    return [SimpleNamespace(key=(f"m{i}", "val"), title="", images=images) for i in range(count)]


def part(key, images):
    return SimpleNamespace(key=key, images=images, seconds=1.0)


def test_a_line_a_minute(clock, capsys):
    with Progress() as bars:
        bars.cells(cells(2, 6000))
        for _ in range(6):  # 100 images every 20 s: two minutes in all
            clock.time += 20
            bars.part(part(("m0", "val"), 100))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "2 cells: 300 of 12,000 images (2 %), 5 images/s, 39 min left",  # 11,700 images at 5/s
        "2 cells: 600 of 12,000 images (5 %), 5 images/s, 38 min left",
    ]


def test_quiet_says_nothing(clock, capsys):
    with Progress(quiet=True) as bars:
        bars.cells(cells(1, 100))
        clock.time += 300
        bars.part(part(("m0", "val"), 50))
    assert capsys.readouterr() == ("", "")


def test_training_counts_runs(clock, capsys):
    task = SimpleNamespace(key="a", job=SimpleNamespace(run="a", called="net · seed 0"))
    with RunProgress() as bars:
        bars.runs([task])
        clock.time += 90
        bars.part(SimpleNamespace(key="a", images=10, seconds=1.0, step=5, steps=10))
    assert capsys.readouterr().err == "1 runs: 0 of 1 runs (0 %)\n"


@pytest.mark.parametrize(
    ("done", "seconds", "left"),
    [(500, 50.0, "50 s"), (100, 60.0, "9 min"), (2, 60.0, "8.3 h")],
)
def test_time_left(done, seconds, left):
    assert line("x", "images", done, 1000, seconds).endswith(f", {left} left")
