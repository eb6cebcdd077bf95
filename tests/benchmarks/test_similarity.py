"""The similarity benchmark compares like with like; its times are printed, never asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import similarity


def test_a_small_comparison_is_exact():
    top1, labels = similarity.simulated(9, 2000)
    found = similarity.compare(top1, labels, 9, 1)
    assert found["largest_difference"] == 0
    assert found["pairs_the_loop_was_timed_on"] == 36
    assert 0.3 < (top1 == labels).mean() < 0.95


def test_triplets_are_counted():
    top1, labels = similarity.simulated(6, 640)
    found = similarity.triples(top1 == labels, 1)
    assert (found["triplets"], found["words"]) == (20, 200)


@pytest.mark.slow
def test_the_benchmark_runs():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.similarity", "--quick", "--json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["67_models"]["largest_difference"] == 0
    assert found["triplets"]["triplets"] == 47_905
