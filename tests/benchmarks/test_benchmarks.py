"""The benchmarks run and say what they promise; times are printed, never asserted."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import coverage

ROOT = Path(__file__).parents[2]


def run(name: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_intervals_cover_and_discoveries_are_true():
    found = run("coverage")
    assert {"coverage", "false_discovery_rate", "stated_fdr", "simulations"} <= found.keys()
    assert 0.94 <= found["coverage"] <= 0.96
    assert found["false_discovery_rate"] <= found["stated_fdr"]
    for regime in found["regimes"].values():
        assert regime["coverage_from_accuracies_alone"] > 0.93  # modelled
    assert len(found["cases"]) >= 30
    keys = {"case", "coverage", "mc_error", "width", "simulations", "flagged"}
    assert all(keys <= case.keys() for case in found["cases"])


def test_a_slice_of_the_coverage_simulation():
    """Few simulations where noise in x is largest: coverage within what so few can tell."""
    world = coverage.population()
    found = coverage.measure(world, 1_109, 10_000, 25, seed=7)
    assert found["coverage"] == pytest.approx(0.95, abs=5 * found["coverage_se"] + 0.01)
    assert found["coverage_from_accuracies_alone"] > 0.93  # modelled
    assert found["false_discovery_rate"] < 0.05 + 4 * found["false_discovery_rate_se"]


def test_the_simulated_truth_is_on_the_line_but_for_the_scatter():
    world = coverage.population()
    _, truth = coverage.simulate(world, 1_109, 1_000, np.random.default_rng(0))
    assert np.abs(truth[: coverage.BASELINE]).max() < 0.02
    assert np.abs(truth[coverage.BASELINE :]).min() > 0.015


@pytest.mark.slow
def test_the_spine_is_the_same_and_faster():
    found = run("spine")
    assert found["largest_difference_of_rho"] < 1e-12
    assert found["ratio"] > 1


def test_place_imports_nothing_heavy():
    assert run("place")["heavy_modules_imported"] == []


@pytest.mark.slow
def test_heads_on_one_backbone_are_evaluated_together():
    found = run("heads")
    assert found["heads"] == 100
    assert found["equal to the last bit"] is True
    assert found["ratio"] > 0


@pytest.mark.slow
def test_a_store_elsewhere_is_asked_for_little():
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    found = run("remote")
    assert {"ratio_by_the_clock", "ratio_of_processor_time", "load"} <= found.keys()
    assert found["cells"] == 10
    assert found["requests_per_cell"] < 30
    assert found["opened"]["cells"] == 1000
