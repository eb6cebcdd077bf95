"""The peers that ``benchmarks.predictiveness`` times compute what we compute."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import predictiveness
from shiftbed.results.pairs.averages import matrix, study


def test_both_peers_and_we_agree():
    pairs = predictiveness.simulated()
    assert len(pairs) == 172
    some = [pairs[0], pairs[1], pairs[-1]]
    cells, calls = predictiveness.cell_by_cell(some), predictiveness.all_at_once(some)
    assert np.allclose(cells, calls)
    mean, ends = predictiveness.resampled(cells, [pair.task for pair in some])
    found = matrix(study(some))
    order = [found.metrics.index(name) for name in some[0].metrics]
    assert np.allclose(found.r[np.ix_(order, order)], mean)
    assert (ends[0] <= mean + 1e-12).all()


@pytest.mark.slow
def test_it_runs_and_is_faster():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.predictiveness", "--quick", "--json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["largest_difference_of_r"] < 1e-12
    assert found["ratio"] > 1
