"""The figures of taori2020, each by the line that its page gives."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftbed.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "taori2020.md"
LINES = re.findall(r"^shiftbed (plot .*)$", PAGE.read_text(encoding="utf-8"), re.M)
WANTED = {"5", "6", "7", "9", "10", "11", "12", "13", "14", "23", "31"}


def test_every_figure_has_a_line():
    assert {re.search(r"figure-(\d+)", line)[1] for line in LINES} >= WANTED


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.rpartition(" ")[2])
def test_a_line_makes_its_chart(line, monkeypatch):
    """Computed, not drawn: what is drawn is tested elsewhere."""
    made = []
    monkeypatch.setattr("shiftbed.page.plot.save", lambda chart, path, **_: made.append(chart))
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 0, done.exception
    assert len(made) == 1
