"""Commands that write, struck at their calls of the file system: ``python -m tools.faults``."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.faults import WRITERS

pytest.importorskip("torch")
TOP = Path(__file__).parents[2]
QUICK = ("scrub", "card")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def strike(names, most):
    only = [word for name in names for word in ("--only", name)]
    command = [sys.executable, "-m", "tools.faults", "--json", "--most", str(most), *only]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["commands"] == len(names)
    bad = {key: found[key] for key in ("tracebacks", "differ", "leftovers", "half")}
    assert bad == dict.fromkeys(bad, 0), done.stderr
    return found


def test_a_few_faults_and_kills_are_made_good_by_running_again():
    found = strike(QUICK, most=3)
    assert found["faults"] == found["kills"] == 3 * len(QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in WRITERS if one.name not in QUICK])
def test_every_other_writer(name):
    strike([name], most=6)
