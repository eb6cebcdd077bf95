"""Spoilt files are refused in one line, or used: a slice of ``python -m tools.fuzz``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
TOP = Path(__file__).parents[2]


def test_a_slice_of_the_fuzzing_and_all_that_failed_once():
    command = [sys.executable, "-m", "tools.fuzz", "--inputs", "150", "--regressions", "--json"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout)
    seeds = (TOP / "tests" / "fuzz" / "regressions.jsonl").read_text().count("\n")
    assert found["inputs"] == 150 + seeds
    bad = {key: found[key] for key in ("tracebacks", "hangs", "aborts", "half_written")}
    assert bad == dict.fromkeys(bad, 0), done.stderr
