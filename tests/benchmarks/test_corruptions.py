"""The corruption benchmark runs and says what it promises; ratios are printed, never asserted."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.photographs import clouds, photographs, pictures
from benchmarks.reference_corruptions import FOLDER
from shiftbed.evaluation.corruptions import NAMES


def test_pictures_are_as_asked_for_and_the_same_again():
    for make in (photographs, clouds, pictures):
        made = make(3, 40, seed=2)
        assert made.shape == (3, 40, 40, 3)
        assert made.dtype == np.uint8
        assert np.array_equal(made, make(3, 40, seed=2))
        assert made.std() > 10


@pytest.mark.slow
@pytest.mark.skipif(
    not (FOLDER / "complete").exists(),
    reason="the reference's environment is made by `python -m benchmarks.corruptions`",
)
def test_the_benchmark_reports_every_corruption():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.corruptions", "--quick", "--json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["per_corruption"]) == set(NAMES) - {"greyscale"}
    assert found["geomean"] > 1
    assert found["growth_mb"] < 100
