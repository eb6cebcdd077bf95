"""Runs of a recipe are called by what sets them apart: in the plan, the progress and the store."""

import re

import pytest

import shiftbed as sb
from shiftbed.testbed import open_testbed
from shiftbed.training import read_recipe
from shiftbed.training.train import planned_jobs
from tests.training.places import GRID, place
from tests.training.test_recipe import ROOT

SWEEP = GRID.replace("lr = 0.1", "lr = [0.1, 0.01]") + "seed = [0, 1]\n"
STAGES = """
[[grid]]
model = "python:net.py:build()"
optimiser = {name = "SGD", lr = 0.1}
epochs = 1
[[grid.stages]]
data = ["digits", "other"]
[[grid.stages]]
data = "digits"
tune = "head"
"""
HASH = re.compile(r"-[0-9a-f]{12}")


def names(folder, grid):
    return [job.called for job in read_recipe(place(folder, grid)).jobs(["all"])]


def test_by_what_differs_and_only_that(tmp_path):
    assert names(tmp_path, SWEEP) == [
        f"build · digits · lr {lr} · seed {seed}" for lr in ("0.1", "0.01") for seed in (0, 1)
    ]
    assert names(tmp_path, GRID) == ["build · digits · seed 0"]


def test_a_later_stage_by_what_came_before(tmp_path):
    assert names(tmp_path, STAGES)[2:] == [
        "build · digits · after digits · seed 0",
        "build · digits · after other · seed 0",
    ]


@pytest.mark.parametrize("paper", ["andreassen2021", "fridovich2022", "shi2023", "taori2020"])
def test_no_run_of_a_papers_recipe_needs_its_hash(paper):
    jobs = read_recipe(ROOT / "recipes" / f"{paper}.toml").jobs(["all"])
    found = [job.called for job in jobs]
    assert len(set(found)) == len(found)
    assert not [name for name in found if re.search(r"· [0-9a-f]{6}$|-[0-9a-f]{12}", name)]


def test_the_same_name_everywhere(tmp_path):
    path = place(tmp_path, SWEEP)
    plan = planned_jobs(path)
    assert "build · digits · lr 0.01 · seed 1" in str(plan)
    assert not HASH.search(str(plan))
    assert HASH.search(plan.to_json())
    announced = []
    done = sb.train(read_recipe(path, allow_code=True), announce=announced.extend)
    assert [one.job.called for one in announced] == list(plan.called.values())
    assert not HASH.search(str(done))
    bed = open_testbed(tmp_path / "store")
    runs = {run: name for run, name in bed.called.items() if "@" not in run}
    assert runs == plan.called


def test_a_run_evaluated_again_keeps_its_name_and_its_columns(tmp_path):
    path = place(tmp_path, SWEEP)
    assert not sb.train(read_recipe(path, allow_code=True)).failed
    before = open_testbed(tmp_path / "store").models
    run = sorted((tmp_path / "runs").glob("*/done.json"))[0].parent
    images = f"{tmp_path / 'digits.npz'}:other"
    done = sb.evaluate(f"run:{run}", images, store=tmp_path / "store", allow_code=True)
    name = f"{done.called[done.models[0]]} "
    assert name.startswith("build · digits · lr ")
    assert not HASH.search(str(done))
    after = open_testbed(tmp_path / "store").models
    assert after.select(before.columns).sort("model").equals(before.sort("model"))


def test_failures_are_told_by_name(tmp_path):
    path = place(tmp_path, SWEEP + 'start = "file:none.pt"\n')
    done = sb.train(read_recipe(path, allow_code=True))
    assert len(done.failed) == 4
    assert "failed: build · digits · lr 0.01 · seed 1: " in str(done)
    assert not HASH.search(str(done))
    assert HASH.search(done.to_json())
