"""The benchmarks of perturbed evaluation run and say what they promise; times are not asserted."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import cifar10, cifar_data

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_cost_of_corruptions_is_printed_for_each():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.perturbed", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for model in ("resnet18_channels_last", "efficientnet_lite0_onnxruntime"):
        assert len(found[model]["per_corruption"]) == 20
        assert found[model]["ratio"] > 0
    few, many = found["peak_megabytes"].values()
    assert many < 1.25 * few  # flat in the number of images


@pytest.mark.slow
def test_noise_hurts_the_clean_model_most_and_the_augmix_one_less():
    """Trains two models for minutes, unless an earlier run of the benchmark left their weights."""
    if not cifar_data.cached().exists():
        pytest.skip("CIFAR-10 is not cached: run python -m benchmarks.cifar10 once")
    found = cifar10.measure(Namespace(quick=False, cache=None, training=None, epochs=None))
    clean, mixed = found["clean"], found["augmix"]
    assert clean["clean_images"]["low"] > 0.7
    groups = {name: value for name, value in clean["groups"].items() if name != "greyscale"}
    assert min(groups, key=groups.__getitem__) == "noise"
    lost = {
        name: one["clean_images"]["value"] - one["groups"]["noise"]
        for name, one in (("clean", clean), ("augmix", mixed))
    }
    assert lost["augmix"] < lost["clean"] - 0.03
    ranks = [one["spearman"] for one in clean["profiles"].values()]
    assert sum(rank > 0.85 for rank in ranks) >= 15  # of nineteen
    for name in ("snow", "saturate"):  # severity 3 is milder than 2 with CIFAR-10-C's parameters
        own = clean["profiles"][name]["own"]
        assert own[2] > own[1]
