"""``shiftbed train``: dry runs, runs, what comes after, and errors in one line."""

import json
from pathlib import Path

from tests.cli.in_process import shiftbed
from tests.training.places import GRID, place

EVERY = GRID + 'checkpoints = {every = 1, at = [[0]]}\nseed = [0, 1]\nin_fit_set = "all"\n'


def test_from_a_recipe_to_a_line(tmp_path):
    place(tmp_path, EVERY)
    dry = shiftbed("train", "recipe.toml", "--dry-run", cwd=tmp_path)
    assert dry.returncode == 0
    assert "tiny: 2 networks (full: 2)" in dry.stdout
    assert not (tmp_path / "runs").exists()
    listed = json.loads(
        shiftbed("train", "recipe.toml", "--dry-run", "--json", cwd=tmp_path).stdout
    )
    assert listed["by_data_size"] == {"full": 2}
    done = shiftbed("train", "recipe.toml", "--allow-code", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["finished"], found["failed"]) == (0, 2, [])
    assert found["examples"] == 2 * 2 * 540
    assert {f.name for f in (tmp_path / "runs").iterdir()} == {j["id"] for j in listed["jobs"]}
    again = shiftbed("train", "recipe.toml", "--allow-code", cwd=tmp_path)
    assert "2 runs finished, 2 of them before; 0 examples" in again.stdout
    line = shiftbed("fit", "--testbed", "store", "--shift", "faint", "--json", cwd=tmp_path)
    assert line.returncode == 0, line.stderr
    drawn = shiftbed(
        *("plot", "--testbed", "store", "--shift", "faint", "--chart", "trajectories"),
        *("-o", "rho.svg"),
        cwd=tmp_path,
    )
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "rho.svg").stat().st_size > 1000


def test_another_store(tmp_path):
    place(tmp_path)
    done = shiftbed(
        "train", "recipe.toml", "--allow-code", "--store", "elsewhere", "--json", cwd=tmp_path
    )
    assert json.loads(done.stdout)["store"] == "elsewhere"
    assert (tmp_path / "elsewhere" / "store.json").exists()
    assert not (tmp_path / "store").exists()


def test_errors(tmp_path):
    place(tmp_path, GRID.replace("epochs", "epoch"))
    found = shiftbed("train", "recipe.toml", "--allow-code", cwd=tmp_path)
    assert found.returncode == 2
    assert "grid 'grid-1': unknown key in [[grid]] 'epoch'; did you mean 'epochs'" in found.stderr
    place(tmp_path, GRID.replace('"SGD"', '"SDG"'))
    refused = shiftbed("train", "recipe.toml", "--allow-code", cwd=tmp_path)
    assert refused.returncode == 2
    assert "unknown optimiser 'SDG'" in refused.stderr
    place(tmp_path, GRID + 'start = "file:none.pt"\n')
    failed = shiftbed("train", "recipe.toml", "--allow-code", cwd=tmp_path)
    assert failed.returncode == 1
    assert "failed: build · digits · seed 0: " in failed.stdout
    assert "no such file" in failed.stdout


def test_the_counts_of_wenzel2022():
    """Table S3 and Appendix H: 7,776 per training-set size, 23,328, and 31,104 in all."""
    root = Path(__file__).parents[2]
    recipe = root / "recipes" / "wenzel2022.toml"
    found = json.loads(shiftbed("train", recipe, "--dry-run", "--json", cwd=root).stdout)
    assert found["networks"] == 23_328
    assert found["by_data_size"] == {"full": 7776, "few-shot-100": 7776, "few-shot-10": 7776}
    assert found["all_grids"] == 31_104
    assert found["data_sets"] == 36
    assert len({job["id"] for job in found["jobs"]}) == 23_328
