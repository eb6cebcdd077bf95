"""``save`` writes what the name asks for, and importing draws nothing in."""

import subprocess
import sys
from pathlib import Path

import pytest

from shiftbed.errors import InputError
from shiftbed.page import SUFFIXES, save
from shiftbed.results.charts.scatter import scatter
from shiftbed.testbed import Testbed

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
        "print([m for m in ('matplotlib', 'plotly', 'torch') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
