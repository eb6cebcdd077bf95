"""The notebook: forty lines, no file before a result, and every step of it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "notebook.py"


def test_it_is_short_and_writes_nothing_before_it_shows_something():
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40
    first = next(i for i, line in enumerate(lines) if line.startswith("print("))
    written = [i for i, line in enumerate(lines) if "savefig" in line or ".html" in line]
    assert first < min(written)


def test_it_runs(tmp_path):
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for shown in (
        "val+pgd-linf:8/255",
        "new+contrast:2",
        "nll",
        "resnet50_augmix",
        "jacobian_norm",
    ):
        assert shown in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notebook.html", "notebook.png"]
    assert (tmp_path / "notebook.png").stat().st_size > 20_000
