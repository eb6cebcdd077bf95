"""Killed again and again, the demo, a sweep and a Ray run end alike: ``python -m tools.kills``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
TOP = Path(__file__).parents[2]
NONE = {"demo": 0, "training": 0, "ray": 0}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "times"), [("training", 6), ("demo", 3), ("ray", 4)])
def test_what_is_killed_ends_as_what_is_not(name, times):
    if name == "ray":
        pytest.importorskip("ray")
    asked = [f"--{one}={count}" for one, count in (NONE | {name: times}).items()]
    command = [sys.executable, "-m", "tools.kills", "--json", *asked]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["kills"] == found[name]["kills"] >= times
    assert found[name]["ends"] >= 1
