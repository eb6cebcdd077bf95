"""Files of charts: of the kind the name asks for; a page of one chart is offline and safe."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shiftbed.errors import InputError
from shiftbed.page import SUFFIXES, save
from shiftbed.page.document import chart_page, data_of
from shiftbed.results.charts.scatter import scatter
from shiftbed.testbed import Testbed
from tests.figures.test_charts import CHARTS

SIGNATURES = {
    ".png": b"\x89PNG\r\n\x1a\n",
    ".svg": b"<?xml",
    ".pdf": b"%PDF-",
    ".html": b"<!DOCTYPE html>",
}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_each_kind(small: Testbed, tmp_path: Path, suffix: str) -> None:
    for name in (f"a{suffix}", f"b{suffix.upper()}"):
        save(scatter(small, "s"), tmp_path / "new" / name, dpi=50)
        assert (tmp_path / "new" / name).read_bytes().startswith(SIGNATURES[suffix])
    assert len(list((tmp_path / "new").iterdir())) == 2


@pytest.mark.parametrize("name", ["a.gif", "a", "a.png.bak"])
def test_unknown_suffix(small: Testbed, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf, \.html"):
        save(scatter(small, "s"), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_importing_and_computing_loads_no_drawing_library() -> None:
    code = (
        "import sys, shiftbed.page; from shiftbed.results.charts.scatter import scatter\n"
        "from shiftbed.testbed import published\n"
        "scatter(published('openclip'), 'imagenet-r')\n"
        "print([m for m in ('matplotlib', 'torch') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("number", range(len(CHARTS)))
def test_a_page_of_one_chart_loads_nothing_and_names_are_data(number: int) -> None:
    text = chart_page(CHARTS[number])
    assert "<img" not in text
    assert "onerror" in json.dumps(data_of(text))
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]


def test_a_chart_in_its_page_has_all_its_numbers(small: Testbed) -> None:
    chart = scatter(small, "s")
    data = data_of(chart_page(chart))["charts"][0]["chart"]
    assert data["type"] == "scatter"
    assert data["x_axis"]["scale"] == "logit"
    assert data["effective"] == pytest.approx(chart.effective.tolist())
    assert data["trends"][0]["predicted"] == pytest.approx(chart.trends[0].predicted.tolist())
